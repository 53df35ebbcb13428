"""A flight in lock step: a simulated robot, its bridge and its policy, each a process."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl import artefact
from rl.artefact import Artefact
from rl.bridge import wire
from rl.bridge.pilot import Pilot
from rl.bridge.sim.simulator import Robot
from rl.bridge.wire import Link

ENDS_S = 60.0  # s for a process to come, or to end


@dataclass(frozen=True)
class Flight:
    """Who is in it, by name, and where what they say and write is."""

    found: Artefact
    folder: Path
    robot: str  # host:port
    desk: str
    processes: dict[str, subprocess.Popen[bytes]]

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def pilot(self) -> Pilot:
        return Pilot(self.found.spec, Link(("127.0.0.1", 0), wire.address(self.desk)))

    def ends(self, *names: str) -> list[int]:
        """The statuses they end with."""
        return [self.processes[name].wait(ENDS_S) for name in names]


@contextmanager
def flight(
    path: Path, folder: Path, sim: Sequence[Any], bridge: Sequence[Any], policy: Sequence[Any] = ()
) -> Iterator[Flight]:
    """With these flags of each; a policy without any is none.  Nobody of it is left at the end."""
    robot, desk = wire.free_address(), wire.free_address()
    flags = {
        "sim": ["rl.bridge", "sim", path, "--address", robot, "--wait", ENDS_S,
                "--truth", folder / "truth.jsonl", *sim],
        "robotd": ["rl.bridge.robotd", path, "--robot", robot, "--desk", desk,
                   "--log", folder / "flight.mcap", *bridge],
        "policyd": ["rl.bridge.policyd", path, "--desk", desk, *policy],
    }  # fmt: skip
    processes: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, words in flags.items():
            if name != "policyd" or policy:
                processes[name] = begun(words, folder / f"{name}.txt")
        yield Flight(artefact.read(path), folder, robot, desk, processes)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def begun(words: Sequence[Any], says: Path) -> subprocess.Popen[bytes]:
    """A module with its flags, and a file of all it says."""
    with says.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-m", *map(str, words)], stdout=out, stderr=subprocess.STDOUT,
            env=os.environ | {"JAX_LOG_COMPILES": "1"},
        )  # fmt: skip


def starts(found: Artefact, rate: float, count: int, file: Path) -> Path:
    """So many episodes from where it stands at rest."""
    qpos, qvel = Robot(found, rate).home()
    np.savez(file, qpos=np.tile(qpos, (count, 1)), qvel=np.tile(qvel, (count, 1)))
    return file
