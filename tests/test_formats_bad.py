"""Broken data sets are refused, by file, episode and field; damage never passes for data."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from rl.data import formats, minari, npz
from rl.data.dataset import Dataset
from tests.recorded import (
    FORMATS,
    RUN,
    SETS,
    Broken,
    Change,
    about,
    cell,
    copied,
    cut,
    hdf5,
    listed,
    log,
    pq,
    put,
    read,
    set_cell,
    without,
    zipped,
)  # fmt: skip

LEROBOT, RLDS, BOX = "lerobot/point", "rlds/point.npz", "ogbench/cube-single-play-v0.npz"
FRAMES, TABLE = "data/chunk-000/file-001.parquet", "meta/episodes/chunk-000/file-001.parquet"
INFO = "meta/info.json"


def d4(change: Change) -> Broken:
    return lambda to: hdf5("d4rl/timeouts.hdf5", to, change)


def moved(to: Path) -> Path:
    """A replay whose second block is named as a later one."""
    path = to / "replay"
    shutil.copytree(RUN / "replay", path)
    block = path / "rows-000000200-000000300.safetensors"
    block.rename(path / "rows-000000250-000000350.safetensors")
    return path


BAD = [
    (moved, "lacks the rows 200 to 250"),
    (d4(lambda f: f.__delitem__("terminals")), "has no terminals"),
    (d4(lambda f: f.move("timeouts", "time_outs")), "'time_outs', which D4RL has not"),
    (d4(lambda f: put(f, "rewards", np.zeros(40, "f4"))), "40 rows of rewards"),
    (d4(lambda f: put(f, "terminals", np.full(43, 2))), "a terminals of 2 in row 0"),
    (d4(lambda f: set_cell(f, "actions", (9, 0), -1.01)), "-1.01 in axis 0, step 1 of episode 1"),
    (d4(lambda f: set_cell(f, "observations", (9, 0), np.nan)), "no finite number"),
    (
        d4(lambda f: (f.__delitem__("timeouts"), f.__delitem__("next_observations"))),
        "give --horizon",
    ),
    (
        d4(lambda f: put(f, "next_observations", f["observations"][()][::-1])),
        "not in the order of time",
    ),
    (lambda to: cut("d4rl/timeouts.hdf5", "", to), "timeouts.hdf5 is damaged"),
    (zipped(BOX, lambda a: a.update(terminals=np.zeros(110, bool))), "breaks off"),
    (zipped(BOX, lambda a: a.pop("actions")), "has no actions"),
    (zipped(BOX, lambda a: a.update(rewards=np.zeros(110))), "rewards, which OGBench has not"),
    (
        zipped(BOX, lambda a: a.update(actions=np.array([{}], object))),
        "Object arrays cannot be loaded",
    ),
    (zipped(BOX, lambda a: a.update(actions=a["actions"][:-1])), r"actions of float32\[109, 5\]"),
    (
        zipped(BOX, lambda a: a.update(actions=cell(a["actions"], (50, 2), 3))),
        "action of 3 in axis 2, step 10 of episode 1",
    ),
    (zipped(RLDS, lambda a: a.update(is_first=np.zeros(47))), "does not begin"),
    (zipped(RLDS, lambda a: a.update(is_last=cell(a["is_last"], 3, True))), "is_last in row 3"),
    (
        zipped(RLDS, lambda a: a.update(is_terminal=cell(a["is_terminal"], 3, True))),
        "is_terminal and not is_last, row 3",
    ),
    (zipped(RLDS, lambda a: a.pop("observation")), "has no observation"),
    (
        zipped(RLDS, lambda a: a.update(reward=cell(a["reward"], 3, np.nan))),
        "reward of no finite number, in step 3 of episode 0",
    ),
    (lambda to: cut(RLDS, "", to), "point.npz is damaged"),
    (pq(LEROBOT, FRAMES, lambda c: c.pop("action")), "has no action"),
    (
        pq(LEROBOT, FRAMES, lambda c: listed(c, "action", 2, [2.0, 0.0])),
        "action of 2 in axis 0, step 2 of episode 2",
    ),
    (
        pq(LEROBOT, FRAMES, lambda c: listed(c, "next.done", 2, True)),
        "next.done in row 25, in the midst of episode 2",
    ),
    (
        pq(LEROBOT, FRAMES, lambda c: listed(c, "next.reward", 2, np.nan)),
        "no finite number, in step 2 of episode 2",
    ),
    (
        pq(LEROBOT, FRAMES, lambda c: listed(c, "episode_index", 2, 3)),
        "episode_index of 3 in row 25",
    ),
    (
        pq(LEROBOT, TABLE, lambda c: listed(c, "dataset_from_index", 0, 20)),
        "from 20 to 38 .* episodes overlap",
    ),
    (pq(LEROBOT, TABLE, lambda c: listed(c, "length", 1, 4)), "of 4 rows from 38 to 43"),
    (without(LEROBOT, FRAMES), "23 rows in data, and 4 episodes of 43"),
    (without(LEROBOT, "meta/stats.json"), "stats.json is not there"),
    (about(LEROBOT, INFO, codebase_version="v2.1"), "convert_dataset_v21_to_v30"),
    (about(LEROBOT, INFO, features={}), "no feature named action"),
    (about(LEROBOT, INFO, total_frames=44), "says 4 of 44"),
    (lambda to: cut(LEROBOT, FRAMES, to), "file-001.parquet is damaged"),
    (
        lambda to: log(to / "log.npz", episode=np.array([0] * 5 + [1, 1, 0, 0])),
        "not one after another",
    ),
    (
        lambda to: log(to / "log.npz", time=np.array([1, 2, 3, 5, 6, 1, 2, 3, 4]) * 0.02),
        "lacks rows",
    ),
    (lambda to: log(to / "log.npz", qvel=np.zeros((8, 2))), r"qvel of float64\[8, 2\]"),
    (lambda to: log(to / "log.npz", targets=np.full((9, 2), np.nan)), "no finite number"),
    (lambda to: to / "none", "no such file or folder"),
    (lambda to: copied("d4rl/expected.json", to), "of no format that is read"),
]


@pytest.mark.parametrize(("broken", "why"), BAD)
def test_what_is_wrong_is_said(broken: Broken, why: str, tmp_path: Path) -> None:
    path = broken(tmp_path)
    with pytest.raises(ValueError, match=why) as raised:
        formats.read(path)
    assert path.name in str(raised.value)


def damaged(whole: Path, to: Path, rng: np.random.Generator) -> Path:
    """A copy of which one file is cut off, or has one bit that is another."""
    path = to / whole.name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copytree(whole, path) if whole.is_dir() else shutil.copy(whole, path)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    sizes = np.array([file.stat().st_size for file in files])
    file = files[rng.choice(len(files), p=sizes / sizes.sum())]
    content = bytearray(file.read_bytes())
    at = int(rng.integers(len(content)))
    if rng.random() < 0.3:
        content = content[:at]
    else:
        content[at] ^= 1 << int(rng.integers(8))
    file.write_bytes(content)
    return path


def differing(one: Dataset, other: Dataset) -> int:
    """How many numbers are another; columns of episodes may be missing."""
    rows = {n: x for n, x in one.episodes.items() if n in other.episodes} | one.steps
    theirs = other.steps | other.episodes
    return sum(int((theirs[name] != x).sum()) for name, x in rows.items())


SEALED = ("ours", "ours-v0", "log.npz", "replay", *(n for n in SETS if n.endswith(".npz")))


@pytest.mark.parametrize("name", [*SEALED, *(n for n in SETS if n not in SEALED)])
def test_damage_is_refused_or_changes_nothing(name: str, tmp_path: Path) -> None:
    """But for a bit of a number, where a format has no checksum of it."""
    whole, given = FORMATS / name, SETS.get(name, {})
    if name == "log.npz":
        whole = log(tmp_path / name)
    elif name == "replay":
        whole = RUN / "replay"
    elif name == "ours":
        npz.write(whole := tmp_path / "ours.npz", read("minari-hdf5/point/goals-v0"))
    elif name == "ours-v0":
        minari.write(whole := tmp_path / name, read("minari-hdf5/point/goals-v0"))
    data, rng = formats.read(whole, **given), np.random.default_rng(0)
    (to := tmp_path / "to").mkdir()
    for _ in range(30):
        path, why = damaged(whole, to, rng), ""
        try:
            found = formats.read(path, **given)
        except ValueError as error:
            why = str(error)
        if why:
            assert path.name in why
            continue
        assert (found.episodes["length"] == data.episodes["length"]).all()
        assert found.sha256 == data.sha256 if name in SEALED else differing(data, found) < 20
