"""The runs of a sweep in this process, or in some beside it."""

import subprocess
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from importlib import import_module
from typing import Any

from benchmarks.engines.engine import Ended, Site, carry_out, claimed, command, end, start
from benchmarks.plan import Unit
from benchmarks.process import undisturbed
from benchmarks.suite import arguments
from experiments import cli


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

    def __init__(self, site: Site) -> None:
        self.site, self._ended = site, list[Ended]()

    def submit(self, unit: Unit) -> None:
        if unit.is_foreign:
            self._ended.append(Ended(unit, carry_out(unit, self.site)))
            return
        with claimed(unit) as lock:
            code = 0 if lock is None else self._call(unit)
        self._ended.append(Ended(unit, code))

    def _call(self, unit: Unit) -> int:
        """What its process would do, in this one; the exit status."""
        _, _, *words = command(unit, self.site.threads)
        module, before = import_module(unit.program), sys.argv

        def make() -> None:
            try:
                module.main(parsed(unit, words, self.site.threads))
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

    def __init__(self, jobs: int, site: Site) -> None:
        self.jobs, self.site = jobs, site
        self._running: list[tuple[Unit, subprocess.Popen[bytes] | None]] = []

    def submit(self, unit: Unit) -> None:
        with undisturbed():  # or one that just began would be left behind
            self._running.append((unit, start(unit, self.site)))

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
