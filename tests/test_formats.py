"""Others' data sets as their own libraries read them, in one form; and ours as Minari's."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from safetensors.numpy import load_file

from rl.data import formats
from rl.data.dataset import Dataset
from tests.recorded import (
    CUBE,
    FORMATS,
    MAZE,
    POINTS,
    RUN,
    SETS,
    copied,
    expected,
    hdf5,
    log,
    read,
    rewritten,
)  # fmt: skip


def flags(data: Dataset, name: str) -> list[int]:
    return np.flatnonzero(data.steps[name]).tolist()


@pytest.mark.parametrize("name", [name for name in SETS if "minari" in name or "rlds" in name])
def test_it_is_what_the_library_reads(name: str) -> None:
    told, data = expected(name), read(name)
    assert data.episodes["length"].tolist() == told["lengths"]
    np.testing.assert_allclose(data.sums(), told["returns"], rtol=1e-6)
    np.testing.assert_array_equal(data.steps["reward"], np.float32(told["rewards"]))
    assert flags(data, "terminated") == told["terminal"]
    np.testing.assert_array_equal(data.steps["mask"], ~data.steps["terminated"])
    cut = [int(data.episodes["length"].sum()) - 1] if "cut" in data.facts else []
    assert flags(data, "truncated") == told["truncated"] + cut
    for part, seen in data.parts("obs").items():
        of = told["observations"]
        of = of if part == "obs" else of[part.removeprefix("obs/")]
        np.testing.assert_array_equal(seen[data.starts], np.float32(of["first"]))
        np.testing.assert_array_equal(data.episodes[f"last_{part}"], np.float32(of["last"]))
    ends = data.starts + data.episodes["length"] - 1
    np.testing.assert_array_equal(data.steps["action"][ends], np.float32(told["actions"]["last"]))
    np.testing.assert_array_equal(
        data.steps["action"][data.starts], np.float32(told["actions"]["first"])
    )
    assert data.facts["action_low"] == [-1.0] * data.steps["action"].shape[1]
    if "minari" in name:
        assert data.episodes["seed"].tolist() == [x["seed"] for x in told["episode_metadata"]]


@pytest.mark.parametrize("name", ["d4rl/timeouts.hdf5", "d4rl/old.hdf5", "lerobot/point"])
def test_a_row_that_leads_nowhere_is_no_step(name: str) -> None:
    """Terminals stay, on a time-out too; of what goes on, the last row is what is seen."""
    told, data = expected(name), read(name)
    keeps = "timeouts" in name
    kept = [n - (not keeps and i in (1, 3)) for i, n in enumerate(told["lengths"])]
    assert data.episodes["length"].tolist() == kept
    ends = np.cumsum(kept) - 1
    assert flags(data, "terminated") == [ends[0], ends[2]]
    assert flags(data, "truncated") == [ends[1], ends[2], ends[3]]
    assert data.facts["cut"] == 1
    rows = np.split(np.float32(told["rewards"]), np.cumsum(told["lengths"])[:-1])
    rewards = np.concatenate([x[:n] for x, n in zip(rows, kept, strict=True)])
    np.testing.assert_array_equal(data.steps["reward"], rewards)
    if not keeps:
        np.testing.assert_array_equal(
            data.episodes["last_obs"], np.float32(told["observations"]["last"])
        )


@pytest.mark.parametrize("name", POINTS)
def test_the_same_episodes_are_the_same_in_all(name: str) -> None:
    other, data = read("rlds/point.npz"), read(name)
    seen = data.parts("obs").get("obs", data.steps.get("obs/observation"))
    action = data.steps["action"].astype(np.float64)
    low, high = (np.array(data.facts[f"action_{end}"]) for end in ("low", "high"))
    action = low + (action + 1) / 2 * (high - low)
    lengths = data.episodes["length"]
    for number, (start, length) in enumerate(zip(data.starts, lengths, strict=True)):
        theirs = slice(other.starts[number], other.starts[number] + length)
        mine = slice(start, start + length)
        np.testing.assert_array_equal(seen[mine], other.steps["obs"][theirs])
        np.testing.assert_array_equal(data.steps["reward"][mine], other.steps["reward"][theirs])
        np.testing.assert_allclose(action[mine], other.steps["action"][theirs], atol=1e-7)
        np.testing.assert_array_equal(
            data.steps["terminated"][mine], other.steps["terminated"][theirs]
        )


@pytest.mark.parametrize(
    ("inner", "goal"), [("cube-single-play", CUBE), ("pointmaze-medium-navigate", MAZE)]
)
@pytest.mark.parametrize("part", ["train", "val"])
def test_a_goal_gives_ogbench_s_own_task(inner: str, goal: dict[str, Any], part: str) -> None:
    told = json.loads((FORMATS / "ogbench/expected.json").read_text())["read"]
    told = told[f"{inner}-v0.npz"]["singletask"][part]
    path = FORMATS / f"ogbench/{inner}-v0{'-val' if part == 'val' else ''}.npz"
    data = formats.read(path, **goal)
    assert data.episodes["length"].tolist() == told["lengths"]
    np.testing.assert_array_equal(data.steps["reward"], told["rewards"]["all"])
    np.testing.assert_array_equal(data.steps["mask"], told["masks"]["all"])
    np.testing.assert_array_equal(data.steps["truncated"], told["terminals"]["all"])
    after = np.append(data.steps["obs"][1:], data.episodes["last_obs"][-1:], 0)
    np.testing.assert_array_equal(after[-1], np.float32(told["next_observations"]["last"]))
    plain = formats.read(path)
    assert plain.facts["reward"] == "none"
    assert plain.steps["mask"].all()
    assert not plain.steps["reward"].any()


def test_without_timeouts_a_jump_is_an_end(tmp_path: Path) -> None:
    path = hdf5("d4rl/timeouts.hdf5", tmp_path, lambda f: f.__delitem__("timeouts"))
    data = formats.read(path)
    assert data.episodes["length"].tolist() == [8, 15, 15, 5]
    assert flags(data, "truncated") == [22, 42]  # that 37 was a time-out too is not to be seen
    own = read("d4rl/timeouts.hdf5").episodes["last_obs"]
    np.testing.assert_array_equal(data.episodes["last_obs"], own)
    with pytest.raises(ValueError, match="timeouts of its own"):
        read("d4rl/timeouts.hdf5", horizon=15)


def test_without_next_observations_time_outs_cost_a_row(tmp_path: Path) -> None:
    path = hdf5("d4rl/timeouts.hdf5", tmp_path, lambda f: f.__delitem__("next_observations"))
    assert formats.read(path).sha256 == read("d4rl/old.hdf5").sha256


def test_an_episode_of_rlds_that_breaks_off_is_cut(tmp_path: Path) -> None:
    path = rewritten("rlds/point.npz", tmp_path, lambda a: a["is_last"].__setitem__(46, False))
    data = formats.read(path)
    assert data.facts["cut"] == 1
    assert data.sha256 == read("rlds/point.npz").sha256


def test_pictures_of_lerobot_s_are_unpacked(tmp_path: Path) -> None:
    path = copied("lerobot/point", tmp_path)
    about = json.loads((path / "meta/info.json").read_text())
    about["features"]["observation.images.top"] = {"dtype": "image", "shape": [4, 6, 3]}
    about["features"]["observation.images.film"] = {"dtype": "video", "shape": [4, 6, 3]}
    (path / "meta/info.json").write_text(json.dumps(about))
    pictures = np.random.default_rng(0).integers(0, 256, (43, 4, 6, 3)).astype(np.uint8)
    for file in sorted((path / "data").rglob("*.parquet")):
        table = pyarrow.parquet.read_table(file)
        cells = [{"bytes": png(pictures[i]), "path": None} for i in table["index"].to_pylist()]
        table = table.append_column("observation.images.top", pyarrow.array(cells))
        pyarrow.parquet.write_table(table, file)
    data = formats.read(path)
    kept = [i for i in range(43) if i not in (22, 42)]
    np.testing.assert_array_equal(data.steps["obs/images/top"], pictures[kept])
    assert data.steps["obs/state"].dtype == np.float32
    assert "observation.images.film" in data.facts["left_out"]


def png(picture: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(picture).save(out, "PNG")
    return out.getvalue()


def test_actions_have_the_limits_that_are_given() -> None:
    data = read("rlds/point.npz", limits=(-2, (2, 4)))
    own = read("rlds/point.npz").steps["action"]
    wanted = [[x / 2, (y + 2) / 3 - 1] for x, y in own]
    np.testing.assert_allclose(data.steps["action"], wanted, atol=1e-6)
    assert data.facts["action_high"] == [2, 4]
    with pytest.raises(ValueError, match="their limits are of another size"):
        read("rlds/point.npz", limits=((0, 0, 0), (1, 1, 1)))
    with pytest.raises(ValueError, match="takes no --horizon"):
        read("rlds/point.npz", horizon=3)


def test_a_log_s_rows_are_what_led_to_them(tmp_path: Path) -> None:
    path = log(tmp_path / "log.npz")
    data, rows = formats.read(path), np.load(path)
    assert data.episodes["length"].tolist() == [4, 3]
    np.testing.assert_array_equal(data.steps["obs/qpos"][4], np.float32(rows["qpos"][5]))
    low, high = rows["targets"].min(0), rows["targets"].max(0)
    wanted = 2 * (rows["targets"][1] - low) / (high - low) - 1
    np.testing.assert_allclose(data.steps["action"][0], wanted, atol=1e-6)
    np.testing.assert_array_equal(data.episodes["last_obs/qpos"][1], np.float32(rows["qpos"][8]))
    assert data.facts["control_dt"] == pytest.approx(0.02)
    assert data.facts["reward"] == "none"


def test_a_run_s_replay_is_whole_episodes_of_its_worlds() -> None:
    data = formats.read(RUN)
    assert data.episodes["world"].tolist() == [0] * 5 + [1] * 5
    assert data.steps["truncated"].sum() == 10
    assert data.facts["task"] == "so101-reach"
    assert data.facts["env"] == data.facts["config"]["env"]
    assert (data.episodes["length"] == 60).all()
    blocks = sorted((RUN / "replay").glob("*.safetensors"))
    rewards = np.concatenate([load_file(path)["reward"] for path in blocks], axis=1)
    np.testing.assert_array_equal(data.steps["reward"][:300], rewards[0, :, 0])


def test_without_its_library_a_format_says_what_to_install() -> None:
    for package, name in (("h5py", "d4rl/timeouts.hdf5"), ("pyarrow", "lerobot/point")):
        code = f"import sys; sys.modules['{package}'] = None\nfrom pathlib import Path\n" \
               f"from rl.data import formats\nformats.read(Path('{FORMATS / name}'))"  # fmt: skip
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert f"needs {package}: pip install 'robotrl[data]'" in done.stderr
