"""A run's directory as it is written: manifest, rows, evaluations, policies; and the bar."""

import calendar
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import jax
import numpy as np

from rl import checkpoint, manifest, runs
from rl.boards import Board, Tracker, service, table
from rl.types import Params


class Record:
    """Writes a run to `out`, or to `out`-2, -3, ... where a run lies already.

    A context manager: whatever ends the run early is left in its manifest.  What cannot be
    written, as to a full disk, is told, and held or given up; with `strict` it ends the run.
    """

    def __init__(
        self, out: Path, steps: int, *, track: str = "", strict: bool = False, **facts: Any
    ) -> None:
        known = {"seeds": [0], "train_s": 0.0, "evaluate_s": 0.0, "save_s": 0.0, "compile_s": 0.0}
        facts = manifest.facts() | {"steps": steps} | known | facts
        facts["config_sha256"] = manifest.identity(manifest.plain(facts.get("config", {})))
        tracked = service(track) if track else None  # refused before anything is made
        self._open(runs.free(out), facts, tracked, strict)

    @classmethod
    def again(cls, out: Path, *, track: str = "", strict: bool = False) -> Self:
        """Go on with the run in `out`; `rewind` then drops what its checkpoint does not know."""
        self, found, now = cls.__new__(cls), runs.read_manifest(out), manifest.facts()
        attempt = {"at": now["started"], "git": now["git"], "was": found.get("status")}
        tries = [*found.get("resumed", []), attempt]
        tracked = service(track) if track else None
        facts = {name: fact for name, fact in found.items() if name not in manifest.AT_THE_END}
        facts |= {"status": "running", "ended": None, "resumed": tries}
        self._open(out, facts, tracked, strict)
        self.before = found  # until the run goes on: a refusal leaves it as it was
        return self

    def _open(self, out: Path, facts: dict[str, Any], track: Any, strict: bool) -> None:
        self.out, self.strict, self.before = out, strict, {}
        self.begun = self.lapped = time.perf_counter()
        self.tracked = {n: [x["step"] for x in runs.read_rows(out / n)][-1:] for n in runs.ROWS}
        self._lock = runs.locked(out / "lock")
        self.shown: float | list[float] | None = None  # the last return there was
        self.judged: np.ndarray | None = None  # the last evaluation, of each seed
        self.told = 0.0  # share of the run last told of
        self.failed = 0.0  # worlds that the simulation gave up so far
        self.last: tuple[int, float] | None = None  # step and wall time of the last line
        self.held = dict.fromkeys(runs.ROWS, "")  # lines that could not be written yet
        self.warned: list[str] = []
        self.manifest: dict[str, Any] = {}
        self.update(**facts)
        self.board: Board | None = self._board()
        self.tracker = None
        if track:
            try:
                self.tracker = Tracker(track, out, self.manifest)
            except ValueError as error:
                self.__exit__(ValueError, error, None)
                raise

    def _board(self) -> Board:
        started = calendar.timegm(time.strptime(self.manifest["started"], "%Y-%m-%dT%H:%M:%SZ"))
        about = table(self.manifest.get("config", {}))
        return Board(self.out / "tb", self.manifest["seeds"], started, about)

    def rewind(self, step: int) -> None:
        """Forget every row after `step`: the run goes on from there and writes them again."""
        kept = {
            name: [x for x in runs.read_rows(self.out / name) if x["step"] <= step]
            for name in runs.ROWS
        }
        if tries := self.manifest.get("resumed"):
            tries[-1]["step"], self.before = max(step, 0), {}
            self.update()
        if step > 0 and [row["step"] for row in kept[runs.ROWS[0]][-1:]] != [step]:
            self.warn(f"{runs.ROWS[0]} has lost rows before step {step:,}")
        for name, rows in kept.items():
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            runs.write(self.out / name, lines.encode())
        every = sorted((row for rows in kept.values() for row in rows), key=lambda x: x["wall_s"])
        self.begun -= every[-1]["wall_s"] if every else 0
        self.board = self._board()
        self.board.show(*every)
        for row in every:
            self.shown = row.get("episode_return", self.shown)
            self.judged = row.get("eval_return", self.judged)

    def __enter__(self) -> Self:
        print(f"run      {self.out}\ncompiles before its first step", flush=True)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        self.strict = False  # the end is told of, whatever happens to it
        if error is not None and self.before:
            self.manifest = {}
            self.update(**self.before)
        else:
            status = self.manifest["status"]
            if error is not None and status == "running":
                why = "stopped by Ctrl-C" if kind is KeyboardInterrupt else f"failed: {error}"
                status = why.splitlines()[0]
            self.manifest |= {"status": status, "ended": manifest.now()}
            whole = error is None and status == "done"
            self.update(**({"seal": runs.seal(self.out, self.manifest)} if whole else {}))
        self._tell(lambda tracker: tracker.finish())
        os.close(self._lock)
        if kind is KeyboardInterrupt:
            print(f"\nstopped; --resume {self.out} goes on with what there is", file=sys.stderr)

    def update(self, **facts: Any) -> None:
        """Put `facts` into the manifest, atomically."""
        self.manifest |= {name: manifest.plain(fact) for name, fact in facts.items()}
        text = json.dumps(self.manifest, indent=2) + "\n"
        self.attempt("manifest", lambda: runs.write(self.out / "manifest.json", text.encode()))

    def attempt(self, what: str, write: Callable[[], object]) -> None:
        """`write` it; where that cannot be, say so and go on, or end the run if it is strict."""
        try:
            write()
        except OSError as error:
            said = f"could not write the {what} in {self.out}: {error.strerror or error}"
            if self.strict:
                raise ValueError(f"{said}.") from error
            self.warn(said)

    def warn(self, what: str) -> None:
        """Say `what` aloud and in the manifest, once; the run goes on."""
        if what not in self.warned:
            self.warned.append(what)
            print(f"\nwarning: {what}", file=sys.stderr, flush=True)
            self.update(warnings=[*self.manifest.get("warnings", []), what])

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line and move the bar; a value per seed is a list, what is NaN is left out."""
        now = step, time.perf_counter() - self.begun
        then, self.last = self.last or now, now  # the first line's time is mostly compiling
        if now > then:
            rate = (now[0] - then[0]) / (now[1] - then[1])
            metrics = {**metrics, "steps_per_s": round(rate, 1)}
        row = self._append("metrics.jsonl", step, metrics)
        self.shown = row.get("episode_return", self.shown)
        self.failed += float(np.sum(row.get("failed", 0)))
        self._bar(row)

    def evaluated(
        self,
        step: int,
        returns: np.ndarray,
        lengths: np.ndarray,
        success: np.ndarray | None = None,
        metrics: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> None:
        """Append an evaluation: every episode [seeds, episodes], and the means.

        Of the task's own `metrics`, which are means over each episode, the means alone.
        """
        episodes = {"returns": returns, "lengths": lengths}
        means = {f"eval_{name}": x.mean(1) for name, x in metrics.items()}
        means |= {"eval_return": returns.mean(1), "eval_length": lengths.mean(1)}
        self.judged = means["eval_return"]
        if success is not None:  # of a task that can be done
            means["eval_success"], episodes["successes"] = success.mean(1), success
        self._append("evals.jsonl", step, means | episodes)

    def spent(self, on: str) -> float:
        """Count the seconds since the last call as spent `on` that, in all tries of the run."""
        before, self.lapped = self.lapped, time.perf_counter()
        name = f"{on}_s"
        self.update(**{name: round(self.manifest.get(name, 0.0) + self.lapped - before, 3)})
        return self.lapped - before

    @property
    def score(self) -> float:
        """What the run is worth now: its last evaluation, or before that its last episodes."""
        known = self.judged if self.judged is not None else self.shown
        return -np.inf if known is None else float(np.mean(known))

    def _append(self, name: str, step: int, values: Mapping[str, Any]) -> dict[str, Any]:
        row = {"step": step, "wall_s": round(time.perf_counter() - self.begun, 3)}
        for key, value in values.items():
            value = np.asarray(value, np.float64)
            if np.isfinite(value).all():
                row[key] = value.item() if value.size == 1 else value.tolist()
        self.held[name] += json.dumps(row) + "\n"
        self.attempt(name, lambda: self._write_held(name))
        self.attempt("files of TensorBoard", lambda: self._show(row))
        if [step] > self.tracked[name]:
            self._tell(lambda tracker: tracker.show(row))
        return row

    def _tell(self, what: Callable[[Tracker], None]) -> None:
        """The tracker `what`, if there is one; it is given up when it fails."""
        if tracker := self.tracker:
            try:
                what(tracker)
            except Exception as error:  # whatever theirs raise
                self.tracker = None
                self.warn(f"no longer tracked: {error}")

    def _write_held(self, name: str) -> None:
        with (self.out / name).open("ab", buffering=0) as file:
            before = file.tell()
            try:
                if file.write(self.held[name].encode()) < len(self.held[name]):
                    raise OSError(28, "No space left on device")
            except OSError:
                file.truncate(before)  # a line is there whole or not at all
                raise
        self.held[name] = ""

    def _show(self, row: dict[str, Any]) -> None:
        board, self.board = self.board, None  # once it fails, a resume alone shows the rows anew
        if board:
            board.show(row)
            self.board = board

    def save(self, step: int, params: Params) -> None:
        """Write each seed's policy (leaves [seeds, ...]) of this step, over an earlier one."""
        for i, seed in enumerate(self.manifest["seeds"]):
            mine = jax.tree.map(lambda x, i=i: x[i], params)
            path = self.out / f"policy-{seed}.safetensors"
            self.attempt(path.name, lambda p=path, x=mine: checkpoint.save_params(p, x))
        self.manifest["policy_step"] = step  # written with what was spent

    def _bar(self, row: dict[str, Any]) -> None:
        step, share = row["step"], min(row["step"] / self.manifest["steps"], 1)
        shown = f"{'-':>8}" if self.shown is None else f"{np.mean(self.shown):8.1f}"
        rate = f"{row['steps_per_s']:,.0f}" if "steps_per_s" in row else "-"
        line = (
            f"[{'#' * round(24 * share):24}] {share:4.0%}  {step:,} steps  return {shown}  "
            f"{rate:>7} steps/s  {row['wall_s']:.0f} s"
        ) + (f"  {self.failed:,.0f} worlds FAILED" if self.failed else "")
        if sys.stdout.isatty():
            print(f"\r{line}\x1b[K", end="" if share < 1 else "\n", flush=True)
        elif int(10 * share) > int(10 * self.told):  # a log file wants ten lines, not a film
            print(line, flush=True)
            self.told = share
