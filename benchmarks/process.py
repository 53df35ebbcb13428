"""One side of a measurement: a Python that runs a process and reads the JSON it prints."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl.stop import ECHO

Run = dict[str, Any]  # what a process tells of itself, at least its `value`
ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / "benchmarks" / "peers"
PATIENCE = 300.0  # s for a process that steps; MJX on CPU has been seen to stall
LONG = 3600.0  # s for one that trains
VERSIONS = """
import importlib.metadata, json, platform, sys
found = {name: importlib.metadata.version(name) for name in sys.argv[1:]}
print(json.dumps({"python": platform.python_version(), **found}))
"""


class Failed(Exception):
    """A process of a measurement that gave no result; says which, why, and how to mend it."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, which ends a program as Ctrl-C does."""


def heed() -> None:
    """SIGTERM ends this process as Ctrl-C does; who tells it twice at once has told it once."""
    last = -math.inf

    def end(number: int, _: Any) -> None:
        nonlocal last
        before, last = last, time.monotonic()
        if last > before + ECHO:
            raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    signal.signal(signal.SIGTERM, end)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as in the background of a script
        signal.signal(signal.SIGINT, end)


def guard(main: Callable[[], None]) -> None:
    """Call `main`: what its user can mend is one sentence, and SIGTERM ends it as Ctrl-C does."""
    heed()
    try:
        main()
    except BrokenPipeError:
        os._exit(141)  # as shells have it: who read what is printed has gone, as `head` does
    except (Failed, ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        print("\nstopped: what was finished is kept", file=sys.stderr)
        sys.exit(130)  # as shells have it


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off SIGINT and SIGTERM until the block ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked, before = list[int](), dict[int, Any]()
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in asked:
            signal.raise_signal(number)


def peers_python() -> str:
    """The path of the Python that has EnvPool and SBX, where no flag names another."""
    return os.environ.get("SPEED_PEERS", ".venv-peers/bin/python")


@dataclass(frozen=True)
class Python:
    """One side's interpreter.  `flag` names the option that chose it; ours has none."""

    path: str
    packages: tuple[str, ...]  # it must have, by distribution
    flag: str = ""

    def versions(self) -> dict[str, str]:
        return json.loads(self.output("-c", VERSIONS, *self.packages, timeout=PATIENCE))

    def run(self, *argv: object, timeout: float = PATIENCE) -> Run:
        """The last JSON object that the process prints (a library may print after it)."""
        for line in reversed(self.output(*argv, timeout=timeout).splitlines()):
            if line.startswith("{"):
                return json.loads(line)
        raise self.failed("printed no result")

    def output(self, *argv: object, timeout: float) -> str:
        program = shutil.which(self.path)
        if program is None:
            raise self.failed("is not there")
        # Both sides on CPU unless JAX_PLATFORMS says otherwise; a peer must not import our packages
        # in the place of its own.
        env = {"JAX_PLATFORMS": "cpu"} | {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        command = [os.path.abspath(program), *map(str, argv)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=timeout, cwd=ROOT, env=env
            )
        except subprocess.TimeoutExpired:
            raise self.failed(f"gave no result within {timeout:.0f} s") from None
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
            raise self.failed(f"failed: {last[0]}")
        return done.stdout

    def failed(self, why: str) -> Failed:
        if not self.flag:
            return Failed(f"Our own side, {self.path}, {why}.")
        return Failed(
            f"The peer's Python, {self.path}, {why}. Make its environment as "
            f"benchmarks/peers/README.md says, or name another with {self.flag}."
        )


def trained(experiment: str, *words: Any) -> Run:
    """One of our experiments: seconds of learning, compile apart, and the return it reaches."""
    with tempfile.TemporaryDirectory() as out:
        said = Python(sys.executable, ()).output(
            "-m", f"experiments.{experiment}", *words, "--out", out, "--no-video", timeout=LONG
        )
        manifest = json.loads((Path(out) / "manifest.json").read_text())
    return {
        "value": manifest["train_s"],
        "compile_s": manifest["compile_s"],
        "steps": manifest["steps"],
        "return": float(said.splitlines()[-1].removeprefix("eval_return: ")),
    }
