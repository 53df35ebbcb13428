"""Writes LeRobot's folders, v3.0 (Hugging Face, 2025), with no library of its own.

The layout is what LeRobot 0.4.4 writes, and reads: rows of steps in one Parquet file, a table of
episodes with their statistics, tasks in words, and facts as JSON.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.data.canonical import Refused

QUANTILES = 0.01, 0.1, 0.5, 0.9, 0.99
FILE = "chunk-000/file-000.parquet"
PATHS = {
    "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
    "video_path": None,
}


class Feature(NamedTuple):
    values: np.ndarray  # [R] or [R, n]
    names: list[str] | None = None  # of the n


def write(
    path: Path, features: dict[str, Feature], lengths: np.ndarray, hz: float, robot: str, task: str
) -> None:
    """A folder that is not there yet, whole or not at all: rows [R] of episodes of `lengths`."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise Refused("LeRobot needs pyarrow: pip install 'robotrl[data]'") from None
    if abs(hz - (fps := round(hz))) > 1e-6:
        raise Refused(f"LeRobot counts whole frames a second, and this robot is at {hz:g} Hz.")
    if path.exists():
        raise Refused(f"{path} is there already: name another folder.")
    every = features | _indices(lengths, fps)
    partial = path.with_name(f"{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        (partial / "meta").mkdir(parents=True)
        _write_data(partial / "data" / FILE, every, lengths)
        _write_episodes(partial / "meta/episodes" / FILE, every, lengths, task)
        _write_tasks(partial / "meta/tasks.parquet", task)
        whole = {name: _stats(x.values) for name, x in every.items()}
        _write_json(partial / "meta/stats.json", whole)
        _write_json(partial / "meta/info.json", _info(every, lengths, fps, robot))
        os.replace(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _indices(lengths: np.ndarray, fps: int) -> dict[str, Feature]:
    """What LeRobot itself adds to each row; its times are those of frames, and of no clock."""
    count, starts = int(lengths.sum()), np.cumsum(lengths) - lengths
    frame = np.arange(count) - np.repeat(starts, lengths)
    return {
        "timestamp": Feature((frame / fps).astype(np.float32)),
        "frame_index": Feature(frame),
        "episode_index": Feature(np.repeat(np.arange(len(lengths)), lengths)),
        "index": Feature(np.arange(count)),
        "task_index": Feature(np.zeros(count, np.int64)),
    }


def _write_data(path: Path, features: dict[str, Feature], lengths: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {}
    for name, (x, _) in features.items():
        flat = pa.array(np.ascontiguousarray(x).ravel())
        alone = x[:1].size == 1  # which LeRobot keeps as a number
        columns[name] = flat if alone else pa.FixedSizeListArray.from_arrays(flat, x.shape[1])
    table = pa.table(columns)
    path.parent.mkdir(parents=True)
    with pq.ParquetWriter(path, table.schema, write_page_checksum=True) as writer:
        for end, length in zip(np.cumsum(lengths), lengths, strict=True):
            writer.write_table(table.slice(end - length, length))


def _write_episodes(
    path: Path, features: dict[str, Feature], lengths: np.ndarray, task: str
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = []
    for number, (end, length) in enumerate(zip(np.cumsum(lengths), lengths, strict=True)):
        row: dict[str, Any] = {
            "episode_index": number, "tasks": [task], "length": int(length),
            "data/chunk_index": 0, "data/file_index": 0,
            "dataset_from_index": int(end - length), "dataset_to_index": int(end),
        }  # fmt: skip
        for name, x in features.items():
            stats = _stats(x.values[end - length : end])
            row |= {f"stats/{name}/{what}": value for what, value in stats.items()}
        found.append(row | {"meta/episodes/chunk_index": 0, "meta/episodes/file_index": 0})
    path.parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(found), path, write_page_checksum=True)


def _write_tasks(path: Path, task: str) -> None:
    """A table that pandas reads with its texts as the index."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    column = {"pandas_type": "int64", "numpy_type": "int64", "metadata": None}
    index = {"pandas_type": "unicode", "numpy_type": "object", "metadata": None}
    about = {
        "index_columns": ["task"],
        "column_indexes": [],
        "columns": [
            {"name": "task_index", "field_name": "task_index", **column},
            {"name": "task", "field_name": "task", **index},
        ],
        "pandas_version": "2.0",
    }
    table = pa.table({"task_index": pa.array([0]), "task": pa.array([task])})
    pq.write_table(table.replace_schema_metadata({"pandas": json.dumps(about)}), path,
                   write_page_checksum=True)  # fmt: skip


def _stats(x: np.ndarray) -> dict[str, list[Any]]:
    """Of rows [R, n], of each number; what a flag's mean tells is its share."""
    tall = x[:, None] if x.ndim == 1 else x
    numbers = tall.astype(np.float64)
    found = {"min": tall.min(0), "max": tall.max(0), "mean": numbers.mean(0), "std": numbers.std(0)}
    found["count"] = np.array([len(x)])
    for share, value in zip(QUANTILES, np.quantile(numbers, QUANTILES, axis=0), strict=True):
        found[f"q{round(100 * share):02}"] = value
    return {name: value.tolist() for name, value in found.items()}


def _info(
    features: dict[str, Feature], lengths: np.ndarray, fps: int, robot: str
) -> dict[str, Any]:
    return {
        "codebase_version": "v3.0", "robot_type": robot,
        "total_episodes": len(lengths), "total_frames": int(lengths.sum()), "total_tasks": 1,
        "chunks_size": 1000, "data_files_size_in_mb": 100, "video_files_size_in_mb": 200,
        "fps": fps, "splits": {"train": f"0:{len(lengths)}"}, **PATHS,
        "features": {
            name: {"dtype": x.dtype.name, "shape": [*x.shape[1:]] or [1], "names": names}
            for name, (x, names) in features.items()
        },
    }  # fmt: skip


def _write_json(path: Path, facts: dict[str, Any]) -> None:
    path.write_text(json.dumps(facts, indent=4), "utf-8")
