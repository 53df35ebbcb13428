"""What a bridge has heard: the newest of each, when, and what of it was not taken."""

from collections import Counter
from typing import Protocol

import numpy as np

from rl.bridge import messages, states, wire
from rl.bridge.checks import GONE_S
from rl.bridge.messages import Operator, Plan
from rl.bridge.wire import Command, State
from rl.spec import Spec

INF = float("inf")
STOP = states.ASKED.index(states.STOP)
UNKEPT = b"unkept"  # what a bridge says to itself
MOST_LOST = 100  # states in a row that are counted


class Codec(Protocol):
    """How a robot speaks: to and from bytes, by these and those before, and nothing else."""

    name: str  # as logs of flights have it

    def state(self, datagram: bytes) -> State | None: ...
    def command(self, command: Command) -> bytes: ...


class Ears:
    """One bridge's.  Nothing that is old, of another robot or not a number gets further."""

    def __init__(self, spec: Spec, codec: Codec, episodes: bool, tag: int = 0) -> None:
        """`tag` is of the artefact that its policy must be of."""
        self.spec, self.codec, self.episodes, self.tag = spec, codec, episodes, tag
        self.now = 0.0
        self.damped = True  # its motors are
        self.robot: State | None = None  # the newest
        self.operator: Operator | None = None
        self.met = False  # a policy has come, and is warm
        self.other = False  # one has come that is of another artefact
        self.step_s = 0.0  # s that the policy takes for a step, as it says
        self.ends = False  # the bridge itself: motors are to be left damped
        self.kept = True  # it: what is to be learned from
        self.heard: dict[str, float] = dict.fromkeys(("robot", "operator"), -INF)  # when
        self.bad = dict.fromkeys(("robot", "policy", "operator"), 0)  # in a row
        self.counts: Counter[str] = Counter()  # of what was not taken, by what it was
        # What nobody has looked at: it may come at any time of a tick.
        self.plans: list[Plan] = []
        self.events: list[int] = []  # that operators asked for
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """A tick, at a time in s."""
        self.now, self.lost, self.came = now, 0, 0  # states since the last
        self.reset = False  # an episode begins
        self.kept = True

    def hear(self, source: str, datagram: bytes) -> None:
        heard = getattr(self, f"_{source}")(datagram)
        if not heard:
            self.counts[f"{source}: {'old' if heard is None else 'unknown'}"] += 1

    def age(self, source: str) -> float:
        """s since it said anything; infinite before."""
        return self.now - self.heard[source]

    @property
    def asked(self) -> np.ndarray:
        """The operator's command [C], within its range."""
        said = self.operator
        return messages.within(self.spec.command, said.command if said else None)

    @property
    def action(self) -> np.ndarray:
        """What a human does in the policy's place [D], likewise."""
        said = self.operator
        return messages.within(self.spec.action, said.action if said else None)

    def _robot(self, datagram: bytes) -> bool | None:
        state = self.codec.state(datagram)
        if state is None:
            return False
        begins, silent = state.reset and self.episodes, self.age("robot") > GONE_S
        starts = silent and self.damped and not self.episodes  # and counts anew
        if self.robot and state.seq <= self.robot.seq and not starts:
            return None
        if not np.isfinite(np.concatenate([*state.readings.values()])).all():
            self.bad["robot"] += 1
            return True
        gap = state.seq - self.robot.seq - 1 if self.robot and not (begins or silent) else 0
        self.lost, self.came = self.lost + min(gap, MOST_LOST), self.came + 1
        self.robot, self.heard["robot"], self.bad["robot"] = state, self.now, 0
        self.reset |= begins
        return True

    def _policy(self, datagram: bytes) -> bool:
        message = wire.decode(datagram)
        if message and message.kind == wire.HELLO:
            # Who says of no file what it is, is taken at its word.
            mine = not (message.seq and self.tag) or message.seq == self.tag
            if mine and message.hash == self.spec.hash:
                self.met, self.step_s = True, message.time
            else:
                self.other = True
            return True
        plan = messages.plan_of(self.spec, message)
        if plan is None:
            return False
        good = plan.targets.size and np.isfinite(plan.targets).all()
        self.bad["policy"] = 0 if good else self.bad["policy"] + 1
        self.plans += [plan] if good else []
        return True

    def _operator(self, datagram: bytes) -> bool | None:
        message = wire.decode(datagram)
        if message and message.kind == wire.HELLO:
            self.operator = None  # who may be another, and numbers its words anew
            return True
        word = messages.operator_of(self.spec, message)
        if word is None:
            return False
        if self.operator and word.seq <= self.operator.seq:
            return None
        if not np.isfinite(np.concatenate([word.command, word.jog, word.action])).all():
            self.bad["operator"] += 1
            return True
        if word.event >= 0 and (self.operator is None or word.number != self.operator.number):
            self.events.append(word.event)
        self.operator, self.heard["operator"], self.bad["operator"] = word, self.now, 0
        return True

    def _bridge(self, datagram: bytes) -> bool:
        """Of itself: that it ends, or that what is to be learned from is not kept."""
        if datagram == UNKEPT:
            self.kept = False
        else:
            self.ends = True
        return True

    def _watcher(self, datagram: bytes) -> bool:
        """Of whom nothing is heard but that it is to stop."""
        word = messages.operator_of(self.spec, wire.decode(datagram))
        if word is None or word.event != STOP:
            return False
        self.events.append(word.event)
        return True
