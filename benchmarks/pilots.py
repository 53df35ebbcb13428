"""A pilot in a process of its own that goes at moments: python -m benchmarks.pilots ARTEFACT DESK

Its standard input says when: a line of times of the robot, s, and signals that it then sends
itself.  It comes to the bridge when it has read it, and says each time at which it went.
"""

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks import flights
from rl import artefact
from rl.bridge import messages, wire
from rl.bridge.messages import Status
from rl.bridge.pilot import Pilot, Word
from rl.bridge.states import ARMED, MOVING
from rl.bridge.wire import Link

GREETS_S = 1.0  # s between greetings of a watcher
AGAIN_S = 0.02  # s until who was not let in tries again


class Moment(NamedTuple):
    time: float  # s, the robot's
    signal: int
    pause: float  # s until who was frozen goes on


class Goes:
    """Asks for a walk, and stops or ends its process at each moment where the robot is armed."""

    def __init__(self, moments: list[tuple[float, int]]) -> None:
        self.moments = moments

    def word(self, status: Status) -> Word:
        while self.moments and status.time >= self.moments[0][0]:
            (_, sent), self.moments = self.moments[0], self.moments[1:]
            armed = status.state == ARMED
            print(status.time if armed else "nan", flush=True)
            if armed:
                os.kill(os.getpid(), sent)
        return Word(command=np.array([0.5, 0.0, 0.0]))


def main(path: Path, desk: str) -> None:
    pilot = Pilot(artefact.read(path).spec, Link(("127.0.0.1", 0), wire.address(desk)))
    numbers = sys.stdin.readline().split()
    times, signals = map(float, numbers[::2]), map(int, numbers[1::2])
    while True:
        try:
            pilot.meet(flights.ENDS_S)
        except ValueError:  # another is not given up yet
            time.sleep(AGAIN_S)
            continue
        pilot.live(Goes([*zip(times, signals, strict=True)]))
        return


class Pilots:
    """One that drives, and one that is to come after it."""

    def __init__(self, path: Path, desk: str) -> None:
        self.words = [sys.executable, "-m", "benchmarks.pilots", str(path), desk]
        self.drives, self.spare = self._begun(), self._begun()

    def _begun(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def go(self, moments: list[Moment]) -> None:
        assert self.drives.stdin
        print(*(f"{x.time!r} {int(x.signal)}" for x in moments), file=self.drives.stdin)

    def went(self) -> float | None:
        """When it did, in s, if it just has; nan if it was not to."""
        assert self.drives.stdout
        ready, _, _ = select.select([self.drives.stdout], [], [], 0)
        line = self.drives.stdout.readline() if ready else ""
        return float(line) if line else None

    def another(self, moments: list[Moment]) -> None:
        self._end(self.drives)
        self.drives, self.spare = self.spare, self._begun()
        self.go(moments)

    def close(self) -> None:
        for process in (self.drives, self.spare):
            self._end(process)

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()


def watched(flight: flights.Flight, path: Path, moments: list[Moment]) -> np.ndarray:
    """Have pilots go at moments, one after another; when each did, nan where it was not armed."""
    spec, sent, greeted = flight.found.spec, list[float](), -np.inf
    link, pilots = Link(("127.0.0.1", 0), wire.address(flight.desk)), Pilots(path, flight.desk)
    gone, goes_on = False, np.inf  # it is to be replaced; s of the clock when it goes on
    pilots.go(moments)
    try:
        while flight.processes["robotd"].poll() is None:
            if time.monotonic() - greeted > GREETS_S:
                greeted = time.monotonic()
                link.send(wire.hello(spec))
            got = link.receive(0.05)
            status = messages.status_of(spec, got[0]) if got else None
            if time.monotonic() >= goes_on:
                pilots.drives.send_signal(signal.SIGCONT)
                goes_on = np.inf
            if gone and status and status.time > sent[-1] and status.state not in MOVING:
                pilots.another(moments[len(sent) :])
                gone = False
            if not gone and (at := pilots.went()) is not None:
                pause = moments[len(sent)].pause
                sent.append(at)
                gone = bool(at == at and pause == np.inf)
                goes_on = time.monotonic() + pause if at == at else np.inf
    finally:
        link.close()
        pilots.close()
    return np.array(sent + [np.nan] * (len(moments) - len(sent)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
