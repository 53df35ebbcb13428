"""A bridge's core without a process: tests speak to it in messages, and hear what motors hear."""

from functools import cache
from typing import Any

import numpy as np

import envs
from rl import export
from rl.bridge import messages, states, wire
from rl.bridge.core import Core, Setup, Told
from rl.bridge.drivers.udp import Codec
from rl.bridge.ears import UNKEPT
from rl.bridge.limits import Limits
from rl.bridge.messages import Operator, Plan
from rl.bridge.wire import State
from rl.spec import Spec

DT = 0.02


@cache
def go2() -> Spec:
    task: Any = envs.make_task("go2-joystick-flat")
    public = [name for name in task.spec.sensors if name not in task.spec.privileged]
    sensors, channels = export.sensors(task.model(), public), export.channels(task.spec.command)
    of = task.spec.actuators, public, task.legged.pose, task.spec.speeds
    return Spec("go2", sensors, export.actuators(task.model(), *of), channels, DT, 0.004, 60.0)


@cache
def of(field: str) -> np.ndarray:
    return np.array([getattr(motor, field) for motor in go2().actuators])


def body(angles: Any = None, speeds: Any = 0.0, quat: Any = (1, 0, 0, 0)) -> dict[str, np.ndarray]:
    """Readings, at rest and upright where nothing else is said."""
    joints = [of("rest") if angles is None else angles, np.broadcast_to(speeds, 12)]
    numbers = np.concatenate([*joints, np.zeros(3), quat]).astype(np.float32)
    told = {sensor.name: numbers[i : i + 1] for i, sensor in enumerate(go2().sensors[:24])}
    return told | {"gyro": numbers[24:27], "orientation": numbers[27:]}


def stirred(spec: Spec, told: dict[str, np.ndarray], seq: int) -> dict[str, np.ndarray]:
    """Readings in which what moves is not quite where it was."""
    wiggle = np.float32(1e-6 * (seq % 2))
    moves = [motor.position for motor in spec.actuators if told[motor.velocity][0]]
    names = [*moves, *(["gyro"] if moves and "gyro" in told else [])]
    return told | {name: told[name] + wiggle for name in names}


class Rig:
    """A core that is spoken to tick by tick."""

    def __init__(
        self, limits: Limits = Limits(), ticks: int = 1, episodes: bool = False, spec: Any = None
    ) -> None:
        self.spec = spec or go2()
        self.core = Core(Setup(self.spec, limits, ticks, episodes=episodes), Codec(self.spec))
        self.number, self.seq, self.word, self.asks = -1, 0, 0, 0
        self.asked: messages.Ask | None = None  # in the last tick
        self.core.hear("policy", wire.encode(wire.hello(self.spec)))

    def tick(
        self, told: Any = None, wished: Any = None, event: str = "", late: float = 0.0, **more: Any
    ) -> Told:
        """One tick in which the robot says `told`, the policy `wished` [A] or [n, A] if it is
        asked, and the operator what it does; None for those who say nothing."""
        self.number += 1
        self.core.begin(self.number * self.core.dt, late)
        if told is not None:
            self.robot(told, **{k: x for k, x in more.items() if k in (*State._fields, "stirs")})
        if not more.get("kept", True):
            self.core.hear("bridge", UNKEPT)
        if more.get("operator", True):
            self.operator(event, **{k: x for k, x in more.items() if k in Operator._fields})
        self.asked = messages.ask_of(self.spec, wire.decode(self.core.sense()))
        if self.asked and wished is not None:
            self.policy(np.atleast_2d(np.asarray(wished, float)), self.asked.period)
        return self.core.act()

    def robot(self, told: Any, **more: Any) -> None:
        self.seq += 1
        if more.pop("stirs", True):
            told = stirred(self.spec, told, self.seq)
        state = State(more.pop("seq", self.seq), self.core.now, told, more.pop("reset", False))
        message = wire.state_message(self.spec, state._replace(**more))
        self.core.hear("robot", wire.encode(message))

    def policy(self, targets: np.ndarray, first: int) -> None:
        plan = messages.plan_message(self.spec, Plan(first, targets), 0.0)
        self.core.hear("policy", wire.encode(plan))

    def operator(self, event: str = "", **more: Any) -> None:
        self.word += bool(event)
        self.asks += 1
        code = states.ASKED.index(event) if event else -1
        parts = self.spec.command, self.spec.actuators, self.spec.action
        blank = Operator(self.asks, code, self.word, False, *(np.zeros(len(x)) for x in parts))
        message = messages.operator_message(self.spec, blank._replace(**more), 0.0)
        self.core.hear("operator", wire.encode(message))

    def armed(self, told: Any = None) -> "Rig":
        """After it has stood up and been armed, and blended in."""
        told = body() if told is None else told
        self.tick(told)
        self.tick(told, event=states.STAND)
        for _ in range(round(3 / self.core.dt)):
            self.tick(told)
        self.tick(told, of("rest"), event=states.ARM)
        for _ in range(round(1 / self.core.dt)):
            self.tick(told, of("rest"))
        assert self.core.state == states.ARMED, (self.core.refused, self.core.why)
        return self
