"""The last thing before the wire: whatever a policy says, motors are told only what is allowed.

numpy alone.  A tick gives a command in one of three modes: the policy's targets within the limits;
hold, where there is nothing good to follow, of the last targets; and damping, which is final until
a reset.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl.bridge.wire import Command
from rl.motion import motion
from rl.spec import Spec

RUN, HOLD, DAMPING = "run", "hold", "damping"


@dataclass(frozen=True)
class Limits:
    max_age: float = 0.1  # s, of a state that may still be acted upon
    hold_s: float = 0.5  # s of holding before damping
    max_tilt: float = 180.0  # degrees, if the policy's task has no less
    damping: float = 2.0  # N m s/rad, of each motor that is damped
    speed: float = 1.0  # share of the joints' speeds that targets may move at
    torque: float = 1.0  # times a motor's own, and its rate's, that a target may ask for
    acceleration: float = 1.0  # times the joints' own

    def check(self) -> None:
        """Raise ValueError unless each limits something, and not all."""
        for name, good, what in (
            ("max_age", 0 < self.max_age <= 10, "s above 0, at most 10"),
            ("hold_s", 0 <= self.hold_s <= 10, "s from 0 to 10"),
            ("max_tilt", 0 < self.max_tilt <= 180, "degrees above 0, at most 180"),
            ("damping", 0 < self.damping <= 100, "N m s/rad above 0, at most 100"),
            ("speed", 0.01 <= self.speed <= 1, "a share from 0.01 to 1"),
            ("torque", 0.01 <= self.torque <= 100, "a factor from 0.01 to 100"),
            ("acceleration", 0.01 <= self.acceleration <= 100, "a factor from 0.01 to 100"),
        ):
            if not good:
                raise ValueError(f"limits.{name} is {getattr(self, name)}; it takes {what}.")


class Limiter:
    """Turns wished targets into a command, tick by tick."""

    def __init__(self, spec: Spec, limits: Limits) -> None:
        limits.check()
        self.spec, self.limits = spec, limits
        names = ("low", "high", "rest", "kp", "kd", "torque", "speed", "acceleration",
                 "torque_rate")  # fmt: skip
        facts = {name: np.array([getattr(a, name) for a in spec.actuators]) for name in names}
        self.motion = motion(
            facts, spec.control_dt, limits.speed, limits.torque, limits.acceleration
        )
        self.rest = np.clip(facts["rest"], facts["low"], facts["high"])
        self.max_tilt = min(limits.max_tilt, spec.max_tilt)
        self.reset()

    def reset(self) -> None:
        """Begin anew, from where the joints will be, or from rest if nothing measures that."""
        self.mode, self.why, self.held = RUN, "", 0.0
        self.targets, self.begun = self.rest, False
        self.moved = np.zeros_like(self.rest)  # by the targets, in the last tick

    def tick(
        self, seq: int, wished: Any, readings: Mapping[str, np.ndarray], age: float, asked: Any
    ) -> Command:
        """The command for `wished` targets, given what was measured `age` s ago."""
        if not self.begun:
            angles, _ = self._joints(readings)
            if angles is not None and np.isfinite(angles).all():
                self.targets = np.clip(angles, self.motion.low, self.motion.high)
            self.begun = True
        if self.mode != DAMPING:
            self._judge(wished, readings, age)
        before = self.targets
        if self.mode == RUN:
            self._follow(np.asarray(wished, float), readings)
        self.moved = self.targets - before
        damped = self.mode == DAMPING
        count = len(self.targets)
        return Command(
            seq, self.targets.copy(), np.zeros(count) if damped else self.motion.kp,
            np.full(count, self.limits.damping) if damped else self.motion.kd, damped,
            np.asarray(asked),
        )  # fmt: skip

    def _judge(self, wished: Any, readings: Mapping[str, np.ndarray], age: float) -> None:
        """Which mode this tick is in."""
        if (tilt := tilt_of(readings)) > self.max_tilt:
            self.mode, self.why = DAMPING, f"a tilt of {tilt:.1f} degrees, beyond {self.max_tilt:g}"
            return
        if fault := self._fault(wished, readings, age):
            self.mode, self.why = HOLD, self.why if self.mode == HOLD else fault
            self.held += self.spec.control_dt
            if self.held > self.limits.hold_s:
                self.mode = DAMPING
            return
        self.mode, self.held = RUN, 0.0

    def _fault(self, wished: Any, readings: Mapping[str, np.ndarray], age: float) -> str:
        """What is wrong with what came in, if anything."""
        try:
            targets = np.asarray(wished, float)
        except (TypeError, ValueError, OverflowError):
            return "targets that are no numbers"
        if targets.shape != self.targets.shape:
            return f"targets of shape {targets.shape}"
        if not np.isfinite(targets).all():
            return "targets that are not finite"
        if not 0 <= age <= self.limits.max_age:
            return f"a state {age:.2f} s old"
        for name, value in readings.items():
            if not np.isfinite(value).all():
                return f"a reading of {name} that is not finite"
        return ""

    def _follow(self, wished: np.ndarray, readings: Mapping[str, np.ndarray]) -> None:
        """Move the targets to what is wished, as far as position, rate and torque allow.

        And acceleration, where those do: a motor is not overloaded to brake it gently.
        """
        angles, speeds = self._joints(readings)
        low, high = self.motion.bounds(self.targets, angles, speeds, np)
        if (low > high).any():
            at = int(np.argmax(low - high))
            name = self.spec.actuators[at].name
            self.mode, self.why = DAMPING, f"no target of {name} keeps its limits"
            return
        self.targets = np.clip(self.motion.eased(wished, self.targets, self.moved, np), low, high)

    def _joints(self, readings: Mapping[str, np.ndarray]) -> tuple[Any, Any]:
        """Positions and speeds [A] of the motors' joints, where all are measured."""
        motors = self.spec.actuators
        if not all(motor.position and motor.velocity for motor in motors):
            return None, None
        angles = [readings[motor.position][0] for motor in motors]
        speeds = [readings[motor.velocity][0] for motor in motors]
        return np.array(angles, float), np.array(speeds, float)


def tilt_of(readings: Mapping[str, np.ndarray]) -> float:
    """Degrees that the body leans from upright; 0 where nothing measures it."""
    if "orientation" in readings:
        w, x, y, z = np.asarray(readings["orientation"], float)
        size = w * w + x * x + y * y + z * z
        up = (size - 2 * (x * x + y * y)) / max(size, 1e-18)  # 0 of a sensor that is dead
    elif "up" in readings:
        up = float(readings["up"][2]) / max(float(np.linalg.norm(readings["up"])), 1e-9)
    else:
        return 0.0
    return float(np.degrees(np.arccos(np.clip(up, -1, 1))))
