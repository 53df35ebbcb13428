"""How a real robot may differ from its model: what tasks train against."""

from typing import Any

from envs.locomotion.push import Pushes
from envs.randomise import Ranges

# MuJoCo Playground's: the ground's friction from 0.4 to 1.0, and so on.
PLAYGROUND = Ranges(
    friction=(0.4 / 0.6, 1.0 / 0.6), frictionloss=(0.9, 1.1), armature=(1.0, 1.05),
    mass=(0.9, 1.1), payload=(-1.0, 1.0), com=(-0.05, 0.05), encoder=(-0.05, 0.05),
)  # fmt: skip
# The Go2's: those, and what else of a robot is known by no table.
REAL = Ranges(
    friction=(0.4 / 0.6, 1.0 / 0.6), frictionloss=(0.5, 1.5), armature=(0.9, 1.2),
    density=(0.9, 1.1), inertia=(0.9, 1.1), stiffness=(0.9, 1.1), damping=(0.8, 1.2),
    strength=(0.85, 1.0), payload=(-1.0, 1.0), com=(-0.05, 0.05), encoder=(-0.05, 0.05),
)  # fmt: skip
KICKS = Pushes(kick=(0.0, 3.0))  # m/s, as Playground's

DRAWN: dict[str, Any] = {"measured": True, "randomised": 1.0, "ranges": REAL}
WALKING: dict[str, Any] = DRAWN | {
    "history": 3, "pushes": KICKS, "target_delay": (0, 1), "curriculum_on": True,
}  # fmt: skip
