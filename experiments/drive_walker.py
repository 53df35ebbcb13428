"""What a walker shows on its tour through the bridge: velocities, feet on the ground, torques."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from rl import runs
from rl.artefact import Artefact

# s, then forward in m/s, left in m/s, and a turn to the left in rad/s.
TOUR = (
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 0.8, 0.0, 0.0),
    (5.0, 0.5, 0.0, 1.0),
    (9.0, 0.0, 0.4, 0.0),
    (12.0, -0.5, 0.0, 0.0),
    (15.0, 0.0, 0.0, -1.0),
    (18.0, 0.0, 0.0, 0.0),
)
CHANNELS = ("forward", "m/s"), ("left", "m/s"), ("turn left", "rad/s")  # of `velocities`


def tour(path: Path, size: int, script: Path | None) -> Path:
    """`script`, or one that shows what a walker does, zeros for a robot with other commands."""
    rows = TOUR if size == len(TOUR[0]) - 1 else [(0.0, *[0.0] * size)]
    made = "".join(",".join(map(str, row)) + "\n" for row in rows).encode()
    runs.write(path, script.read_bytes() if script else made)
    return path


def velocities(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Of the trunk [T, 3], in its own frame: forward, left, m/s, and turning left, rad/s."""
    achieved = np.zeros((len(qpos), 3))
    inverse, local = np.zeros(4), np.zeros(3)
    for t, (pose, speed) in enumerate(zip(qpos, qvel, strict=True)):
        mujoco.mju_negQuat(inverse, pose[3:7])
        mujoco.mju_rotVecQuat(local, speed[:3], inverse)
        achieved[t] = *local[:2], speed[5]
    return achieved


def caption(found: Artefact, asked: np.ndarray, achieved: np.ndarray) -> str:
    """What is asked, and in brackets what came of it; nothing for a task without a command."""
    return "   ".join(
        f"{c.name} {x:+.1f} ({round(y, 1) + 0:+.1f}) {c.unit}"
        for c, x, y in zip(found.spec.command, asked, achieved, strict=False)
    )


def plot(path: Path, found: Artefact, log: dict[str, Any], achieved: np.ndarray) -> Path:
    """Commanded and achieved velocity, feet on the ground, and torques against their limits."""
    from matplotlib.figure import Figure  # slow to import

    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    t = found.spec.control_dt * np.arange(len(achieved))
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.subplots(5, 1, sharex=True)
    for i, (name, unit) in enumerate(CHANNELS):
        axes[i].plot(t, achieved[:, i], lw=0.8, label="achieved")
        if found.spec.command:
            axes[i].step(t, log["command"][:, i], where="post", color="k", lw=1, label="commanded")
        axes[i].set_ylabel(f"{name}\n{unit}")
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    limbs: dict[str, Any] = {}  # a leg's geoms begin with its name, as FR and FR_calf
    for geom in np.flatnonzero(model.geom_bodyid):
        on = log["contact"][:, geom] > 0
        limb = model.geom(geom).name.partition("_")[0]
        limbs[limb] = limbs.get(limb, False) | on
    for row, on in enumerate(limbs.values()):
        axes[3].fill_between(t, row, row + 0.8, where=on, step="post", lw=0)
    axes[3].set_yticks(np.arange(len(limbs)) + 0.4, limbs)
    axes[3].set_ylim(0, len(limbs))
    axes[3].set_ylabel("contacts")
    limits = np.array([actuator.torque for actuator in found.spec.actuators])
    axes[4].plot(t, 100 * np.abs(log["torque"] / limits), lw=0.5)
    axes[4].set_ylabel("torque,\n% of limit")
    axes[4].set_xlabel("s")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return path
