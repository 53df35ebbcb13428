"""Flights as LeRobot's folders: its own layout, and our reader's numbers."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rl.bridge.log import convert
from rl.bridge.log.convert import Convert
from rl.data import formats, lerobot_out, npz
from rl.data.dataset import Dataset
from rl.data.lerobot_out import Feature
from tests import flights
from tests.flights import eventful


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flights.write(tmp_path_factory.mktemp("flight") / "a.mcap", eventful())


@pytest.fixture(scope="module")
def data(log: Path) -> Dataset:
    convert.convert(Convert((log,), log.with_name("a.npz")))
    return npz.read(log.with_name("a.npz"))


@pytest.fixture(scope="module")
def folder(log: Path) -> Path:
    convert.convert(Convert((log,), out := log.with_name("lerobot"), task="walk about"))
    return out


def test_lerobot_s_folder_is_read_as_the_same(folder: Path, data: Dataset) -> None:
    limits = tuple(np.array(data.facts[f"action_{end}"]) for end in ("low", "high"))
    found = formats.read(folder, limits=limits)
    assert found.episodes["length"].tolist() == [24, 10]
    seen = np.concatenate([found.steps["obs/state"], found.steps["obs/command"]], 1)
    np.testing.assert_array_equal(seen, data.steps["obs"])
    for name in ("action", "terminated", "truncated", "mask"):
        np.testing.assert_array_equal(found.steps[name], data.steps[name])
    first = found.episodes["last_obs/state"][0], found.episodes["last_obs/command"][0]
    np.testing.assert_array_equal(np.concatenate(first), data.episodes["last_obs"][0])
    assert found.facts["control_dt"] == 0.02
    assert found.facts["tasks"] == ["walk about"]
    assert found.facts["left_out"] == ["intervention", "limited", "policy_action"]


def test_lerobot_s_folder_has_the_layout_of_its_own(folder: Path, data: Dataset) -> None:
    """That of tests/fixtures, which LeRobot itself wrote: the same files, facts and columns."""
    theirs = Path(__file__).parent / "fixtures/formats/lerobot/point"
    files = lambda at: {x.relative_to(at).as_posix() for x in at.rglob("*") if x.is_file()}  # noqa: E731
    assert files(folder) == {x for x in files(theirs) if "001" not in x}
    mine, like = (json.loads((x / "meta/info.json").read_text()) for x in (folder, theirs))
    assert mine.keys() == like.keys()
    assert (mine["codebase_version"], mine["fps"]) == ("v3.0", 50)
    assert (mine["total_episodes"], mine["total_frames"]) == (2, 35)
    assert {k: mine["features"][k] for k in ("timestamp", "index", "next.done")} == {
        k: like["features"][k] for k in ("timestamp", "index", "next.done")
    }
    for name in ("meta/episodes/chunk-000/file-000.parquet", "meta/tasks.parquet"):
        fields = [
            {f.name: f.type for f in pq.read_schema(x / name) if "stats" not in f.name}
            for x in (folder, theirs)
        ]
        assert fields[0].keys() - {"task"} == fields[1].keys() - {"__index_level_0__"}
        assert all(fields[0][k] == fields[1][k] for k in fields[0].keys() - {"task"})
    rows = pq.read_table(folder / "data/chunk-000/file-000.parquet")
    like_rows = pq.read_schema(theirs / "data/chunk-000/file-000.parquet")
    for name in ("timestamp", "frame_index", "episode_index", "index", "task_index", "next.done"):
        assert rows.schema.field(name).type == like_rows.field(name).type
    np.testing.assert_array_equal(np.stack(rows["policy_action"].to_pylist())[:24],
                                  data.steps["wish"][:24])  # fmt: skip
    human = np.array(rows["intervention"])
    assert human.sum() == data.steps["human"].sum()
    stats = json.loads((folder / "meta/stats.json").read_text())
    np.testing.assert_allclose(stats["action"]["max"], np.stack(rows["action"].to_pylist()).max(0))
    np.testing.assert_allclose(stats["intervention"]["mean"], [human.mean()])
    np.testing.assert_allclose(stats["timestamp"]["max"], [24 / 50], rtol=1e-6)


def test_what_it_has_no_place_for_is_refused(tmp_path: Path) -> None:
    rows = {"observation.state": Feature(np.zeros((3, 2), np.float32)),
            "action": Feature(np.zeros((3, 2), np.float32))}  # fmt: skip
    with pytest.raises(ValueError, match=r"whole frames a second, and this robot is at 12\.5 Hz"):
        lerobot_out.write(tmp_path / "a", rows, np.array([3]), 12.5, "robot", "task")
    (tmp_path / "b").write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        lerobot_out.write(tmp_path / "b", rows, np.array([3]), 50, "robot", "task")
    assert {x.name for x in tmp_path.iterdir()} == {"b"}
