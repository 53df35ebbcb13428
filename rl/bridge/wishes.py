"""What is wished for in each state, before any limit: rest, a policy's targets, a human's or none.

A policy's plan has a target for each of its periods.  How late it is, is counted in periods that
were lived meanwhile, never in time: targets of periods that are past are left out, and the last is
held.
"""

import numpy as np

from rl.bridge import states
from rl.bridge.limiter import Limiter
from rl.bridge.limits import Limits
from rl.bridge.messages import Operator, Own, Plan
from rl.bridge.wire import State
from rl.spec import Spec

SOFT_S = 1.0  # s in which gains grow
SLOW = 0.25  # share of the joints' speeds at which it goes to its rest, at most
STOPPED = 1e-9  # of a move in a period


class Wishes:
    """One robot's, tick by tick of the wire; periods are the policy's."""

    def __init__(self, spec: Spec, limits: Limits, ticks: int) -> None:
        self.limits, self.ticks = limits, ticks
        self.dt = spec.control_dt / ticks
        self.speed = np.array([a.speed for a in spec.actuators])
        self.wished = self.start = np.zeros(len(spec.actuators))
        self.guided = bool(spec.action)  # a human acts through the policy, and not beside it
        self.state, self.since, self.soft, self.lasts = states.DISCONNECTED, 0.0, False, 0.0
        self.period = -1  # of the policy, in which it was armed
        self._arm()

    def _arm(self) -> None:
        """Begin a period that none was asked of before: an older answer is none to this."""
        self.plan: Plan | None = None
        self.period, self.phase = self.period + 1, 0  # and ticks of that
        self.oldest = self.period  # that it is asked of
        self.acted = -1  # the state that it was asked about last

    def enter(self, state: str, before: str, now: float, limiter: Limiter) -> None:
        """A new state, from another."""
        if self.guided and state in states.MOVING and before in states.MOVING and state != before:
            self.state = state  # its targets go on from where they were, whoever acts
            return
        self.state, self.since, self.start = state, now, limiter.targets.copy()
        if state == states.READY:
            self.soft = before == states.PASSIVE
            # A path of least jerk is at most 15/8 times as fast as one of even speed.
            way = np.abs(limiter.rest - self.start) * 15 / 8
            self.lasts = max(self.limits.stand_s, float(np.max(way / (SLOW * self.speed))))
        elif state == states.ARMED and before != states.INTERVENE:
            self._arm()

    def stands(self, now: float) -> bool:
        """It has come to its rest."""
        return self.state == states.READY and now - self.since >= self.lasts

    def due(self, robot: State | None) -> bool:
        """A period begins, and there is a state that the policy was not asked about."""
        if self.phase or robot is None or robot.seq == self.acted:
            return False
        self.acted = robot.seq
        return True

    def take(self, plan: Plan) -> bool:
        """Follow `plan` if it answers a later question than the one before, and no future one."""
        least = self.plan.first + 1 if self.plan else self.oldest
        if not least <= plan.first <= self.period:
            return False
        self.plan = plan
        return True

    @property
    def own(self) -> Own | None:
        """What a policy that learns told of itself last."""
        return self.plan.own if self.plan else None

    @property
    def age(self) -> float:
        """s since the last target that there is was due."""
        due = self.plan.first + len(self.plan.targets) - 1 if self.plan else self.oldest
        return max((self.period - due) * self.ticks + self.phase, 0) * self.dt

    def at(
        self, now: float, limiter: Limiter, operator: Operator | None
    ) -> tuple[np.ndarray, float]:
        """The targets [A] wished for in this tick, and how much of the gains' stiffness."""
        self.wished = WISHES[self.state](self, now, limiter, operator)
        if self.state in states.MOVING:
            self.phase = (self.phase + 1) % self.ticks
            self.period += self.phase == 0
        soft = self.state == states.READY and self.soft
        return self.wished, min(1.0, (now - self.since) / SOFT_S) if soft else 1.0

    def _rising(self, now: float, limiter: Limiter, operator: Operator | None) -> np.ndarray:
        s = min((now - self.since) / self.lasts, 1.0) if self.lasts else 1.0
        return self.start + (10 * s**3 - 15 * s**4 + 6 * s**5) * (limiter.rest - self.start)

    def _following(self, now: float, limiter: Limiter, operator: Operator | None) -> np.ndarray:
        if self.plan is None:
            return limiter.targets
        target = self.plan.targets[min(self.period - self.plan.first, len(self.plan.targets) - 1)]
        blend = min((now - self.since) / max(self.limits.blend_s, 1e-9), 1.0)
        return target if blend >= 1 else self.start + blend * (target - self.start)

    def _jogging(self, now: float, limiter: Limiter, operator: Operator | None) -> np.ndarray:
        if self.guided:
            return self._following(now, limiter, operator)
        if operator is None or not operator.deadman:
            return limiter.targets
        return limiter.targets + np.clip(operator.jog, -self.speed, self.speed) * self.dt

    def _stopping(self, now: float, limiter: Limiter, operator: Operator | None) -> np.ndarray:
        """Where it is, as soon as it has come to a stop."""
        if (np.abs(limiter.moves) > STOPPED).any():
            self.start = limiter.targets
        return self.start


WISHES = {
    states.READY: Wishes._rising,
    states.ARMED: Wishes._following,
    states.INTERVENE: Wishes._jogging,
    states.HOLD: Wishes._stopping,
}
