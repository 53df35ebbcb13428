"""Others' .npz, read whole: each member against its checksum, nothing ever unpickled."""

import io
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rl.data import canonical
from rl.data.canonical import Refused


def names(path: Path) -> set[str]:
    """What is in an .npz, or nothing where it is none."""
    try:
        with zipfile.ZipFile(path) as file:
            return {name.removesuffix(".npy") for name in file.namelist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return set()


def read(
    path: Path, what: str, wanted: Iterable[str], others: Iterable[str] | None = ()
) -> dict[str, np.ndarray]:
    """The arrays that are `wanted`, and of the `others` those there are (None: all)."""
    with canonical.damage(path, f".npz of {what}"), zipfile.ZipFile(path) as file:
        there = [name.removesuffix(".npy") for name in file.namelist()]
        if missing := [name for name in wanted if name not in there]:
            raise Refused(f"{path} has no {missing[0]}, which {what} has.")
        odd = set() if others is None else set(there) - {*wanted, *others}
        if odd or len(set(there)) < len(there):
            name = sorted(odd)[0] if odd else "a name twice"
            raise Refused(f"{path} has {name}, which {what} has not: is it of another format?")
        return {name: _array(file.read(f"{name}.npy")) for name in there}


def _array(content: bytes) -> np.ndarray:
    stream = io.BytesIO(content)  # numpy alone would not look at all of it, nor at its checksum
    array = np.lib.format.read_array(stream, allow_pickle=False)
    if stream.read(1):
        raise ValueError("there is more in it than its header says")
    return array
