"""A run's directory: manifest first, a line of metrics a phase, evaluations, the bar, the curve."""

import calendar
import fcntl
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from rl import checkpoint, manifest
from rl.tensorboard import Board
from rl.types import Params

ROWS = "metrics.jsonl", "evals.jsonl"


class Record:
    """Writes a run to `out`, or to `out`-2, -3, ... where a run lies already.

    A context manager: whatever ends the run early is left in its manifest.
    """

    def __init__(self, out: Path, steps: int, **facts: Any) -> None:
        self._open(_free(out), manifest.facts() | {"steps": steps} | facts)

    @classmethod
    def again(cls, out: Path) -> Self:
        """Go on with the run in `out`; `rewind` then drops what its checkpoint does not know."""
        self, found, now = cls.__new__(cls), read_manifest(out), manifest.facts()
        tries = [*found.get("resumed", []), {"at": now["started"], "git": now["git"]}]
        self._open(out, found | {"status": "running", "resumed": tries})
        return self

    def _open(self, out: Path, facts: dict[str, Any]) -> None:
        self.out, self.begun, self.lapped = out, time.perf_counter(), time.perf_counter()
        self._lock = _locked(out)
        self.shown: float | list[float] | None = None  # the last return there was
        self.judged: np.ndarray | None = None  # the last evaluation, of each seed
        self.told = 0.0  # share of the run last told of
        self.failed = 0.0  # worlds that the simulation gave up so far
        self.last: tuple[int, float] | None = None  # step and wall time of the last line
        self.manifest: dict[str, Any] = {}
        self.update(**facts)
        self.board = self._board()

    def _board(self) -> Board:
        started = calendar.timegm(time.strptime(self.manifest["started"], "%Y-%m-%dT%H:%M:%SZ"))
        return Board(self.out / "tb", self.manifest.get("seeds", [0]), started)

    def rewind(self, step: int) -> None:
        """Forget every row after `step`: the run goes on from there and writes them again."""
        if tries := self.manifest.get("resumed"):
            tries[-1]["step"] = max(step, 0)
            self.update()
        kept = {name: [x for x in read_rows(self.out / name) if x["step"] <= step] for name in ROWS}
        for name, rows in kept.items():
            partial = self.out / f"{name}.partial"
            partial.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(partial, self.out / name)
        every = sorted((row for rows in kept.values() for row in rows), key=lambda x: x["wall_s"])
        self.begun -= every[-1]["wall_s"] if every else 0
        self.board = self._board()
        for row in every:
            self.board.show(row)
            self.shown = row.get("episode_return", self.shown)
            self.judged = row.get("eval_return", self.judged)
        self.board.flush()

    def __enter__(self) -> Self:
        print(f"run      {self.out}", flush=True)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if error is not None and self.manifest["status"] == "running":
            why = "stopped by Ctrl-C" if kind is KeyboardInterrupt else f"failed: {error}"
            self.update(status=why.splitlines()[0])
        os.close(self._lock)
        if kind is KeyboardInterrupt:
            print(f"\nstopped; what there is of the run is in {self.out}", file=sys.stderr)

    def update(self, **facts: Any) -> None:
        """Put `facts` into the manifest, atomically."""
        self.manifest |= {name: manifest.plain(fact) for name, fact in facts.items()}
        partial = self.out / "manifest.partial"
        partial.write_text(json.dumps(self.manifest, indent=2) + "\n")
        os.replace(partial, self.out / "manifest.json")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line and move the bar; a value per seed is a list, what is NaN is left out."""
        row = self._append("metrics.jsonl", step, metrics)
        self.shown = row.get("episode_return", self.shown)
        self.failed += float(np.sum(row.get("failed", 0)))
        self._bar(step, row["wall_s"])
        self.last = step, row["wall_s"]

    def evaluated(self, step: int, returns: np.ndarray, lengths: np.ndarray) -> None:
        """Append an evaluation: every episode [seeds, episodes], and the means."""
        means = {"eval_return": returns.mean(1), "eval_length": lengths.mean(1)}
        self.judged = means["eval_return"]
        self._append("evals.jsonl", step, means | {"returns": returns, "lengths": lengths})

    def lap(self) -> float:
        """Seconds since the last call, or since the record was opened."""
        before, self.lapped = self.lapped, time.perf_counter()
        return round(self.lapped - before, 2)

    @property
    def score(self) -> float:
        """What the run is worth now: its last evaluation, or before that its last episodes."""
        return float(np.mean(self.judged if self.judged is not None else self.shown or -np.inf))

    def warn(self, what: str) -> None:
        """Say `what` aloud and in the manifest; the run goes on."""
        print(f"\nwarning: {what}", file=sys.stderr, flush=True)
        self.update(warnings=[*self.manifest.get("warnings", []), what])

    def _append(self, name: str, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"step": step, "wall_s": round(time.perf_counter() - self.begun, 3)}
        for key, value in values.items():
            value = np.asarray(value, np.float64)
            if np.isfinite(value).all():
                row[key] = value.item() if value.size == 1 else value.tolist()
        with (self.out / name).open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.board.show(row)
        self.board.flush()
        return row

    def save(self, params: Params) -> None:
        """Write each seed's policy (leaves [seeds, ...]) in the place of an earlier one."""
        for i, seed in enumerate(self.manifest["seeds"]):
            mine = jax.tree.map(lambda x, i=i: x[i], params)
            checkpoint.save_params(self.out / f"policy-{seed}.safetensors", mine)

    def _bar(self, step: int, wall: float) -> None:
        share = min(step / self.manifest["steps"], 1)
        shown = f"{'-':>8}" if self.shown is None else f"{np.mean(self.shown):8.1f}"
        # The first line's time is mostly compiling.
        rate = f"{(step - self.last[0]) / (wall - self.last[1]):,.0f}" if self.last else "-"
        line = (
            f"[{'#' * round(24 * share):24}] {share:4.0%}  {step:,} steps  return {shown}  "
            f"{rate:>7} steps/s  {wall:.0f} s"
        ) + (f"  {self.failed:,.0f} worlds FAILED" if self.failed else "")
        if sys.stdout.isatty():
            print(f"\r{line}\x1b[K", end="" if share < 1 else "\n", flush=True)
        elif int(10 * share) > int(10 * self.told):  # a log file wants ten lines, not a film
            print(line, flush=True)
            self.told = share


def not_finite(metrics: Mapping[str, Any], params: Params) -> str:
    """The first loss, or "a parameter", that is NaN or infinite; empty if none is."""
    for name, value in metrics.items():
        if name.endswith("loss") and not np.isfinite(value).all():
            return name
    return "" if all(np.isfinite(x).all() for x in jax.tree.leaves(params)) else "a parameter"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines, if there is one; a last line cut off by a kill left out."""
    lines = path.read_text().split("\n") if path.exists() else [""]
    return [json.loads(line) for line in lines[:-1]]


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl."""
    return read_rows(out / "metrics.jsonl")


def read_manifest(run: Path) -> dict[str, Any]:
    """The manifest of a run, of this schema or an older one."""
    where = run / "manifest.json"
    if not where.is_file():
        raise ValueError(f"{run} is no run: it has no manifest.json.")
    try:
        found = json.loads(where.read_text())
    except ValueError as error:  # of JSON or of UTF-8
        raise ValueError(f"{where} is damaged: {error}.") from error
    if not isinstance(found, dict) or found.get("schema", 0) > manifest.SCHEMA:
        raise ValueError(f"{where} was written by a newer version of this package.")
    return found


def curve(out: Path, title: str, value: str = "episode_return") -> Path:
    """Draw `value` against steps, one line a seed, to curve.png."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    rows = [row for row in read_metrics(out) if value in row]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    if rows:
        values = np.array([np.atleast_1d(row[value]) for row in rows])
        axes.plot([row["step"] for row in rows], values, alpha=0.8)
    axes.set(title=title, xlabel="environment steps", ylabel=value.replace("_", " "))
    axes.grid(alpha=0.3)
    figure.savefig(out / "curve.png", dpi=120)
    return out / "curve.png"


def _free(out: Path) -> Path:
    """`out`, made, or the first numbered sibling no run lies in."""
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


def _locked(out: Path) -> int:
    """The run's lock, an open file: the system frees it however this process ends."""
    file = os.open(out / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(file, 20, 0).decode()
        os.close(file)
        raise ValueError(f"{out} is in use by process {owner}.") from error
    os.ftruncate(file, 0)
    os.pwrite(file, str(os.getpid()).encode(), 0)
    return file
