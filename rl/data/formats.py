"""Datasets of any format, which a file or folder itself tells.

Ours, and what we write for Minari, are under a hash, and every .npz under checksums.  In HDF5,
Arrow and Parquet of others a flipped bit of a number is another number, and nobody can tell.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl.data import archive, d4rl, lerobot, logs, minari, minari_hdf5, npz, ogbench, rlds
from rl.data.canonical import Refused
from rl.data.dataset import Dataset

HDF5 = b"\x89HDF\r\n\x1a\n"
READ = (
    "our own .npz, Minari's, LeRobot's (v3) and a run's folders, D4RL's HDF5, OGBench's .npz, RLDS "
    "as .npz, and the bridge's logs"
)


def read(path: Path, **given: Any) -> Dataset:
    """The dataset at `path`; `given`: what its reader needs to be told."""
    if not path.exists():
        raise Refused(f"{path} is no dataset: there is no such file or folder.")
    found = reader(path)
    takes = inspect.signature(found).parameters.keys() - {"path"}
    if odd := given.keys() - takes:
        said = "--low and --high" if "limits" in odd else f"--{min(odd)}"
        raise Refused(f"{path} is of a format ({name_of(found)}) that takes no {said}.")
    return found(path, **given)


def name_of(reader: Callable[..., Dataset]) -> str:
    return "ours" if reader is ours else reader.__module__.rpartition(".")[2]


def reader(path: Path) -> Callable[..., Dataset]:
    """Which reader is for what is there."""
    if path.is_dir():
        return _of_folder(path)
    names = archive.names(path)
    if npz.FACTS in names:
        return ours
    if {"is_first", "is_last"} <= names:
        return rlds.read
    if {"targets", "episode"} <= names:
        return logs.read_log
    if {"observations", "terminals"} <= names:
        return ogbench.read
    with path.open("rb") as file:
        if file.read(len(HDF5)) == HDF5:
            return _of_main if path.name == minari_hdf5.MAIN else d4rl.read
    if path.suffix == ".npz" and not names:
        return ours  # which says what is wrong with it
    holds = f" It holds {', '.join(sorted(names)[:8])}." if names else ""
    raise Refused(f"{path} is of no format that is read, which are {READ}.{holds}")


def ours(path: Path) -> Dataset:
    """The dataset in a file of ours, whatever its damage does to numpy."""
    try:
        return npz.read(path)
    except ValueError:
        raise
    except Exception as error:  # of a header: a tokenizer's, say
        raise Refused(f"{path} is damaged, or no dataset of ours: make it again.") from error


def _of_folder(path: Path) -> Callable[..., Dataset]:
    if (path / minari.ABOUT).is_file() or (path / "data" / minari.ABOUT).is_file():
        return minari.read
    if (path / "meta/info.json").is_file():
        return lerobot.read
    if (path / "replay").is_dir() or any(path.glob("rows-*.safetensors")):
        return logs.read_replay
    if (path / "manifest.json").is_file():
        raise Refused(
            f"{path} is a run that has kept no replay: what learns from its own acting (sac, td3, "
            "crossq) keeps one with its first checkpoint, offline learning has the file of --data."
        )
    if any(path.rglob("*.tfrecord*")):
        raise Refused(
            f"{path} has TensorFlow's records, which are not read: save its steps as an .npz, as "
            "rl/data/rlds.py says."
        )
    raise Refused(f"{path} is of no format that is read, which are {READ}.")


def _of_main(path: Path, **given: Any) -> Dataset:
    return minari.read(path.parent, **given)
