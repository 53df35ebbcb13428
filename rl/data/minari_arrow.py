"""Minari's episodes as files of Arrow or Parquet: T + 1 rows each, the last one padded."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rl.data import canonical
from rl.data.canonical import Refused
from rl.data.minari_hdf5 import FIELDS
from rl.data.minari_spaces import Part


def episodes(
    root: Path, form: str, seen: list[Part], action: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Raw, in the order of their numbers."""
    numbers = sorted(int(p.name) for p in root.iterdir() if p.is_dir() and p.name.isdigit())
    if numbers != list(range(len(numbers))):
        raise Refused(f"{root} has episodes {numbers}: one is missing.")
    for number in numbers:
        below = root / str(number)
        about = canonical.parsed(below / "metadata.json", "Minari")
        files = sorted(below.glob(f"part-*.{form}"), key=lambda p: (len(p.name), p.name))
        if not files:
            raise Refused(f"{below} has no part-0.{form}: is the data set whole?")
        table = _table(files, form)
        where = str(files[0])
        if wrong := {"observations", "actions", *FIELDS} ^ (set(table.column_names) - {"infos"}):
            how = "lacks" if min(wrong) not in table.column_names else "has an odd"
            raise Refused(f"{where} {how} {min(wrong)} in episode {number}.")
        with canonical.damage(files[0], f"{form} of Minari"):
            yield {
                "where": where,
                "about": about,
                "obs": {part.name: _part(table["observations"], part) for part in seen},
                "infos": _infos(table),
                "actions": numbers_of(table["actions"])[:-1].reshape(-1, *action["shape"]),
                **{name: numbers_of(table[name])[:-1] for name in FIELDS},
            }


def _table(files: list[Path], form: str) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise canonical.needs(f"Minari's {form}", "pyarrow") from None
    tables = []
    for path in files:
        with canonical.damage(path, f"{form} of Minari"):
            if form == "parquet":
                table = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True).read()
            else:
                with pyarrow.ipc.open_file(path) as file:
                    table = file.read_all()
            table.validate(full=True)
            tables.append(table)
    with canonical.damage(files[0], f"{form} of Minari"):
        return pyarrow.concat_tables(tables)


def _part(observations: Any, part: Part) -> np.ndarray:
    found = observations.combine_chunks()
    for key in part.path:
        found = found.field(key)
    if part.encoded:
        return canonical.decoded(one.as_py() for one in found)
    x = numbers_of(found)
    return x.reshape(len(x), *part.shape)


def _infos(table: Any) -> dict[str, Any]:
    """Infos that are numbers, or lists of them, by name; others without their value."""
    found: dict[str, Any] = {}

    def walk(name: str, array: Any) -> None:
        if array.type.num_fields and hasattr(array, "field"):
            for field in array.type:
                walk(f"{name}/{field.name}", array.field(field.name))
        else:
            found[name] = np.asarray(array.to_pylist() if name == "infos/success" else [])

    if "infos" in table.column_names:
        walk("infos", table["infos"].combine_chunks())
    return found


def numbers_of(column: Any) -> np.ndarray:
    """A column of numbers [R], or of lists of one size [R, size], as an array."""
    array = column.combine_chunks() if hasattr(column, "combine_chunks") else column
    size = 0
    while hasattr(array.type, "value_type"):
        if array.null_count:
            raise ValueError("it has empty rows")
        flat = array.flatten()
        size = size or len(flat) // max(len(array), 1)
        if len(flat) != len(column) * size:
            raise ValueError("it has rows of several sizes")
        array = flat
    if array.null_count:
        raise ValueError("it has empty rows")
    x = array.to_numpy(zero_copy_only=False)
    return x.reshape(len(column), -1) if size else x
