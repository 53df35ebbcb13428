"""The data sets of other formats among the fixtures, and ways of breaking a copy of one."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from rl.data import formats
from rl.data.dataset import Dataset

Change = Callable[[Any], Any]  # of what is open, in place
Broken = Callable[[Path], Path]  # makes a broken copy in a folder
MAIN, ABOUT = "data/main_data.hdf5", "data/metadata.json"
FORMATS = Path(__file__).parent / "fixtures" / "formats"
RUN = FORMATS.parent / "run-3"
MINARI = ("minari-hdf5", "minari-arrow", "minari-parquet")
CUBE = {"goal": (0.5, 0.0, 0.02), "at": slice(14, 17), "tolerance": 0.04}
MAZE = {"goal": (20.0, 20.0), "at": slice(0, 2), "tolerance": 1.0}
SETS: dict[str, dict[str, Any]] = {  # and what their readers need to be told
    **{f"{form}/{name}": {} for form in MINARI for name in ("car/mixed-v0", "point/goals-v0")},
    "d4rl/timeouts.hdf5": {},
    "d4rl/old.hdf5": {"horizon": 15},
    "ogbench/cube-single-play-v0.npz": CUBE,
    "ogbench/pointmaze-medium-navigate-v0.npz": MAZE,
    "lerobot/point": {},
    "rlds/point.npz": {},
}
POINTS = {name: given for name, given in SETS.items() if "car" not in name and "ogb" not in name}


def expected(name: str) -> dict[str, Any]:
    form, _, inner = name.partition("/")
    told = json.loads((FORMATS / form / "expected.json").read_text())
    return told["written"] if form == "d4rl" else told["read"][inner]


def read(name: str, **given: Any) -> Dataset:
    return formats.read(FORMATS / name, **(SETS[name] | given))


def copied(name: str, to: Path) -> Path:
    """A copy of a fixture, to break."""
    source, target = FORMATS / name, to / Path(name).name
    shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return target


def rewritten(name: str, to: Path, change: Change) -> Path:
    """A copy of an .npz with its arrays changed in place."""
    path = copied(name, to)
    with np.load(path) as file:
        arrays = dict(file)
    change(arrays)
    np.savez(path, allow_pickle=True, **arrays)
    return path


def hdf5(name: str, to: Path, change: Change, file: str = "") -> Path:
    """A copy of a data set with its HDF5 file changed in place."""
    import h5py

    path = copied(name, to)
    with h5py.File(path / file if file else path, "r+") as opened:
        change(opened)
    return path


def put(group: Any, name: str, x: Any) -> None:
    """Have `x` at `name`, whatever was there."""
    del group[name]
    group[name] = x


def parquet(name: str, to: Path, file: str, change: Change) -> Path:
    """A copy of a data set with the columns of a Parquet file changed in place."""
    import pyarrow
    import pyarrow.parquet

    path = copied(name, to)
    table = pyarrow.parquet.read_table(path / file)
    columns = table.to_pydict()
    change(columns)
    schema = pyarrow.schema([f for f in table.schema if f.name in columns])
    found = pyarrow.table({n: columns[n] for n in schema.names}, schema=schema)
    pyarrow.parquet.write_table(found, path / file)
    return path


def told(path: Path, file: str, **change: Any) -> Path:
    """`path`, with the JSON in a file below it changed."""
    found = json.loads((path / file).read_text())
    (path / file).write_text(json.dumps(found | change))
    return path


def log(path: Path, **change: Any) -> Path:
    """A log of the bridge: two episodes of 5 and 4 rows, of a robot of two joints."""
    rng, count = np.random.default_rng(0), 9
    rows = {
        "qpos": rng.normal(size=(count, 2)), "qvel": rng.normal(size=(count, 2)),
        "torque": rng.normal(size=(count, 2)), "contact": np.zeros((count, 3)),
        "targets": rng.normal(size=(count, 2)), "command": np.zeros((count, 0)),
        "time": np.array([1, 2, 3, 4, 5, 1, 2, 3, 4]) * 0.02, "damped": np.zeros(count, bool),
        "episode": np.array([0] * 5 + [1] * 4), "silent": np.zeros(count),
    }  # fmt: skip
    np.savez_compressed(path, **(rows | change))
    return path


def h5(change: Change, name: str = "minari-hdf5/point/goals-v0") -> Broken:
    return lambda to: hdf5(name, to, change, MAIN)


def d4(change: Change) -> Broken:
    return lambda to: hdf5("d4rl/timeouts.hdf5", to, change)


def pq(name: str, file: str, change: Change) -> Broken:
    return lambda to: parquet(name, to, file, change)


def zipped(name: str, change: Change) -> Broken:
    return lambda to: rewritten(name, to, change)


def about(name: str, file: str, **change: Any) -> Broken:
    return lambda to: told(copied(name, to), file, **change)


def cell(x: Any, at: Any, value: Any) -> Any:
    x = np.array(x)
    x[at] = value
    return x


def set_cell(group: Any, name: str, at: Any, value: Any) -> None:
    put(group, name, cell(group[name][()], at, value))


def listed(columns: dict[str, Any], name: str, row: int, value: Any) -> None:
    columns[name][row] = value


def without(name: str, file: str) -> Broken:
    def broken(to: Path) -> Path:
        path = copied(name, to)
        shutil.rmtree(path / file) if (path / file).is_dir() else (path / file).unlink()
        return path

    return broken


def cut(name: str, file: str, to: Path) -> Path:
    """A copy with the last bytes of a file gone."""
    path = copied(name, to)
    where = path / file if file else path
    where.write_bytes(where.read_bytes()[:-40])
    return path
