"""Where the runs of a sweep are made: in this process, in processes beside it, or on a cluster.

A run is claimed by a lock that its process inherits: it is held as long as that process lives,
whatever becomes of the driver, and by no two at once.
"""

import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from benchmarks import plan
from benchmarks.plan import Unit
from benchmarks.process import undisturbed
from benchmarks.suite import arguments
from experiments import cli
from rl import runs

PATIENCE = 60.0  # s for a run that was asked to stop: it ends its phase and saves


class Ended(NamedTuple):
    unit: Unit
    code: int | None  # exit status, negative for a signal; None where the worker was lost


class Engine(Protocol):
    jobs: int  # runs at a time

    def submit(self, unit: Unit) -> None: ...
    def poll(self) -> list[Ended]: ...
    def cancel(self) -> None: ...


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


def start(unit: Unit, threads: int) -> subprocess.Popen[bytes] | None:
    """A process that makes a run and holds its claim; None where another does, or has."""
    with claimed(unit) as lock:
        if lock is None:
            return None
        words = [sys.executable, *command(unit, threads)]
        env = os.environ | {"NPROC": str(threads), "OMP_NUM_THREADS": str(threads)}
        with unit.log.open("ab") as log:
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env,
                pass_fds=[lock], start_new_session=True,
            )  # fmt: skip


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


def parsed(unit: Unit, words: list[str], threads: int) -> Any:
    """What an experiment makes of its command line; of a new run without a second parse."""
    args = arguments(unit.program, unit.words)
    if words[0] == "--resume":
        return cli.parse(type(args), words)
    seeds = {"seed": unit.seeds[0], "seeds": len(unit.seeds)}
    return replace(args, **seeds, threads=threads, video=False, out=unit.out)


class Inline:
    """One run after another in this process: for a debugger, and for many that are short."""

    jobs = 1

    def __init__(self, threads: int) -> None:
        self.threads, self._ended = threads, list[Ended]()

    def submit(self, unit: Unit) -> None:
        if unit.is_foreign:
            self._ended.append(Ended(unit, carry_out(unit, self.threads)))
            return
        with claimed(unit) as lock:
            code = 0 if lock is None else self._call(unit)
        self._ended.append(Ended(unit, code))

    def _call(self, unit: Unit) -> int:
        """What its process would do, in this one; the exit status."""
        _, _, *words = command(unit, self.threads)
        module, before = import_module(unit.program), sys.argv

        def make() -> None:
            try:
                module.main(parsed(unit, words, self.threads))
            except KeyboardInterrupt:  # what the run says of it goes to its log
                print("stopped: what was finished is kept", file=sys.__stderr__, flush=True)
                raise

        with unit.log.open("a") as log, redirect_stdout(log), redirect_stderr(log):
            sys.argv = [str(module.__file__), *words]
            try:
                cli.guard(make)
            except SystemExit as error:
                print("" if error.code is None else error.code)
                return int(error.code not in (None, 0))
            except Exception:
                traceback.print_exc()
                return 1
            finally:
                sys.argv = before
        return 0

    def poll(self) -> list[Ended]:
        ended, self._ended = self._ended, []
        return ended

    def cancel(self) -> None:
        """Nothing runs between two calls."""


class Processes:
    """Some runs at a time, each a process with threads of its own."""

    def __init__(self, jobs: int, threads: int) -> None:
        self.jobs, self.threads = jobs, threads
        self._running: list[tuple[Unit, subprocess.Popen[bytes] | None]] = []

    def submit(self, unit: Unit) -> None:
        with undisturbed():  # or one that just began would be left behind
            self._running.append((unit, start(unit, self.threads)))

    def poll(self) -> list[Ended]:
        running, ended = [], []
        for unit, process in self._running:
            code = process.poll() if process else 0
            (running if code is None else ended).append((unit, process, code))
        self._running = [(unit, process) for unit, process, _ in running]
        return [Ended(unit, code) for unit, _, code in ended]

    def cancel(self) -> None:
        end([process for _, process in self._running if process])
        self._running = []


def require_answer(address: str) -> None:
    """Raise ValueError where nothing does: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            why = error.strerror or error
            raise ValueError(f"--address {address}: no Ray answers there ({why}).") from error


def carry_out(unit: Unit, threads: int) -> int:
    """Make a run and wait for it, on whichever machine this is called; its exit status."""
    process = start(unit, threads)
    try:
        return process.wait() if process else 0
    except BaseException:  # as Ray cancels
        if process:
            end([process])
        raise


class Cluster:
    """Some runs at a time as tasks of Ray, which keeps their threads and memory free.

    With an address and no number of jobs, as many as the cluster's cores allow.  Every machine
    must see the runs' directory by the same path, and have this package.
    """

    def __init__(self, jobs: int, threads: int, memory_gb: float, address: str) -> None:
        try:
            import ray
        except ImportError as error:
            raise ValueError("--engine ray needs Ray: pip install 'robotrl[ray]'") from error
        require_answer(address)
        os.environ.setdefault("RAY_AUTH_MODE", "disabled" if not address else "token")
        room: dict[str, Any] = {} if address else {"num_cpus": jobs * threads}
        ray.init(
            address=address or None, include_dashboard=False, log_to_driver=False,
            configure_logging=False, **room,
        )  # fmt: skip
        self.jobs = jobs or max(int(ray.cluster_resources().get("CPU", 1)) // threads, 1)
        self.threads, self._ray = threads, ray
        needs: dict[str, Any] = {"num_cpus": threads, "memory": int(memory_gb * 1e9)}
        self._task = ray.remote(max_retries=0, **needs)(carry_out)
        self._running: dict[Any, Unit] = {}

    def submit(self, unit: Unit) -> None:
        there = unit._replace(out=unit.out.absolute())
        self._running[self._task.remote(there, self.threads)] = unit

    def poll(self) -> list[Ended]:
        if not self._running:
            return []
        ended, refs = [], list(self._running)
        done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in done:
            try:
                code = self._ray.get(ref)
            except (self._ray.exceptions.RayError, OSError):
                code = None
            ended.append(Ended(self._running.pop(ref), code))
        return ended

    def cancel(self) -> None:
        for ref in self._running:
            self._ray.cancel(ref)
        self._ray.wait(list(self._running), num_returns=len(self._running), timeout=PATIENCE)
        self._running = {}
