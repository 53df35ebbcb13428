"""Minari's folders: what is wrong is said, and ours are what Minari reads."""

import io
import json
import os
import subprocess
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image

from rl.data import formats, minari, npz
from rl.data.dataset import Dataset
from tests.recorded import (
    ABOUT,
    MAIN,
    SETS,
    Broken,
    about,
    copied,
    cut,
    h5,
    listed,
    pq,
    put,
    read,
    set_cell,
    without,
)  # fmt: skip

LIBRARY = os.environ.get("MINARI_PYTHON", "")  # an interpreter that has Minari
CAR, ARROW, PARQUET = (f"minari-{form}/car/mixed-v0" for form in ("hdf5", "arrow", "parquet"))
PART = "data/1/part-0.parquet"
ENDLESS = '{"type": "Box", "dtype": "float32", "shape": [1], "low": [-Infinity], "high": [1]}'
BAD = [
    (
        h5(lambda f: set_cell(f["episode_1"], "actions", (3, 1), 1.5)),
        "1.5 in axis 1, step 3 of episode 1",
    ),
    (
        h5(lambda f: set_cell(f["episode_2"], "rewards", 4, np.nan)),
        "reward of no finite number, in step 4 of episode 2",
    ),
    (
        h5(lambda f: set_cell(f["episode_2/observations"], "observation", (4, 0), np.inf)),
        "obs/observation of no finite number, in step 4 of episode 2",
    ),
    (
        h5(lambda f: set_cell(f["episode_2/observations"], "observation", (15, 0), np.nan)),
        "last_obs/observation of no finite number, of episode 2",
    ),
    (
        h5(lambda f: set_cell(f["episode_1"], "terminations", 3, True)),
        "goes on after its end in step 3 of episode 1",
    ),
    (h5(lambda f: f["episode_1"].__delitem__("rewards")), "lacks rewards in episode 1"),
    (h5(lambda f: f["episode_1"].move("rewards", "reward")), "reward in episode 1"),
    (
        h5(lambda f: put(f["episode_1"], "actions", np.zeros((14, 2), "f4"))),
        r"actions of float32\[14, 2\] in episode 1; .*\[15, 2\]",
    ),
    (
        h5(lambda f: put(f["episode_1"], "actions", np.zeros((15, 2), "i4"))),
        r"actions of int32\[15, 2\] in episode 1",
    ),
    (
        h5(lambda f: put(f["episode_1"], "rewards", np.array([b"x"] * 15))),
        "rewards of episode 1 of",
    ),
    (h5(lambda f: f["episode_1/observations"].__delitem__("achieved_goal")), "achieved_goal"),
    (
        h5(lambda f: f["episode_3"].attrs.__setitem__("id", 2)),
        "has an episode 2 of 5 steps where episode 3",
    ),
    (
        h5(lambda f: f["episode_3"].attrs.__setitem__("total_steps", 6)),
        "of 6 steps where episode 3",
    ),
    (h5(lambda f: f.move("episode_1", "episode_7")), "none is episode_1"),
    (h5(lambda f: f.__delitem__("episode_3")), "3 episodes of 38 steps together; .* 4 of 43"),
    (about(CAR, ABOUT, action_space='{"type": "Discrete", "n": 3}'), "only a Box is continuous"),
    (about(CAR, ABOUT, action_space='{"type": "Box"}'), "action_space of Minari"),
    (about(CAR, ABOUT, data_format="csv"), "data_format of 'csv'"),
    (about(CAR, ABOUT, action_space=ENDLESS), "give their limits"),
    (without(CAR, ABOUT), "of no format that is read"),
    (without(ARROW, "data/1"), "one is missing"),
    (without(ARROW, "data/1/part-0.arrow"), "part-0.arrow: is the data set whole"),
    (pq(PARQUET, PART, lambda c: c.pop("rewards")), "lacks rewards in episode 1"),
    (pq(PARQUET, PART, lambda c: listed(c, "rewards", 3, None)), "it has empty rows"),
    (
        pq(PARQUET, PART, lambda c: listed(c, "actions", 3, [2.0])),
        "action of 2 in axis 0, step 3 of episode 1",
    ),
    (about(PARQUET, "data/2/metadata.json", id=1), "has an episode 1 of 12 steps where episode 2"),
    (lambda to: cut(CAR, MAIN, to), "main_data.hdf5 is damaged"),
    (lambda to: cut(ARROW, "data/1/part-0.arrow", to), "part-0.arrow is damaged"),
    (lambda to: cut(PARQUET, PART, to), "part-0.parquet is damaged"),
]


@pytest.mark.parametrize(("broken", "why"), BAD)
def test_what_is_wrong_is_said(broken: Broken, why: str, tmp_path: Path) -> None:
    path = broken(tmp_path)
    with pytest.raises(ValueError, match=why) as raised:
        formats.read(path)
    assert path.name in str(raised.value)


def test_limits_that_are_given_stand_for_bounds_that_are_none(tmp_path: Path) -> None:
    path = about(CAR, ABOUT, action_space=ENDLESS)(tmp_path)
    data, own = formats.read(path, limits=(-2, 2)), read(CAR)
    np.testing.assert_allclose(data.steps["action"], own.steps["action"] / 2, atol=1e-7)
    assert data.facts["action_low"] == [-2]


def test_pictures_are_read_as_they_were(tmp_path: Path) -> None:
    """Ours keep every bit as Minari's, whatever their parts are of; and so does all else."""
    rng, count = np.random.default_rng(0), 12
    seen = {
        "obs/image": rng.integers(0, 256, (count, 32, 40, 3)).astype(np.uint8),
        "obs/state/joint": rng.normal(size=(count, 3)).astype(np.float32),
        "obs/state/touch": rng.random((count, 2)) < 0.5,
        "obs/count": np.arange(count, dtype=np.int32),
    }
    over = np.isin(np.arange(count), [4, 11])
    mask = rng.random(count) < 0.5
    steps = seen | {"terminated": over, "truncated": np.zeros(count, bool), "mask": mask}
    steps["action"] = rng.uniform(-1, 1, (count, 2)).astype(np.float32)
    steps |= {"reward": np.ones(count, np.float32), "aux/way": np.arange(count, dtype=np.int8)}
    episodes = {"length": np.array([5, 7]), "success": np.array([True, False])}
    episodes |= {"score": np.array([0.5, 1], np.float32), "start": rng.normal(size=(2, 3))}
    data = Dataset(steps, episodes | {f"last_{n}": x[:2] for n, x in seen.items()}, {"task": "x"})
    assert minari.write(tmp_path / "made-v0", data) == data.sha256
    back = formats.read(tmp_path / "made-v0")
    assert back.sha256 == data.sha256
    assert back.facts["task"] == "x"
    npz.write(tmp_path / "made.npz", back)
    assert formats.read(tmp_path / "made.npz").sha256 == data.sha256
    with pytest.raises(ValueError, match="is there already"):
        minari.write(tmp_path / "made-v0", data)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["made-v0", "made.npz"]


def test_pictures_of_minari_s_are_unpacked(tmp_path: Path) -> None:
    def packed(shade: int) -> np.ndarray:
        out = io.BytesIO()
        Image.fromarray(np.full((32, 32, 3), shade, np.uint8)).save(out, "JPEG")
        return np.frombuffer(out.getvalue(), np.uint8)

    path = copied("minari-hdf5/car/mixed-v0", tmp_path)
    space = {"type": "Box", "dtype": "uint8", "shape": [32, 32, 3], "low": 0, "high": 255}
    about = json.loads((path / "data/metadata.json").read_text())
    about["observation_space"] = json.dumps(space)
    (path / "data/metadata.json").write_text(json.dumps(about))
    with h5py.File(path / "data/main_data.hdf5", "r+") as file:
        for group in file.values():
            count = len(group["observations"])
            del group["observations"]
            pictures = group.create_dataset("observations", count, h5py.vlen_dtype(np.uint8))
            for i in range(count):
                pictures[i] = packed(8 * i)
    data = formats.read(path)
    assert data.steps["obs"].shape == (35, 32, 32, 3)
    assert data.steps["obs"].dtype == np.uint8
    assert (data.steps["obs"][:3].mean((1, 2, 3)) == [0, 8, 16]).all()


@pytest.mark.parametrize("name", SETS)
def test_there_and_back_it_is_the_same(name: str, tmp_path: Path) -> None:
    data = read(name)
    minari.write(tmp_path / "it-v3", data)
    back = formats.read(tmp_path / "it-v3")
    assert back.sha256 == data.sha256
    for key in ("action_low", "action_high", "cut", "reward"):
        assert back.facts.get(key) == data.facts.get(key)


@pytest.mark.skipif(not LIBRARY, reason="needs MINARI_PYTHON, an interpreter that has Minari")
def test_minari_reads_what_is_written(tmp_path: Path) -> None:
    data = read("minari-hdf5/point/goals-v0")
    minari.write(tmp_path / "it-v0", data)
    code = (
        "import minari, json; d = minari.load_dataset('it-v0'); print(json.dumps([["
        "e.rewards.tolist(), e.actions.tolist(), e.observations['observation'].tolist()]"
        "for e in d.iterate_episodes()]))"
    )
    env = {"MINARI_DATASETS_PATH": str(tmp_path)}
    out = subprocess.run([LIBRARY, "-c", code], env=env, capture_output=True, check=True).stdout
    for number, (rewards, actions, seen) in enumerate(json.loads(out)):
        rows = slice(data.starts[number], data.starts[number] + len(rewards))
        np.testing.assert_array_equal(data.steps["reward"][rows], np.float32(rewards))
        np.testing.assert_array_equal(data.steps["action"][rows], np.float32(actions))
        np.testing.assert_array_equal(data.steps["obs/observation"][rows], np.float32(seen[:-1]))
