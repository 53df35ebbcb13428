"""Settings of tasks for an SO-101: goals within its reach, and things of its size."""

from typing import Any

NEARBY: dict[str, Any] = {"goal_low": (0.17, -0.1, 0.03), "goal_high": (0.25, 0.1, 0.07)}
SMALL_CUBE: dict[str, Any] = {
    "half": (0.0125, 0.0125, 0.0125),
    "mass": 0.02,
    "near": 0.015,
    "cube_low": (0.18, -0.08),
    "cube_high": (0.24, 0.08),
    "goal_low": (0.18, -0.08, 0.05),
    "goal_high": (0.24, 0.08, 0.075),
}
