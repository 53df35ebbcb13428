"""Who drives robots of a plan of faults, and does to their processes what the plan says."""

import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import psutil

from benchmarks.fault_plan import PILOT, PROCESS, Case
from benchmarks.spoilt import Spoilt
from rl.bridge import messages, states, wire
from rl.bridge.desk import WATCHER
from rl.bridge.messages import Operator, Status
from rl.bridge.pilot import Pilot, Word
from rl.bridge.sim.faults import Fault
from rl.bridge.states import ARMED, INTERVENE, MOVING
from rl.bridge.wire import Link
from rl.spec import Spec

NOWHERE = states.CLEAR, states.STAND, states.GIVE, states.ARM  # of who is armed
JOG = 0.5  # rad/s or m/s


class Pilots:
    """A pilot and a watcher of a batch."""

    def __init__(
        self, spec: Spec, desk: tuple[str, int], plan: Any, onsets: np.ndarray,
        faults: list[Fault], bridge: int, policy: Callable[[], subprocess.Popen[bytes]],
    ) -> None:  # fmt: skip
        """`bridge` is its process; `policy` starts one."""
        self.spec, self.plan, self.onsets, self.bridge = spec, plan, onsets, bridge
        self.rng, self.now = np.random.default_rng((plan.seed, 0x9107)), 0.0
        self.begins, self.process, self.dead, self.tick = policy, policy(), False, 0
        self.done: set[int] = set()  # episodes whose fault was begun
        self.states: list[tuple[float, str]] = []  # as they were told
        link: Any = Spoilt(Link(("127.0.0.1", 0), desk), faults, plan.seed, lambda _: self.now)
        self.pilot, self.watch = Pilot(spec, link), Link(("127.0.0.1", 0), desk)
        asked = [np.clip(c.low + 0.75 * (c.high - c.low), c.low, c.high) for c in spec.command]
        self.asked = np.array(asked)

    def live(self, patience: float) -> None:
        self.pilot.meet(patience)
        self.pilot.live(self)

    def end(self) -> None:
        for link in (self.pilot.link, self.watch):
            link.close()
        self._bury()

    def word(self, status: Status) -> Word:
        """What a pilot says, and does."""
        self.now = self._time(status)
        self.states.append((self.now, status.state))
        e = min(int((self.now + 1e-9) / self.plan.seconds), len(self.plan.cases) - 1)
        case, since = self.plan.cases[e], self.now - self.onsets[e]
        if since < -1e-9:
            return Word(command=self.asked)
        first = e not in self.done
        self.done.add(e)
        if case.who == PROCESS and first:
            DOES[case.kind](self, case)
        elif self.dead and status.state not in MOVING and e + 1 < len(self.plan.cases):
            self._again()  # for the next episode
        event, deadman, jog = "", False, np.zeros(len(self.spec.actuators))
        if case.who == PILOT and case.kind in SAYS:
            event, deadman = SAYS[case.kind](self, status, first)
            jog = self.rng.normal(0, JOG, jog.size)
        return Word(event, self.asked, jog, deadman)

    def _time(self, status: Status) -> float:
        """s of the robot's true clock: by its ticks, but where another episode begins."""
        rate, seconds = self.plan.rate, self.plan.seconds
        now = self.now + max(status.tick - self.tick, 0) / rate if self.tick else status.time
        self.tick, into = status.tick, status.time % seconds
        begins = (
            now < status.time < now + seconds
            and min(into, seconds - into) < 1.5 * self.spec.control_dt
        )
        return status.time if begins else now

    def stop_as_watcher(self) -> None:
        self.watch.send(wire.hello(self.spec)._replace(flags=WATCHER))
        blank = np.zeros(len(self.spec.command)), np.zeros(len(self.spec.actuators))
        word = Operator(1, states.ASKED.index(states.STOP), 1, False, *blank)
        self.watch.send(messages.operator_message(self.spec, word, self.now))

    def recorder(self, sent: int) -> None:
        for child in psutil.Process(self.bridge).children():
            child.send_signal(sent)

    def full(self) -> None:
        """No byte more can be written of its log, as on a disk that is full."""
        for child in psutil.Process(self.bridge).children():
            child.rlimit(psutil.RLIMIT_FSIZE, (0, 0))

    def stop_policy(self, sent: signal.Signals, seconds: float) -> None:
        self.process.send_signal(sent)
        self.dead = seconds >= 1
        if not self.dead:
            time.sleep(seconds)
            self.process.send_signal(signal.SIGCONT)

    def _again(self) -> None:
        """Its robot's time stands still until another policy was let in."""
        self._bury()
        self.process, self.dead = self.begins(), False
        assert self.process.stdout is not None
        self.process.stdout.readline()

    def _bury(self) -> None:
        self.process.kill()
        self.process.communicate()


Says = Callable[[Pilots, Status, bool], tuple[str, bool]]  # an event, and a hand on it


def _takes(pilots: Pilots, status: Status, first: bool) -> tuple[str, bool]:
    event = {ARMED: states.TAKE, INTERVENE: states.GIVE}.get(status.state, "")
    rolls = pilots.rng.random(2)
    return event if rolls[0] < 0.3 else "", bool(rolls[1] < 0.5)


def _watcher(pilots: Pilots, status: Status, first: bool) -> tuple[str, bool]:
    if first:
        pilots.stop_as_watcher()
    return "", False


SAYS: dict[str, Says] = {
    "stop": lambda _, __, first: (states.STOP if first else "", False),
    "wait": lambda _, __, first: (states.WAIT if first else "", False),
    "a watcher stops": _watcher,
    "words that lead nowhere": lambda pilots, _, __: (str(pilots.rng.choice(NOWHERE)), False),
    "takes and gives": _takes,
    "says anything": lambda pilots, _, __: (
        str(pilots.rng.choice(states.ASKED)), bool(pilots.rng.random() < 0.5)),
}  # fmt: skip
DOES: dict[str, Callable[[Pilots, Case], None]] = {
    "policy killed": lambda pilots, case: pilots.stop_policy(signal.SIGKILL, 9),
    "policy frozen": lambda pilots, case: pilots.stop_policy(signal.SIGSTOP, case.size),
    "recorder killed": lambda pilots, case: pilots.recorder(signal.SIGKILL),
    "recorder frozen": lambda pilots, case: pilots.recorder(signal.SIGSTOP),
    "disk full": lambda pilots, case: pilots.full(),
}
