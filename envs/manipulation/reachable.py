"""Goals, places and poses that an arm cannot reach are refused before an episode begins."""

from collections.abc import Sequence

import mujoco
import numpy as np

from envs.manipulation.inverse import FAR, inverse
from envs.manipulation.tabletop import Tabletop

INSIDE = 0.003  # m that a part may be inside another at a start: what a hand holds is, a little
TURNED = 1e-3  # that a quaternion may be longer or shorter than 1, of rounding
SLACK = 1e-4  # rad or m beyond its range that a joint may be, of rounding


def check_goals(table: Tabletop, low: Sequence[float], high: Sequence[float], what: str) -> None:
    """Raise ValueError unless the tool reaches every corner of a box of goals."""
    if not all(a <= b for a, b in zip(low, high, strict=True)):
        raise ValueError(f"The box of each {what}, from {low} to {high}, has a low above its high.")
    for corner in np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(len(low), -1).T:
        check_goal(table, corner, what)


def check_goal(table: Tabletop, at: Sequence[float] | np.ndarray, what: str) -> None:
    """Raise ValueError unless the tool, pointing down, reaches `at` [3], m."""
    place = tuple(round(float(x), 3) for x in at)
    if not np.isfinite(at).all():
        raise ValueError(f"A {what} at {place} is nowhere.")
    if place[2] < 0:
        raise ValueError(f"A {what} at {place} m lies below the table's top.")
    if table.actions == "ee" and not (
        np.all(at >= np.subtract(table.low, SLACK)) and np.all(at <= np.add(table.high, SLACK))
    ):
        raise ValueError(
            f"A {what} at {place} m lies outside of where the hand can be told to be, from "
            f"{table.low} to {table.high}."
        )
    _, off = inverse(table.arm, at, float(table.start_pose[3]))
    if off > FAR:
        raise ValueError(
            f"{table.robot} cannot bring its tool to a {what} at {place} m: no pose is found in "
            "which the tool points down there."
        )


def check_pose(table: Tabletop, model: mujoco.MjModel, qpos: np.ndarray) -> None:
    """Raise ValueError unless an episode can begin at `qpos` [nq]: joints within their ranges,
    nothing inside another, and things where the tool can go."""
    if not np.isfinite(qpos).all():
        raise ValueError("The qpos has numbers that are not finite.")
    for i in range(model.njnt):
        joint, (low, high) = model.joint(i), model.jnt_range[i]
        at = qpos[joint.qposadr[0]]
        if model.jnt_limited[i] and not low - SLACK <= at <= high + SLACK:
            raise ValueError(
                f"The qpos has {joint.name} at {at:.3f}; it goes from {low:g} to {high:g}."
            )
        if model.jnt_type[i] == mujoco.mjtJoint.mjJNT_FREE:
            length = np.linalg.norm(qpos[joint.qposadr[0] + 3 :][:4])
            if abs(length - 1) > TURNED:
                raise ValueError(
                    f"The qpos has {joint.name} turned by a quaternion of length {length:.3g}, "
                    "and not of 1."
                )
    data = mujoco.MjData(model)
    data.qpos[:] = qpos
    mujoco.mj_forward(model, data)
    for touch in data.contact:
        if touch.dist < -INSIDE:
            one, other = (model.geom(int(geom)).name for geom in touch.geom)
            raise ValueError(
                f"The qpos has {one} and {other} {-1000 * touch.dist:.0f} mm inside one another."
            )
    mine = model.body(table.arm.base.name).rootid[0]
    for body in range(1, model.nbody):
        if model.body_dofnum[body] and model.body_rootid[body] != mine:
            x, y, z = data.xpos[body]  # or the lowest that it may go to above
            check_goal(table, (x, y, max(z, table.low[2])), model.body(body).name)
