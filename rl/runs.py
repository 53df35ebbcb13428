"""A run's directory: finding a free one, holding it, writing a file, and reading what is there."""

import fcntl
import hashlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np

from rl import manifest

ROWS: tuple[str, ...] = ("metrics.jsonl", "evals.jsonl")


class Taken(ValueError):
    """Another process holds what was to be locked."""


def write(path: Path, content: bytes) -> None:
    """The file `path` whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError:  # as of a full disk, on which it should not lie
        partial.unlink(missing_ok=True)
        raise


def run_of(path: Path) -> Path:
    """RUN, of itself or of RUN/checkpoints/STEP."""
    return path.parent.parent if path.parent.name == "checkpoints" else path


def step_of(resume: Path) -> int | None:
    """The step of RUN/checkpoints/STEP; None of a RUN."""
    if resume.parent.name != "checkpoints":
        return None
    if not resume.name.isdigit():
        raise ValueError(f"{resume} is no checkpoint: their names are numbers of steps.")
    return int(resume.name)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, if there is one; a last line cut off by a kill left out."""
    rows, lines = [], path.read_bytes().split(b"\n") if path.exists() else [b""]
    for number, line in enumerate(lines[:-1], 1):
        try:
            rows.append(json.loads(line))
        except ValueError as error:  # of JSON or of UTF-8
            raise ValueError(
                f"Line {number} of {path} is damaged: delete it to go on without."
            ) from error
    return rows


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    return read_rows(out / "metrics.jsonl")


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest of a run, of this schema or an older one."""
    where = run / "manifest.json"
    if not run.exists():
        raise ValueError(f"{run} is no run: there is no such directory.")
    if not where.is_file():
        raise ValueError(f"{run} is no run: it has no manifest.json.")
    try:
        found = json.loads(where.read_text())
    except ValueError as error:  # of JSON or of UTF-8
        raise ValueError(f"{where} is damaged: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{where} is damaged: it holds no facts.")
    if found.get("schema", 0) > manifest.SCHEMA:
        raise ValueError(f"{where} was written by a newer version of this package.")
    return found


def seal(run: Path, facts: dict[str, Any]) -> str:
    """The hash of what a run tells: `facts`, its manifest, and its rows."""
    told = {name: fact for name, fact in facts.items() if name != "seal"}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode())
    for name in ROWS:
        digest.update((run / name).read_bytes() if (run / name).exists() else b"")
    return digest.hexdigest()


def finished(facts: dict[str, Any]) -> bool:
    """Whether a run with this manifest has come to its end, as schemas have it."""
    ended = {"eval_returns", "seal"} if facts.get("schema", 0) > 2 else {"eval_returns"}
    return facts.get("status") == "done" and ended <= facts.keys()


def curve(out: Path, title: str, value: str = "episode_return") -> Path:
    """Draw `value` against steps, one line a seed, to curve.png."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    rows = [row for row in read_metrics(out) if value in row]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    if rows:
        values = np.array([np.atleast_1d(row[value]) for row in rows])
        axes.plot(
            [row["step"] for row in rows], values, alpha=0.8, marker="." if len(rows) < 20 else ""
        )
    axes.set(title=title, xlabel="environment steps", ylabel=value.replace("_", " "))
    axes.grid(alpha=0.3)
    figure.savefig(out / "curve.png", dpi=120)
    return out / "curve.png"


def free(out: Path) -> Path:
    """`out`, made, or the first numbered sibling no run lies in."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: give --out a directory.")
    for number in range(1, 10_000):
        path = out if number == 1 else out.with_name(f"{out.name}-{number}")
        try:
            path.mkdir(parents=True, exist_ok=path == out and not any(out.glob("*")))
        except FileExistsError:
            continue
        except OSError as error:
            raise ValueError(f"The run cannot be written to {path}: {error.strerror}.") from error
        return path
    raise ValueError(f"There are 10,000 runs named {out} already; give another --out.")


def locked(path: Path) -> int:
    """An open file that is ours alone: the system frees it however this process ends."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(file, 200, 0).decode()
        os.close(file)
        raise Taken(f"{path.parent} is in use by process {owner}.") from error
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()} on {socket.gethostname()}".encode(), 0)
    return file
