"""A flight tick by tick, as whoever reads its log later wants it: what the policy was asked, what
it wished for, and what came of that.

It heeds what the log says was done and asks no limit or check again, so that a log of another
version is read as well.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.core import Setup
from rl.bridge.ears import Codec, Ears
from rl.bridge.log.flight import Row
from rl.bridge.messages import Plan
from rl.bridge.tally import CUT
from rl.bridge.wire import State


class Moment(NamedTuple):
    """A tick."""

    row: Row
    robot: State | None  # the newest, before the policy was asked
    command: np.ndarray  # [C] that was asked for, within its range
    begins: bool  # an episode: it was armed
    starts: bool  # a period of the policy
    period: int  # since it was armed
    asked: bool  # the policy
    wish: np.ndarray | None  # [A] of the policy, for this period; None: it has answered nothing yet
    planned: bool  # its plan reaches this period: it is not the last that is held
    events: tuple[str, ...]  # that its pilot asked for, of states.ASKED
    answered: tuple[int, ...]  # the first period of each plan that came and was taken

    @property
    def moving(self) -> bool:
        return self.row.state in states.MOVING

    @property
    def targets(self) -> np.ndarray:
        """[A] that were told, where it moves."""
        return self.row.stages[-1]


class Listener:
    """Hears what a bridge heard; what it makes of plans and periods is rl/bridge/wishes.py's."""

    def __init__(self, setup: Setup, codec: Codec) -> None:
        self.setup = setup
        self.ears = Ears(setup.spec, codec, setup.episodes)
        self.plan: Plan | None = None
        self.tick, self.moving, self.acted = 0, False, -1  # ticks since it was armed
        self.oldest, self.before = 0, states.DISCONNECTED  # period that it was armed in; a state

    @property
    def counts(self) -> Counter[str]:
        """Of messages that were not taken."""
        return self.ears.counts

    def hear(self, row: Row) -> Moment:
        ears = self.ears
        ears.begin(row.now)
        ears.damped = self.before in states.DAMPED
        early = self._hear(row, answer=False)
        moves = row.state in states.MOVING
        self.tick += row.lost * (self.moving and moves)
        begins = moves and (ears.reset or not self.moving)
        if begins:
            self.oldest, self.tick, self.plan = self.period + 1, 0, None
        starts = moves and self.tick % self.setup.ticks == 0
        asked = starts and ears.robot is not None and ears.robot.seq != self.acted
        if asked and ears.robot:
            self.acted = ears.robot.seq
        robot, command = ears.robot, ears.asked
        answered = *early, *self._hear(row, answer=True)
        events, ears.events = tuple(states.ASKED[x] for x in ears.events), []
        wish = *self._wish(), events, answered
        found = Moment(row, robot, command, begins, starts, self.period, asked, *wish)
        self.tick, self.moving, self.before = self.tick + moves, moves, row.state
        return found

    @property
    def period(self) -> int:
        return self.oldest + self.tick // self.setup.ticks

    def _hear(self, row: Row, answer: bool) -> list[int]:
        taken = []
        for heard in row.heard:
            if heard.answer == answer:
                self.ears.hear(heard.source, heard.datagram)
        for plan in self.ears.plans:
            least = self.plan.first + 1 if self.plan else self.oldest
            if not least <= plan.first <= self.period:
                self.ears.counts["policy: old"] += 1
                continue
            self.plan = plan
            taken.append(plan.first)
        self.ears.plans = []
        return taken

    def _wish(self) -> tuple[np.ndarray | None, bool]:
        if self.plan is None:
            return None, False
        at, last = self.period - self.plan.first, len(self.plan.targets) - 1
        return self.plan.targets[min(at, last)], at <= last


def moments(setup: Setup, codec: Codec, rows: list[Row]) -> Iterator[Moment]:
    listener = Listener(setup, codec)
    return map(listener.hear, rows)


def why(moment: Moment) -> Reason:
    """For what it left the state before, in the tick in which it did."""
    return Reason(moment.row.mask & ~CUT) or Reason.ASKED
