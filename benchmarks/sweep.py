"""Make the runs of a suite: skip what is done, go on with what died, go past what fails."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import plan
from benchmarks.engines.engine import Engine
from benchmarks.plan import Arm, Unit
from benchmarks.suite import Suite

TICK = 0.2  # s between two looks at the engine
ELSEWHERE = 5.0  # s between two looks at what other processes make
Wanted = Mapping[Arm, Iterable[int]]  # seeds of each task and agent


@dataclass
class Progress:
    """What a sweep has come to; it can be made again from the run directories at any time."""

    waiting: deque[Unit] = field(default_factory=deque)
    running: dict[Unit, str | None] = field(default_factory=dict)  # and when a try before ended
    elsewhere: list[Unit] = field(default_factory=list)  # made by another driver, or one that died
    done: list[Unit] = field(default_factory=list)
    made: int = 0  # of those that are done, by this driver
    failed: dict[Unit, str] = field(default_factory=dict)  # and why
    died: Counter[Unit] = field(default_factory=Counter)  # how often, and were taken up again

    @property
    def units(self) -> list[Unit]:
        return [*self.done, *self.failed, *self.running, *self.elsewhere, *self.waiting]


def begin(units: list[Unit]) -> Progress:
    """What of these is done, and what is to do."""
    progress = Progress()
    for unit in units:
        place(progress, unit)
    return progress


def place(progress: Progress, unit: Unit) -> None:
    """Put a unit that does not run where it belongs."""
    state, why = plan.look(unit)
    match state:
        case "done":
            progress.done.append(unit)
        case "held":
            progress.elsewhere.append(unit)
        case "damaged":
            progress.failed[unit] = f"{why} Move it away, and it is made again."
        case _:
            progress.waiting.append(unit)


def sweep(
    suite: Suite,
    where: Path,
    engine: Engine,
    progress: Progress,
    *,
    wanted: Callable[[], Wanted],
    show: Callable[[Progress], None],
    retries: int,
) -> Progress:
    """Make all runs that wait; what is wanted may grow as they end."""
    now, looked = wanted(), time.monotonic()
    try:
        while progress.waiting or progress.running or progress.elsewhere:
            show(progress)
            while progress.waiting and len(progress.running) < engine.jobs:
                submit(progress, engine)
            ended = engine.poll()
            for unit, code in ended:
                settle(progress, unit, code, retries)
                if len(unit.seeds) > 1:  # of which a part may have fitted in memory
                    grow(progress, plan.units(suite, {unit.arm: unit.seeds}, where))
            if time.monotonic() - looked > ELSEWHERE:
                others, progress.elsewhere = progress.elsewhere, []
                for unit in others:
                    place(progress, unit)
                looked = time.monotonic()
            if ended and (then := wanted()) != now:
                grow(progress, plan.units(suite, then, where))
                now = then
            if not ended:
                time.sleep(TICK)
    except BaseException:
        engine.cancel()
        raise
    show(progress)
    return progress


def submit(progress: Progress, engine: Engine) -> None:
    """Begin the next run; one that cannot even begin has failed."""
    unit = progress.waiting.popleft()
    before = plan.facts_of(unit.out).get("ended")
    try:
        engine.submit(unit)
        progress.running[unit] = before
    except OSError as error:  # as of a full disk
        progress.failed[unit] = f"cannot begin: {error}"


def settle(progress: Progress, unit: Unit, code: int | None, retries: int) -> None:
    """What became of a run whose process has ended."""
    state, status = plan.look(unit)
    if plan.facts_of(unit.out).get("ended") == progress.running.pop(unit):
        status = ""  # of the try before
    # Ctrl-C in a run means that its user wants the sweep to stop.
    if status == "stopped by Ctrl-C":
        raise KeyboardInterrupt
    died = code is None or code < 0 or status.startswith("stopped") or code == 0
    if state in ("done", "held", "damaged"):
        progress.made += state == "done"
        place(progress, unit)
    elif died and progress.died[unit] < retries:
        progress.died[unit] += 1
        progress.waiting.appendleft(unit)
    else:
        again = f" {progress.died[unit] + 1} times" if progress.died[unit] else ""
        how = f"died{again} (exit status {code})" if died else last_words(unit, code)
        progress.failed[unit] = f"{how}; see {unit.log}"


def grow(progress: Progress, units: list[Unit]) -> None:
    """Take in what was not wanted before."""
    known = set(progress.units)
    for unit in units:
        if unit not in known:
            place(progress, unit)


def last_words(unit: Unit, code: int | None) -> str:
    """The last line that a run's process has said."""
    with unit.log.open("rb") as log:
        log.seek(max(log.seek(0, 2) - 4_000, 0))
        lines = log.read().decode(errors="replace").strip().splitlines()
    if not lines:
        return f"ended with exit status {code} and said nothing"
    return lines[-1].strip().removeprefix("error: ")
