"""Where the runs of a sweep are made: in this process, in processes beside it, or on a cluster.

A run is claimed by a lock that its process inherits: it is held as long as that process lives,
whatever becomes of the driver, and by no two at once.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

from benchmarks import plan
from benchmarks.plan import Unit
from rl import runs

PATIENCE = 60.0  # s for a run that was asked to stop: it ends its phase and saves
CARRIED = "JAX_", "XLA_", "MUJOCO_", "SPEED_PEERS"  # what of the environment goes with a run
ASKS = {signal.SIGUSR2}  # by which SLURM tells a job, and all in it, that its time is up


class Ended(NamedTuple):
    unit: Unit
    code: int | None  # exit status, negative for a signal; None where the worker was lost


class Engine(Protocol):
    jobs: int  # runs at a time

    def submit(self, unit: Unit) -> None: ...
    def poll(self) -> list[Ended]: ...
    def cancel(self) -> None: ...


class Needs(NamedTuple):
    """What a run takes of its machine."""

    threads: int
    memory_gb: float
    gpus: float = 0.0


class Site(NamedTuple):
    """How a process is begun, on whichever machine: as one of this driver's would be."""

    threads: int
    python: str
    where: Path  # the folder that relative paths begin at
    env: Mapping[str, str]  # what it has beside the environment of its machine


def site(needs: Needs) -> Site:
    """As this process has it."""
    own = {name: value for name, value in os.environ.items() if name.startswith(CARRIED)}
    threads = str(needs.threads)
    own |= {"NPROC": threads, "OMP_NUM_THREADS": threads}
    if 0 < needs.gpus < 1:  # beside others, of which each would take three quarters
        own.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 * needs.gpus:.2f}")
    return Site(needs.threads, sys.executable, Path.cwd(), own)


@contextmanager
def claimed(unit: Unit) -> Iterator[int | None]:
    """The lock of a run that is to be made, or None: another has it, or it is done."""
    unit.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = runs.locked(unit.claim)
    except runs.Taken:
        yield None
        return
    try:
        yield lock if plan.found(unit.out)[0] in ("new", "begun") else None
    finally:
        os.close(lock)


def command(unit: Unit, threads: int) -> list[str]:
    """The words that make a run, after Python's own: it is begun, or goes on."""
    goes_on = plan.found(unit.out)[0] == "begun"
    if not goes_on:
        plan.clear(unit.out)
    seeds = ["--seed", str(unit.seeds[0])]
    if unit.is_foreign:
        return ["-m", "benchmarks.foreign", str(unit.out), unit.program, *unit.words, *seeds]
    if goes_on:
        return ["-m", unit.program, "--resume", str(unit.out)]
    own = ["--seeds", str(len(unit.seeds)), "--threads", str(threads), "--no-video"]
    return ["-m", unit.program, *seeds, *own, "--out", str(unit.out), *unit.words]


def start(unit: Unit, site: Site) -> subprocess.Popen[bytes] | None:
    """A process that makes a run and holds its claim; None where another does, or has."""
    with claimed(unit) as lock:
        if lock is None:
            return None
        words = [site.python, *command(unit, site.threads)]
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ASKS)  # which a run would die of
        try:
            with unit.log.open("ab") as log:
                return subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                    cwd=site.where, env=os.environ | dict(site.env), pass_fds=[lock],
                    start_new_session=True,
                )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ask processes to save and end; those that do not, are ended."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def made(unit: Unit, site: Site) -> Iterator[subprocess.Popen[bytes] | None]:
    """A process as `start` begins it; where what is done meanwhile is broken off, it ends too."""
    process = start(unit, site)
    try:
        yield process
    except BaseException:  # as Ray cancels
        if process:
            end([process])
        raise


def carry_out(unit: Unit, site: Site) -> int:
    """Make a run and wait for it, on whichever machine this is called; its exit status."""
    with made(unit, site) as process:
        return process.wait() if process else 0
