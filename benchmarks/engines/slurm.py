"""The runs of a sweep as jobs of SLURM, by submitit, which keeps its files in RUNS/SUITE/.jobs.

A job whose time is up, or that is preempted, lets its run save, and is queued again to go on.
"""

import math
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.engine import PATIENCE, Ended, Needs, Site, made, site
from benchmarks.machine import held
from benchmarks.plan import Unit
from benchmarks.process import undisturbed

JOBS = 100  # at a time, running and queued, where no number is asked for
TIMES = 100  # that a job may use up its time and be queued again
LOOK = 2.0  # s between two looks at the jobs
TICK = 0.2  # s between two looks at the claims of those that were cancelled


@dataclass(frozen=True)
class Slurm:
    """Jobs of SLURM; what else sbatch takes, it reads of its environment: SBATCH_ACCOUNT, ..."""

    partition: str = ""  # none: the site's own
    hours: float = 4.0  # of a job, after which its run is queued again to go on
    local: bool = False  # in processes of this machine, to try it out without SLURM


class Job:
    """What a job does: make a run, and hand it on when time is up."""

    def __init__(self, unit: Unit, site: Site) -> None:
        self.unit, self.site = unit, site
        self.process: subprocess.Popen[bytes] | None = None

    def __call__(self) -> int:
        with made(self.unit, self.site) as self.process:
            return self.process.wait() if self.process else 0

    def checkpoint(self) -> Any:
        """What is to be queued, as submitit asks for it in a job whose time is up."""
        from submitit.helpers import DelayedSubmission

        if self.process:
            # In a signal's handler `wait` would be deaf: the wait that it broke into goes on.
            self.process.terminate()
            if left([self.unit]):
                self.process.kill()
        return DelayedSubmission(Job(self.unit, self.site))


class Jobs:
    """Some runs at a time, each a job."""

    def __init__(self, jobs: int, needs: Needs, slurm: Slurm, folder: Path) -> None:
        try:
            import submitit
            from submitit.core.utils import FailedSubmissionError, UncompletedJobError
        except ImportError as error:
            raise ValueError(
                "--engine submitit needs submitit: pip install 'robotrl[slurm]'"
            ) from error
        if needs.gpus != int(needs.gpus):
            raise ValueError(f"--gpus {needs.gpus:g}: a job of SLURM has whole GPUs.")
        if not slurm.hours > 0:
            raise ValueError(f"--slurm.hours is {slurm.hours:g}; a job takes some.")
        self.jobs, self.site, self.name = jobs, site(needs), folder.name
        self._executor = executor(submitit, needs, slurm, folder)
        self._told = silent if slurm.local else nullcontext
        self._errors = FailedSubmissionError, UncompletedJobError
        self._running, self._refused = dict[Any, Unit](), deque[Unit]()
        self._looked = time.monotonic()

    def submit(self, unit: Unit) -> None:
        there = unit._replace(out=unit.out.absolute())
        try:
            # Or a job that was just queued would be left behind.
            with undisturbed(), self._told():
                self._running[self._executor.submit(Job(there, self.site))] = unit
        except self._errors as error:
            if not self._running:
                raise ValueError(f"SLURM takes no job: {last_line(error)}.") from error
            self._refused.append(unit)  # as where a user may have no more jobs at a time

    def poll(self) -> list[Ended]:
        if time.monotonic() - self._looked < LOOK:
            return []
        self._looked = time.monotonic()
        done = [job for job in self._running if job.done()]
        ended = [Ended(self._running.pop(job), self._code(job)) for job in done]
        again, self._refused = self._refused, deque[Unit]()
        while again and not self._refused:
            self.submit(again.popleft())
        self._refused.extend(again)
        return ended

    def _code(self, job: Any) -> int | None:
        try:
            code = job.result() if job.paths.result_pickle.exists() else None
        except self._errors:
            return None
        if code:
            job.cancel(check=False)  # where SLURM preempted it and queued it again by itself
        return code

    def cancel(self) -> None:
        """Ask jobs to save and end, and say which did not."""
        with undisturbed():
            for job in self._running:
                job.cancel(check=False)
        if rest := left(self._running.values()):
            print(f"\n{len(rest)} jobs have not ended yet: `squeue --me --name {self.name}` shows "
                  "them, and `scancel` ends them", file=sys.stderr)  # fmt: skip
        self._running = {}


@contextmanager
def silent() -> Iterator[None]:
    """What begins meanwhile says nothing here: a local job that is stopped ends with a stack."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def left(units: Iterable[Unit]) -> list[Unit]:
    """Those of these runs that are still made after a while."""
    rest, until = list(units), time.monotonic() + PATIENCE
    while (rest := [unit for unit in rest if held(unit.claim)]) and time.monotonic() < until:
        time.sleep(TICK)
    return rest


def executor(submitit: Any, needs: Needs, slurm: Slurm, folder: Path) -> Any:
    """What jobs are handed to; ValueError where there is no SLURM."""
    kind = "local" if slurm.local else "slurm"
    jobs = folder.absolute() / ".jobs"
    try:
        found = submitit.AutoExecutor(jobs, cluster=kind, slurm_max_num_timeout=TIMES)
    except RuntimeError as error:
        raise ValueError(
            "--engine submitit: there is no SLURM here (no srun): begin the sweep where jobs are "
            "queued from, or try it out on this machine with --slurm.local."
        ) from error
    found.update_parameters(
        name=folder.name, timeout_min=math.ceil(60 * slurm.hours),
        cpus_per_task=needs.threads, mem_gb=needs.memory_gb, gpus_per_node=int(needs.gpus) or None,
        slurm_signal_delay_s=int(2 * PATIENCE), slurm_partition=slurm.partition or None,
        slurm_srun_args=[f"--cpus-per-task={needs.threads}"],  # of sbatch it takes none
    )  # fmt: skip
    return found


def last_line(error: BaseException) -> str:
    """The last line of what an error says."""
    return (str(error).strip().splitlines() or ["it says not why"])[-1].strip().rstrip(".")
