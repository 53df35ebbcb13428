"""How motors' targets may move in a tick: within range, speed, acceleration, torque and its rate.

The limiter before the wire keeps it, in numpy, whatever a policy says; a task whose `control` keeps
it too asks for nothing that the limiter cuts.  Arrays are of either kind, `xp` is their module.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Motion:
    """Limits [A], each of one motor; torque = kp (target - angle) - kd speed."""

    low: Any  # rad or m, of targets
    high: Any
    kp: Any
    kd: Any
    torque: Any  # N m or N, at most
    step: Any  # most that a target moves in a tick
    gain: Any  # most that its move changes from tick to tick; 0: no limit

    def bounds(self, targets: Any, angles: Any, speeds: Any, xp: Any) -> tuple[Any, Any]:
        """Least and most [A] that the next targets may be, after these.

        Of joints at these angles, if not None, and speeds: torque limits how far they are ahead.
        """
        low = xp.maximum(self.low, targets - self.step)
        high = xp.minimum(self.high, targets + self.step)
        if angles is None:
            return low, high
        drag, kp = self.kd * speeds, xp.maximum(self.kp, 1e-9)  # a limp motor has no bounds
        low = xp.maximum(low, angles + (drag - self.torque) / kp)
        return low, xp.minimum(high, angles + (drag + self.torque) / kp)

    def eased(self, wished: Any, targets: Any, moved: Any, xp: Any) -> Any:
        """Targets [A] that speed up and slow down as joints may, and can stop before their ends.

        `moved` is by how much targets moved last.
        """
        gain = self.gain
        most = lambda room: xp.sqrt(gain**2 + 2 * gain * xp.maximum(room, 0)) - gain  # noqa: E731
        least = xp.maximum(moved - gain, -most(targets - self.low))
        top = xp.minimum(moved + gain, most(self.high - targets))
        # Where it is too late to stop it brakes as it may.
        least, top = xp.minimum(least, moved + gain), xp.maximum(top, moved - gain)
        eased = xp.clip(wished, targets + least, targets + top)
        return xp.where(gain > 0, eased, wished)

    def together(self, by: Any, moved: Any, xp: Any) -> Any:
        """Moves [n] of the first motors, as far towards `by` as none of them is too slow for.

        Each for itself would be cut out of step with the others, and a tool leave its way and tilt.
        """
        step, gain = self.step[: len(by)], self.gain[: len(by)]
        share = lambda most, x: xp.minimum(1, xp.min(most / xp.maximum(xp.abs(x), 1e-12)))  # noqa: E731
        change = by * share(step, by) - moved
        return moved + change * share(np.where(gain > 0, gain, np.inf), change)


def motion(
    facts: dict[str, np.ndarray],
    dt: float,
    speed: float = 1.0,
    torque: float = 1.0,
    acceleration: float = 1.0,
) -> Motion:
    """Of motors' limits by their names in `rl.spec.Actuator`, scaled, in ticks of `dt` s."""
    kp, rate = facts["kp"], torque * facts["torque_rate"]
    fastest = speed * facts["speed"]  # and of a target, while its joint stands still:
    fastest = np.where(rate > 0, np.minimum(fastest, rate / np.maximum(kp, 1e-9)), fastest)
    return Motion(
        facts["low"], facts["high"], kp, facts["kd"], torque * facts["torque"],
        step=fastest * dt, gain=acceleration * facts["acceleration"] * dt**2,
    )  # fmt: skip
