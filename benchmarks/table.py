"""What a sweep will do, and how far it is, on a terminal."""

import heapq
import io
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from benchmarks.collect import SPENT
from benchmarks.plan import Arm, Unit, facts_of
from benchmarks.suite import Suite
from benchmarks.sweep import Progress
from rl import runs

START = 6.0  # s before the clock of a run in a process of its own begins, about
TAIL = 20_000  # bytes of a file in which its last whole line lies


def seconds(facts: Mapping[str, Any]) -> float:
    """That a run took in all."""
    return sum(facts.get(f"{on}_s", 0.0) for on in SPENT)


class Rates:
    """Environment steps per second of runs, as those that are done have it, or the suite."""

    def __init__(self, suite: Suite, done: Iterable[Unit], start: float) -> None:
        self.start = start  # s before a run's own clock begins, about
        self.suite, self._known, self._found = suite, dict[Arm, list[float]](), dict[Arm, float]()
        for unit in done:
            self.learn(unit)

    def learn(self, unit: Unit) -> None:
        facts = facts_of(unit.out)
        if took := seconds(facts):
            rate = unit.steps * len(unit.seeds) / took
            self._known.setdefault(unit.arm, []).append(rate)
            self._found.clear()

    def of(self, arm: Arm) -> float:
        """The task's own, or of the same agent elsewhere, or as the suite guesses; 0: not known."""
        if arm not in self._found:
            mine = self._known.get(arm) or [
                rate for other, rates in self._known.items() if other[1] == arm[1] for rate in rates
            ]
            guess = self.suite.agents[arm[1]].steps_per_s
            self._found[arm] = statistics.median(mine) if mine else guess
        return self._found[arm]

    def left(self, progress: Progress, jobs: int) -> tuple[float, bool]:
        """Seconds that are left, and whether that is all: runs of unknown speed are not in it."""
        begun = [*progress.running, *progress.elsewhere]
        rest = [(u, 1 - min(last_row(u.out).get("step", 0) / u.steps, 1.0), 0.0) for u in begun]
        rest += [(unit, 1.0, self.start) for unit in progress.waiting]
        ends = [0.0] * max(min(jobs, len(rest)), 1)  # of who makes one after another
        for unit, share, start in rest:
            if rate := self.of(unit.arm):
                took = start + share * unit.steps * len(unit.seeds) / rate
                heapq.heapreplace(ends, ends[0] + took)
        return max(ends), all(self.of(unit.arm) for unit, *_ in rest)


def last_row(out: Path) -> dict[str, Any]:
    """The newest line of a run's metrics, or of its evaluations where it writes no metrics."""
    for name in runs.ROWS:
        try:
            with (out / name).open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - TAIL, 0))
                return json.loads(file.read().split(b"\n")[-2])
        except (OSError, ValueError, IndexError):
            continue
    return {}


def time_of(s: float) -> str:
    """Seconds as one reads them."""
    if s < 90:
        return f"{s:.0f} s"
    return f"{s / 60:.0f} min" if s < 5400 else f"{s / 3600:.1f} h"


def planned(suite: Suite, progress: Progress, rates: Rates, jobs: int) -> str:
    """What a sweep would do, arm by arm."""
    arms: dict[tuple[str, str], list[Unit]] = {}
    for unit in progress.units:
        arms.setdefault(unit.arm, []).append(unit)
    table = Table(box=None, pad_edge=False)
    for name in ("task", "agent", "configuration", "steps", "seeds", "done", "to make", "each"):
        table.add_column(name, justify="left" if name in ("task", "agent") else "right")
    for (task, agent), units in sorted(
        arms.items(), key=lambda x: list(suite.tasks).index(x[0][0])
    ):
        done = sum(len(unit.seeds) for unit in units if unit in progress.done)
        rate, seeds = rates.of(units[0].arm), sum(len(unit.seeds) for unit in units)
        each = time_of(units[0].steps * len(units[0].seeds) / rate) if rate else "?"
        steps, identity = f"{units[0].steps:,}", units[0].identity[:10]
        table.add_row(task, agent, identity, steps, str(seeds), str(done), str(seeds - done), each)
    said = io.StringIO()
    Console(width=160, file=said).print(table)
    return said.getvalue() + total(progress, rates, jobs)


def total(progress: Progress, rates: Rates, jobs: int) -> str:
    took, whole = rates.left(progress, jobs)
    said = f"{len(progress.done)} of {len(progress.units)} runs are done"
    if rest := len(progress.units) - len(progress.done) - len(progress.failed):
        said += f"; {rest} to make, {jobs} at a time: "
        said += f"about {time_of(took)}" if whole else "for how long is not known"
    if progress.elsewhere:
        said += f"; another process makes {len(progress.elsewhere)} of them"
    return said + (f"; {len(progress.failed)} failed" if progress.failed else "")


class Watch:
    """Shows a sweep as it goes: a table that lives on a terminal, lines in a log file."""

    def __init__(self, suite: Suite, rates: Rates, jobs: int, done: Iterable[Unit]) -> None:
        self.suite, self.rates, self.jobs = suite, rates, jobs
        self._told, self._died = set(done), Counter[Unit]()
        self._drawn = 0.0
        self._live = Live(auto_refresh=False) if sys.stdout.isatty() else None

    def __enter__(self) -> "Watch":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self, progress: Progress) -> None:
        ended = [unit for unit in (*progress.done, *progress.failed) if unit not in self._told]
        for unit in ended:
            self._told.add(unit)
            if unit not in progress.failed:
                self.rates.learn(unit)
        rest = progress.waiting or progress.running or progress.elsewhere
        if self._live:
            if ended or not rest or time.monotonic() - self._drawn > 0.5:
                self._live.update(self._table(progress), refresh=True)
                self._drawn = time.monotonic()
        elif progress.made or progress.failed or progress.died:
            self._say(ended, progress)

    def _say(self, ended: list[Unit], progress: Progress) -> None:
        for unit in progress.died - self._died:
            print(f"again  {unit.name}: its process died, and it goes on", flush=True)
        self._died = progress.died.copy()
        for unit in ended:
            if unit in progress.failed:
                print(f"failed {unit.name}: {progress.failed[unit]}", flush=True)
            else:
                score = np.mean(facts_of(unit.out).get("eval_returns", np.nan))
                print(f"done   {unit.name}: {score:.1f}; {self._rest(progress)}", flush=True)

    def _rest(self, progress: Progress) -> str:
        took, whole = self.rates.left(progress, self.jobs)
        left = f", about {time_of(took)} left" if took and whole else ""
        failed = f", {len(progress.failed)} failed" if progress.failed else ""
        others = len(progress.elsewhere)
        shared = f", {others} made by another process" if others else ""
        return f"{len(progress.done)} of {len(progress.units)} runs{failed}{shared}{left}"

    def _table(self, progress: Progress) -> Group:
        table = Table(box=None, pad_edge=False)
        for name in ("running", "", "steps", "return", "steps/s"):
            table.add_column(name, justify="left" if name in ("running", "") else "right")
        for unit in (*progress.running, *progress.elsewhere):
            row = last_row(unit.out)
            share, step = min(row.get("step", 0) / unit.steps, 1), row.get("step", 0)
            score = row.get("episode_return", row.get("eval_return"))
            shown = "-" if score is None else f"{np.mean(score):.1f}"
            rate = f"{row['steps_per_s']:,.0f}" if "steps_per_s" in row else "-"
            whose = " (of another process)" if unit in progress.elsewhere else ""
            bar = f"[{'#' * round(20 * share):20}]"
            table.add_row(Text(unit.name + whose), Text(bar), f"{step:,}", shown, rate)
        failed = [Text(f"failed {u.name}: {why}", "red") for u, why in progress.failed.items()]
        return Group(table, *failed, Text(self._rest(progress)))
