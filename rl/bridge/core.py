"""What a bridge thinks: messages in, a command out, tick by tick, and nothing else.

No clock, no socket and no chance: the same messages at the same times lead to the same command to
the last bit, in a robot's process, in a test and when a log is replayed.  numpy alone.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import messages, refusals, states, wire
from rl.bridge.checks import GONE_S, Checks, Reason, Seen
from rl.bridge.ears import INF, Codec, Ears
from rl.bridge.limiter import Limited, Limiter
from rl.bridge.limits import Limits
from rl.bridge.refusals import Clears, Punctual, Refused
from rl.bridge.wire import Command
from rl.bridge.wishes import Wishes
from rl.spec import Spec


@dataclass(frozen=True)
class Setup:
    """All that decides what a core does, but for what it hears."""

    spec: Spec
    limits: Limits
    ticks: int  # of the wire, in a period of the policy
    episodes: bool = False  # a simulated robot may begin anew, armed
    artefact: str = ""  # SHA-256 of the policy's file


class Told(NamedTuple):
    """What a tick came to."""

    datagram: bytes  # to the robot; empty where nothing is sent
    command: Command | None
    state: str
    mask: Reason
    stages: np.ndarray  # [stages, A] of the limiter; empty where it is damped


class Core:
    """One robot's.  In a tick: `begin`, `hear` robot and operators, `sense`, `hear` the policy,
    `act`."""

    def __init__(self, setup: Setup, codec: Codec) -> None:
        setup.limits.check()
        self.setup, self.codec = setup, codec
        self.ears = Ears(setup.spec, codec, setup.episodes, wire.tag(setup.artefact))
        self.limiter = Limiter(setup.spec, setup.limits, setup.ticks)
        self.checks = Checks(setup.spec, setup.limits)
        self.wishes = Wishes(setup.spec, setup.limits, setup.ticks)
        self.dt = setup.spec.control_dt / setup.ticks  # s between ticks
        self.punctual = Punctual(self.dt, setup.limits.late, setup.limits.missed)
        self.state, self.why, self.mask = states.DISCONNECTED, Reason(0), Reason(0)
        self.now, self.late, self.begun = 0.0, 0.0, 0  # the last: episodes, each time it was armed
        self.forget = False  # the policy is to forget what was
        self.clearing = False  # an operator said so in this tick
        self.refusal = Refused()  # of the last that was asked for
        self.clears = Clears(setup.limits.clears)

    def begin(self, now: float, late: float) -> None:
        """A tick, at a time in s, so many s after it should have begun."""
        self.now, self.late, self.clearing = now, late, False
        self.punctual.add(now, late)
        self.ears.begin(now)
        self.ears.damped = self.state in states.DAMPED

    def hear(self, source: str, datagram: bytes) -> None:
        """A message of the robot, the policy, the operator, or a watcher who may stop it; and of
        the bridge itself, that it ends."""
        self.ears.hear(source, datagram)

    def sense(self) -> bytes:
        """What came of what was heard: the question to the policy, empty if there is none."""
        self._take_plans()
        silent = self.ears.age("robot")
        if self.ears.reset:
            self._begin_episode()
        elif self.state == states.DISCONNECTED and silent <= self.setup.limits.state_age:
            self._go(states.CONNECT, Reason(0))
        elif self.state == states.PASSIVE and silent > GONE_S:
            self._go(states.DISCONNECT, Reason.STATE)
        self.mask, event = self.checks.judge(self._seen())
        if event and self.state not in (states.DISCONNECTED, states.FAULT):
            self._go(event, self.mask)
        events, self.ears.events = self.ears.events, []
        for asked in events:
            self._ask(states.ASKED[asked])
        if self.ears.ends and states.RELAX in states.TABLE[self.state]:
            self._go(states.RELAX, Reason.ASKED)
        if self.state not in states.MOVING or not self.wishes.due(self.ears.robot):
            return b""
        return wire.encode(self._question())

    def act(self) -> Told:
        """The command of this tick."""
        self._take_plans()
        if self.state == states.DISCONNECTED or self.ears.robot is None:
            return Told(b"", None, self.state, self.mask, np.zeros(0))
        angles, speeds = self._joints()
        if self.state in (states.PASSIVE, states.FAULT):
            self.limiter.begin(angles)
            command, stages = self._damped(), np.zeros(0)
        else:
            wished, stiff = self.wishes.at(self.now, self.limiter, self.ears.operator)
            old = bool(self.mask & Reason.STATE)
            limited = self.limiter.tick(wished, angles, speeds, stiff, old)
            command, stages = self._command(limited), limited.stages
        over = self.ears.operator.over if self.ears.operator else 0
        command = command._replace(again=self.setup.episodes and over == self.begun > 0)
        return Told(self.codec.command(command), command, self.state, self.mask, stages)

    def _take_plans(self) -> None:
        for plan in self.ears.plans:
            self.ears.counts["policy: old"] += not self.wishes.take(plan)
        self.ears.plans = []

    def _ask(self, event: str) -> None:
        """An operator's word; what cannot be done is refused with the reason."""
        self.clearing |= event == states.CLEAR
        why, number = self._why_not(event)
        self.refusal = Refused(why, states.ASKED.index(event), number) if why else Refused()
        if why:
            return
        if event == states.CLEAR and self.why != Reason.ASKED:
            self.clears.add(self.now)
        self._go(event, Reason.ASKED)

    def _why_not(self, event: str) -> tuple[int, int]:
        """Why an operator's word is refused, of refusals.WHY, and the number that this tells."""
        if event not in states.TABLE[self.state]:
            return refusals.NOWHERE, states.STATES.index(self.state)
        after, ears = states.after(self.state, event), self.ears
        stirs = after in (states.READY, *states.MOVING) or event == states.CLEAR
        old = ears.age("robot") > self.setup.limits.state_age  # of who is damped nobody minds
        if stirs and (mask := self.mask | Reason.STATE * old):
            return refusals.UNSOUND, int(mask)
        if event == states.CLEAR and self.why != Reason.ASKED and self.clears.spent(self.now):
            return refusals.CLEARED, self.setup.limits.clears
        if after == states.ARMED and not ears.met:
            return refusals.OTHER if ears.other else refusals.ABSENT, 0
        if event != states.ARM:
            return refusals.NOTHING, 0
        if ears.step_s > self.setup.spec.control_dt and not self.waits:
            return refusals.SLOW, round(min(ears.step_s, 1e3) * 1e3)
        if self.state == states.READY and not self.wishes.stands(self.now):
            return refusals.RISING, 0
        late = self.punctual.worst
        return (refusals.LATE, round(min(late, 1e3) * 1e3)) if late else (refusals.NOTHING, 0)

    @property
    def refused(self) -> str:
        """What was asked for last and refused, and why."""
        return self.refusal.text

    def _go(self, event: str, why: Reason) -> None:
        before, self.state = self.state, states.after(self.state, event)
        if self.state == before:
            return
        self.why = why
        if before == states.PASSIVE:
            self.limiter.begin(self._joints()[0])  # as it is now, and not a tick ago
        if self.state == states.ARMED and before != states.INTERVENE:
            self.forget, self.ears.bad["policy"] = True, 0
            self.begun += 1
        self.wishes.enter(self.state, before, self.now, self.limiter)

    def _begin_episode(self) -> None:
        self.ears.reset, self.forget = False, True
        self.ears.bad["policy"] = 0
        self.begun += 1
        self.state, self.why = states.ARMED, Reason(0)
        self.limiter.begin(self._joints()[0])
        self.checks.reset()
        self.wishes.enter(states.ARMED, states.ARMED, -INF, self.limiter)

    def _question(self) -> wire.Message:
        assert self.ears.robot is not None
        spec, forget, self.forget = self.setup.spec, self.forget, False
        return messages.ask_message(spec, messages.Ask(
            self.wishes.period, self.now, self.ears.robot.readings, self.ears.asked, forget,
            self.waits, self.ears.action, self.state == states.INTERVENE,
        ))  # fmt: skip

    @property
    def waits(self) -> bool:
        """The robot's time stands still until it is answered."""
        return bool(self.ears.robot and self.ears.robot.waits)

    def tells(self, tick: int) -> bool:
        """Operators are told in this tick how it is: once in a period, when it begins."""
        if self.state in states.MOVING:
            return self.ears.reset or not self.wishes.phase
        return self.ears.reset or tick % self.setup.ticks == 0

    def status(self, tick: int, loop: messages.Loop = messages.Loop()) -> messages.Status:
        """What operators are told."""
        robot, operator = self.ears.robot, self.ears.operator
        blank = {s.name: np.zeros(s.size) for s in self.setup.spec.sensors}
        return messages.Status(
            tick, robot.time if robot else self.now, self.state, int(self.why), int(self.mask),
            operator.number if operator else 0, robot.readings if robot else blank,
            self.limiter.targets, self.waits, self.ears.asked, loop._replace(loss=self.checks.loss),
            self.setup.episodes, self.refusal, self.begun, self.wishes.own,
        )  # fmt: skip

    def _seen(self) -> Seen:
        ears, robot, (angles, speeds) = self.ears, self.ears.robot, self._joints()
        # A policy that is not asked cannot do better.
        bad = [ears.bad[who] for who in ears.bad if who != "policy" or self.state in states.MOVING]
        wished = np.clip(self.wishes.wished, self.limiter.motion.low, self.limiter.motion.high)
        return Seen(
            self.now, self.state, robot.readings if robot else {}, angles, speeds, wished,
            ears.age("robot"), self.wishes.age, ears.age("operator"), max(bad),
            ears.lost, ears.came, robot.heat if robot else 0.0, bool(robot and robot.failed),
            self.late, ears.kept,
        )  # fmt: skip

    def _joints(self) -> tuple[Any, Any]:
        """Positions and speeds [A] of the motors' joints, where all are measured."""
        motors, robot = self.setup.spec.actuators, self.ears.robot
        if robot is None or not all(motor.position and motor.velocity for motor in motors):
            return None, None
        angles = [robot.readings[motor.position][0] for motor in motors]
        speeds = [robot.readings[motor.velocity][0] for motor in motors]
        return np.array(angles, float), np.array(speeds, float)

    def _damped(self) -> Command:
        off, damping = np.zeros(len(self.limiter.rest)), self.setup.limits.damping
        return Command(
            self._seq, self.limiter.targets, off, off + damping, True, self.ears.asked,
            self.clearing,
        )  # fmt: skip

    def _command(self, limited: Limited) -> Command:
        self.mask |= limited.mask
        asked = self.ears.asked
        return Command(self._seq, limited.targets, limited.kp, limited.kd, False, asked)

    @property
    def _seq(self) -> int:
        assert self.ears.robot is not None
        return self.ears.robot.seq
