"""What a bridge does not do though it is asked to, and why, so that who asked can be told.

It goes to operators as three numbers with every status, and is put into words where they are.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rl.bridge import states
from rl.bridge.checks import LATE_TIMES, said
from rl.spec import Spec

NOTHING, NOWHERE, UNSOUND, ABSENT, OTHER, SLOW, RISING, LATE, CLEARED = range(9)
WHY = {
    ABSENT: "no policy has come.",
    OTHER: "the policy that came is of another artefact: start it and the bridge with one file.",
    SLOW: "its policy takes {} ms for a step, more than its period: another --runtime, or a "
    "faster machine.",
    RISING: "it is still on its way to its rest.",
    LATE: "this machine does not keep the rate, and was {} ms late in the last 2 s: end what "
    "else it does, and see python -m rl.bridge doctor.",
    CLEARED: "it failed and was cleared {} times within an hour: see why (--limits.clears).",
}
HOUR = 3600.0  # s
LOOKED_S = 2.0  # s over which a machine is looked at before it may arm


class Refused(NamedTuple):
    """What was asked for last and refused."""

    why: int = NOTHING
    event: int = -1  # of states.ASKED
    number: int = 0  # of what `why` says: a state, reasons, ms or times

    @property
    def text(self) -> str:
        """One sentence; empty where nothing was refused."""
        return self.told({})

    def told(self, names: Mapping[str, str]) -> str:
        """The same with names that an operator knows of what may be asked for: keys."""
        if self.why == NOTHING:
            return ""
        event = states.ASKED[self.event]
        if self.why == NOWHERE:
            return states.nowhere(states.STATES[self.number], event, names)
        why = f"{said(self.number)}." if self.why == UNSOUND else WHY[self.why]
        return f"{names.get(event, repr(event))} is refused: {why.format(self.number)}"


def refused(numbers: Sequence[float] | np.ndarray) -> Refused | None:
    """That which three numbers of a datagram say; None if they say none."""
    why, event, number = map(float, numbers)
    known = why in range(CLEARED + 1) and event in range(-1, len(states.ASKED))
    most = len(states.STATES) if why == NOWHERE else 1 << 24
    if not known or number not in range(most) or (why and event < 0):
        return None
    return Refused(int(why), int(event), int(number))


class Punctual:
    """Whether a machine's ticks begin when they should."""

    def __init__(self, dt: float, late: float, missed: float) -> None:
        """A tick may be `late` s late, and this share of them be left out."""
        self.dt, self.late, self.missed = dt, late, missed
        self.ticks: deque[tuple[float, float]] = deque()  # when, and how late, s

    def add(self, now: float, late: float) -> None:
        self.ticks.append((now, late))
        while self.ticks[0][0] < now - LOOKED_S:
            self.ticks.popleft()

    @property
    def worst(self) -> float:
        """s that a tick was late at most, if the rate was not kept; else 0."""
        lates = [late for _, late in self.ticks]
        due = (self.ticks[-1][0] - self.ticks[0][0]) / self.dt + 1 if lates else 0.0
        worst = max(lates, default=0.0)
        often = sum(late > self.late for late in lates) >= LATE_TIMES
        # In lock step nothing is late, though time may jump to the next episode.
        gone = worst > 0 and len(lates) < (1 - self.missed) * due
        return worst if often or gone else 0.0


class Clears:
    """How often faults were cleared that nobody had asked for, of which a robot bears a few."""

    def __init__(self, most: int) -> None:
        """So many an hour."""
        self.most, self.times = most, deque[float](maxlen=most)  # s

    def add(self, now: float) -> None:
        self.times.append(now)

    def spent(self, now: float) -> bool:
        return sum(now - when < HOUR for when in self.times) >= self.most


def ticks_of(spec: Spec, rate: float) -> int:
    """Ticks of a robot's wire, so many a second, in a period of the policy; ValueError unless
    they are whole."""
    periods = rate * spec.control_dt
    ticks = round(periods) if 0 < periods < 1e6 else 0
    if not ticks or abs(ticks - periods) > 1e-3:
        raise ValueError(
            f"The robot speaks {rate:g} times a second, and its policy is asked "
            f"{1 / spec.control_dt:g} times: it needs a multiple of that."
        )
    return ticks
