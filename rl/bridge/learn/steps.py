"""What a bridge does as steps to learn from, labelled where they are done: who acted, what each
would have done, and whether motors followed.  numpy alone.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.core import Core, Told
from rl.bridge.messages import Own
from rl.bridge.tally import CUT
from rl.spec import Spec

HEAD = struct.Struct("<BBIQdfII")  # kind, flags, episode, period, time, done, weights, limited
STEP, END = range(2)
HUMAN, FOLLOWED, OVER, SAID = 1, 2, 4, 8  # flags


class Step(NamedTuple):
    """A period of the policy, from what it was asked to what came of it."""

    episode: int  # of this bridge's life, from 1 on
    period: int  # likewise
    time: float  # s since the bridge began
    readings: np.ndarray  # [n] of all sensors, in the spec's order
    command: np.ndarray  # [C]
    policy: np.ndarray  # [D] what it would do, or did
    human: np.ndarray  # [D] what a human would do, or did
    acts: bool  # the human
    followed: bool  # motors were told so from the period's first tick on
    over: bool  # an operator said that the episode is
    done: float  # how sure the policy's program is that what is to be done was, as it was asked
    weights: int  # the policy's version
    limited: Reason  # what cut its targets
    memory: np.ndarray  # [M] what the policy remembered as it was asked
    said: bool = False  # the operator said that what is to be done is done


class End(NamedTuple):
    """An episode is over, or is not gone on with."""

    episode: int
    period: int  # the first that is no step
    time: float
    why: Reason  # 0: a simulated robot began anew
    fell: bool  # it was damped


def pack(found: Step | End) -> bytes:
    if isinstance(found, End):
        return HEAD.pack(
            END, found.fell, found.episode, found.period, found.time, 0.0, 0, found.why
        )
    flags = HUMAN * found.acts | FOLLOWED * found.followed | OVER * found.over | SAID * found.said
    head = HEAD.pack(STEP, flags, found.episode, found.period, found.time, found.done,
                     found.weights, found.limited)  # fmt: skip
    numbers = np.concatenate([
        found.readings, found.command, found.policy, found.human, found.memory,
    ])  # fmt: skip
    return head + numbers.astype("<f4").tobytes()


def unpack(spec: Spec, record: bytes) -> Step | End | None:
    """What `pack` made these of; None of what is none of this robot's."""
    if len(record) < HEAD.size:
        return None
    kind, flags, episode, period, time, done, weights, why = HEAD.unpack_from(record)
    if kind == END:
        return End(episode, period, time, Reason(why), bool(flags))
    counts = [sum(s.size for s in spec.sensors), len(spec.command), *[len(spec.action)] * 2,
              spec.memory]  # fmt: skip
    if kind != STEP or len(record) != HEAD.size + 4 * sum(counts):
        return None
    numbers = np.frombuffer(record, "<f4", offset=HEAD.size)
    readings, command, policy, human, memory = np.split(numbers, np.cumsum(counts[:-1]))
    acts, followed, over, said = (bool(flags & flag) for flag in (HUMAN, FOLLOWED, OVER, SAID))
    return Step(
        episode, period, time, readings, command, policy, human, acts, followed, over, done,
        weights, Reason(why), memory, said,
    )  # fmt: skip


class Steps:
    """Makes steps of a core's ticks, and hands each on as soon as it is over."""

    def __init__(self, spec: Spec, hand_on: Callable[[bytes], Any]) -> None:
        self.spec, self.hand_on = spec, hand_on
        self.open: Step | None = None  # its policy has not answered, or its period is not over
        self.own: Own | None = None  # what it answered
        self.episode, self.first = 0, False  # the last; the first tick of a period

    def ask(self, core: Core) -> None:
        """A period begins, and the policy is asked."""
        self._close()
        self._end(core, anew=self.episode != core.begun)
        ears, robot = core.ears, core.ears.robot
        assert robot is not None  # it was asked about it
        readings = np.concatenate([robot.readings[s.name] for s in self.spec.sensors])
        acts = core.state == states.INTERVENE
        none = np.full(len(self.spec.action), np.nan, np.float32)
        self.episode, self.own, self.first = core.begun, None, True
        self.open = Step(
            core.begun, core.wishes.period, core.now, readings, ears.asked, none, ears.action, acts,
            False, False, 0.0, 0, Reason(0), none,
        )  # fmt: skip

    def tick(self, core: Core, told: Told) -> None:
        """What a tick came to, once it is told."""
        if told.state not in states.MOVING:
            self.open = None  # a period that was cut short is no step
            self._end(core, anew=False)
        if self.open is None:
            return
        plan, word = core.wishes.plan, core.ears.operator
        if plan and plan.first == self.open.period:
            self.own = plan.own
        over = bool(word and word.over == self.open.episode)
        self.open = self.open._replace(
            followed=self.own is not None if self.first else self.open.followed,
            over=self.open.over or over,
            said=self.open.said or bool(over and word and word.done),
            limited=self.open.limited | (told.mask & CUT),
        )
        self.first = False

    def _close(self) -> None:
        """Hand on a step whose period is over, if its policy has answered."""
        if self.open and self.own:
            own = self.own
            step = self.open._replace(
                policy=own.action, done=own.done, weights=own.weights, memory=own.memory
            )
            self.hand_on(pack(step))
        self.open = None

    def _end(self, core: Core, anew: bool) -> None:
        """Hand on that an episode ended, if one was under way."""
        if not self.episode or (core.state in states.MOVING and not anew):
            return
        why, fell = (Reason(0), False) if anew else (core.why, core.state in states.DAMPED)
        self.hand_on(pack(End(self.episode, core.wishes.period, core.now, why, fell)))
        self.episode = 0
