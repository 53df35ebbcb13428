"""How a robot stands, as far as it is measured."""

from collections.abc import Mapping
from typing import Any

import numpy as np

STILL = 0.3, 0.5, 0.5  # rad of tilt, rad/s of the body, rad/s of joints: less is standing still


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


def still(readings: Mapping[str, np.ndarray], speeds: Any) -> bool:
    """It stands, and can be left alone; speeds [A] of its joints, None if nobody measures them."""
    lean = np.radians(tilt_of(readings))
    turn = float(np.linalg.norm(readings["gyro"])) if "gyro" in readings else np.inf
    moves = np.inf if speeds is None else float(np.abs(speeds).max())
    return bool(lean < STILL[0] and turn < STILL[1] and moves < STILL[2])
