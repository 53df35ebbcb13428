"""The last thing before the wire: whatever is wished for, motors are told only what is allowed.

numpy alone.  The wire is faster than the policy, so that its limits are of the policy's period: in
none does a target move further, or change its pace by more, than in one tick of the policy.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rl.bridge.checks import Reason
from rl.bridge.limits import Limits
from rl.motion import motion
from rl.spec import Spec


class Limited(NamedTuple):
    """What motors are told, all [A], and how it came to that."""

    targets: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    stages: np.ndarray  # [stages, A] the targets after each
    mask: Reason  # of those that changed something


class Tick(NamedTuple):
    """What a stage knows, all [A]; `angles` and `speeds` are None where nobody measures them."""

    targets: np.ndarray  # wished for, so far
    kp: np.ndarray
    kd: np.ndarray
    angles: Any
    speeds: Any
    old: bool = False  # they were, some time ago: nobody knows where joints are


class Limiter:
    """Turns what is wished for into what is told, tick by tick of the wire."""

    def __init__(self, spec: Spec, limits: Limits, ticks: int) -> None:
        """Of a wire that has so many ticks in a period of the policy."""
        names = ("low", "high", "rest", "kp", "kd", "torque", "speed", "acceleration",
                 "torque_rate")  # fmt: skip
        facts = {name: np.array([getattr(a, name) for a in spec.actuators]) for name in names}
        self.motion = motion(
            facts, spec.control_dt, limits.speed, limits.torque, limits.acceleration
        )
        self.rest = np.clip(facts["rest"], facts["low"], facts["high"])
        self.ticks = ticks
        self.begin(None)

    def begin(self, angles: Any) -> None:
        """As if the targets had always been where the joints are, or at rest if that is unknown."""
        start = self.rest
        if angles is not None and np.isfinite(angles).all():
            start = np.clip(angles, self.motion.low, self.motion.high)
        self.told = np.tile(start, (2 * self.ticks, 1))  # of two periods, the newest last

    @property
    def targets(self) -> np.ndarray:
        """Those told last [A]."""
        return self.told[-1]

    @property
    def moves(self) -> np.ndarray:
        """By how much they moved in the last period [A]."""
        return self.told[-1] - self.told[-1 - self.ticks]

    def tick(
        self, wished: np.ndarray, angles: Any, speeds: Any, stiff: float = 1.0, old: bool = False
    ) -> Limited:
        """What is told for `wished` targets, with that share of the gains' stiffness; whether
        angles and speeds are too `old` to move for their sake."""
        now = Tick(wished, stiff * self.motion.kp, self.motion.kd.copy(), angles, speeds, old)
        stages, mask = [], Reason(0)
        for stage, reason in STAGES.items():
            after = stage(self, now)
            if np.any((after.targets != now.targets, after.kp != now.kp)):
                mask |= reason
            stages.append(after.targets)
            now = after
        self.told = np.roll(self.told, -1, axis=0)
        self.told[-1] = now.targets
        return Limited(now.targets.copy(), now.kp, now.kd, np.stack(stages), mask)


def position(limiter: Limiter, now: Tick) -> Tick:
    """Within the range of each joint."""
    return now._replace(targets=np.clip(now.targets, limiter.motion.low, limiter.motion.high))


def pace(limiter: Limiter, now: Tick) -> Tick:
    """No further in any period than a joint's speed, and no sharper than its acceleration."""
    told, n = limiter.told, limiter.ticks
    if n == 1:
        eased = limiter.motion.eased(now.targets, told[1], told[1] - told[0], np)
    else:
        eased = np.where(limiter.motion.gain > 0, _smooth(limiter, now.targets), now.targets)
    return now._replace(targets=np.clip(eased, *_reach(limiter, now.targets)))


def _smooth(limiter: Limiter, wished: np.ndarray) -> np.ndarray:
    """Targets [A] on the quickest way to what is wished for, to come to a stop there.

    A policy of the wire's own rate sees how far its targets came; between its answers nobody does.
    """
    step, gain = limiter.motion.step / limiter.ticks, limiter.motion.gain / limiter.ticks**2
    at, moved = limiter.told[-1], limiter.told[-1] - limiter.told[-2]
    room = wished - at
    most = np.sqrt(gain**2 + 2 * gain * np.abs(room)) - gain
    move = np.clip(np.clip(room, -most, most), moved - gain, moved + gain)
    return at + np.clip(move, -step, step)


def torque(limiter: Limiter, now: Tick) -> Tick:
    """Not so far from where the joint is that its motor would pull harder than it may.

    A motor is not overloaded to brake its target gently, but nor does that jump, or go after a
    joint that is not heard of: where it cannot come near enough, both gains are scaled.
    """
    if now.angles is None:
        return now
    most, kp = limiter.motion.torque, np.maximum(now.kp, 1e-9)
    drag, still = now.kd * now.speeds, (now.targets, now.targets)
    low, high = still if now.old else _reach(limiter, now.targets)
    near = np.clip(now.targets, now.angles + (drag - most) / kp, now.angles + (drag + most) / kp)
    near = np.clip(near, np.minimum(low, now.targets), np.maximum(high, now.targets))
    pull = np.abs(now.kp * (near - now.angles) - drag)
    share = np.where(pull > most * (1 + 1e-9), most / np.maximum(pull, 1e-9), 1.0)
    return now._replace(targets=near, kp=now.kp * share, kd=now.kd * share)


def _reach(limiter: Limiter, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and most [A] that the next targets may be for the speed's sake, and no further out of
    their range than these."""
    period, motion = limiter.told[limiter.ticks :], limiter.motion
    low = np.maximum(np.minimum(motion.low, targets), period.max(0) - motion.step)
    return low, np.minimum(np.maximum(motion.high, targets), period.min(0) + motion.step)


# In this order; each is needed (tests/test_judged.py takes them out one by one).
STAGES: dict[Callable[[Limiter, Tick], Tick], Reason] = {
    position: Reason.POSITION, pace: Reason.PACE, torque: Reason.TORQUE,
}  # fmt: skip
