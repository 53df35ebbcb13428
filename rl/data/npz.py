"""Datasets as files of ours: an uncompressed .npz, with "facts" as JSON and a hash of the rest.

It is mapped into memory, so it may be larger than that; nothing in it is ever unpickled.
"""

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rl.data import dataset
from rl.data.dataset import Dataset

SCHEMA = 2  # 1 has a next observation for each step, and no mask
FACTS, HASH = "facts", "sha256"


class Unread(ValueError):
    """Why an array is not read, though it is whole."""


def refuse_taken(path: Path) -> None:
    if path.exists():
        raise ValueError(f"{path} is there already: name another file to write.")


def require_writable(out: Path) -> None:
    """Raise ValueError unless --out is a new file that can be written; its folder is made."""
    if out.suffix != ".npz":
        raise ValueError(f"--out is {out}; it takes a file that ends in .npz.")
    refuse_taken(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise ValueError(
            f"{out} cannot be written: {error.strerror}. Name a file in another folder with --out."
        ) from None


def write(path: Path, data: Dataset) -> str:
    """Write a file that is not there yet, whole or not at all; its hash."""
    refuse_taken(path)
    dataset.check(str(path), data)
    path.parent.mkdir(parents=True, exist_ok=True)
    sha256, partial = data.sha256, path.with_name(f"{path.name}.partial")
    facts = {FACTS: np.array(json.dumps(data.facts | {"schema": SCHEMA, HASH: sha256}))}
    arrays: dict[str, Any] = data.steps | dataset.prefixed(data.episodes) | facts
    try:
        with partial.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return sha256


def read(path: Path) -> Dataset:
    """The dataset in a file; ValueError says what is wrong with it."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder: python -m rl.data convert makes a file of it.")
    if not path.is_file():
        raise ValueError(
            f"{path} is no dataset: there is no such file. python -m experiments.make_data writes "
            "one, and python -m rl.data convert makes one of others."
        )
    if not zipfile.is_zipfile(path) and path.suffix != ".npz":
        raise ValueError(f"{path} is no .npz: python -m rl.data convert {path} OUT.npz makes one.")
    try:
        arrays: dict[str, np.ndarray] = mapped(path)
        facts = json.loads(arrays.pop(FACTS).item())
        if not isinstance(facts, dict):
            raise Unread("its facts are no table")
    except Exception as error:  # whatever a damaged file makes of its readers
        why = f" ({error})" if isinstance(error, Unread) else ""
        raise ValueError(
            f"{path} is damaged, or no dataset of ours{why}: make it again, or read another format "
            "with python -m rl.data convert."
        ) from None
    if HASH not in facts:
        raise ValueError(
            f"{path} is no dataset of ours: its facts have no {HASH} of what it holds."
        )
    if facts.get("schema", 1) > SCHEMA:
        raise ValueError(f"{path} was written by a newer version of this package.")
    cut = len(dataset.EPISODE)
    episodes = {n[cut:]: x for n, x in arrays.items() if n.startswith(dataset.EPISODE)}
    steps = {n: x for n, x in arrays.items() if not n.startswith(dataset.EPISODE)}
    found = Dataset(steps, episodes, facts)
    if facts[HASH] != found.sha256:
        raise ValueError(f"{path} is damaged: it does not hold what its hash is of. Make it again.")
    if facts.get("schema", 1) < 2:
        found = dataset.compact(steps, episodes, facts, str(path))
    dataset.check(str(path), found)
    return found


def mapped(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an uncompressed .npz, read as they are used."""
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        return {info.filename.removesuffix(".npy"): _member(file, path, info)
                for info in archive.infolist()}  # fmt: skip


def _member(file: BinaryIO, path: Path, info: zipfile.ZipInfo) -> np.ndarray:
    if info.compress_type != zipfile.ZIP_STORED:
        raise Unread("it is compressed")
    file.seek(info.header_offset + 26)  # of zip's local header, after which come its two texts
    texts = np.frombuffer(file.read(4), "<u2")
    file.seek(info.header_offset + 30 + int(texts.sum()))
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    else:
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    if dtype.hasobject:
        raise Unread("it has pickled objects")
    if not np.prod(shape, dtype=int):
        return np.zeros(shape, dtype)
    order = "F" if fortran else "C"
    return np.memmap(path, dtype, "r", file.tell(), shape, order)
