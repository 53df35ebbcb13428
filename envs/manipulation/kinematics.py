"""Where an arm's tool is, how its joints move it, and which joints would bring it elsewhere.

Plain arithmetic on arrays, so that it runs wherever a policy does: `control` needs it.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from envs.manipulation.arm import Arm
from envs.shapes import Quat, height
from rl.types import Array, Readings

DAMPING = 0.01  # of least squares: how much a small error counts near a singular pose
RELAX = 0.05  # share of the way back to rest that what is left of the joints' freedom takes


class Reached(NamedTuple):
    """Where some joint angles bring the tool."""

    at: Array  # [3] m
    turn: Array  # [3, 3] its axes as columns
    jacobian: Array  # [6, n] its velocity and turning, in the world, for each joint's


def forward(arm: Arm, q: Array) -> Reached:
    """Of the chain's joint angles `q` [n]."""
    at, turn, points, axes = jnp.zeros(3), jnp.eye(3), [], []
    chain = [(link.at, link.turn, link.joint) for link in (arm.base, *arm.links, arm.hand)]
    i = 0
    for place, orientation, joint in [*chain, (arm.tool_at, arm.tool_turn, None)]:
        at = at + turn @ np.array(place, np.float32)
        turn = turn @ matrix(orientation)
        if joint:
            axis = np.array(joint.axis, np.float32)
            points.append(at)
            axes.append(turn @ axis)
            turn = turn @ about(axis, q[i])
            i += 1
    axes, levers = jnp.stack(axes), at - jnp.stack(points)
    return Reached(at, turn, jnp.concatenate([cross(axes, levers), axes], 1).T)


def nearer(arm: Arm, q: Array, at: Array, turn: Array, rest: Array) -> Array:
    """Joint angles [n] a step nearer to a tool `at` [3] and turned as `turn` [3, 3].

    Damped least squares (Wampler 1986); what freedom is left goes towards `rest` [n].
    """
    now = forward(arm, q)
    off = jnp.sum(cross(now.turn.T, turn.T), 0) / 2  # a small turn that would align them
    error = jnp.concatenate([at - now.at, off])
    low, high = arm.limits[: len(arm.joints)].T.astype(np.float32)

    def change(free: Array) -> Array:
        mine, home = now.jacobian * free, RELAX * (rest - q) * free
        square = mine @ mine.T + DAMPING**2 * jnp.eye(6)
        return home + mine.T @ linear(square, error - mine @ home)

    wanted = q + change(jnp.ones(len(q)))
    free = (wanted >= low) & (wanted <= high)  # a joint at its end leaves the way to the others
    return jnp.clip(q + change(free.astype(jnp.float32)), low, high)


def linear(matrix: Array, right: Array) -> Array:
    """x of `matrix` x = `right` [n], for a symmetric positive definite matrix [n, n]."""
    rows = jnp.concatenate([matrix, right[:, None]], 1)
    for i in range(len(right)):  # Gauss and Jordan: no pivots are needed
        row = rows[i] / rows[i, i]
        unit = np.zeros(len(right), np.float32)
        unit[i] = 1
        rows = rows - (rows[:, i] - unit)[:, None] * row
    return rows[:, -1]


def downward(yaw: Array) -> Array:
    """Axes [3, 3] of a tool that points straight down, its x axis `yaw` rad from the world's."""
    c, s, none = jnp.cos(yaw), jnp.sin(yaw), jnp.zeros(())
    rows = [jnp.stack(row) for row in ((c, s, none), (s, -c, none), (none, none, none - 1))]
    return jnp.stack(rows)


def downward_quat(yaw: float) -> Quat:
    """The same as a quaternion, wxyz."""
    return (0.0, float(np.cos(yaw / 2)), float(np.sin(yaw / 2)), 0.0)


def yaw_of(turn: Array) -> Array:
    """rad [] from the world's x axis to that of `turn` [3, 3], seen from above."""
    return jnp.arctan2(turn[1, 0], turn[0, 0])


def about(axis: np.ndarray, angle: Array) -> Array:
    """A turn [3, 3] about a unit axis (Rodrigues)."""
    x, y, z = axis
    k = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]], np.float32)
    return jnp.eye(3) + jnp.sin(angle) * k + (1 - jnp.cos(angle)) * (k @ k)


def matrix(quat: Quat) -> np.ndarray:
    """The turn [3, 3] of a unit quaternion wxyz."""
    w, x, y, z = quat
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ], np.float32)  # fmt: skip


def rotation(quat: Array) -> Array:
    """As `matrix`, of what a sensor reads [4]."""
    w, x, y, z = [quat[i] for i in range(4)]
    return jnp.stack([
        jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
        jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
        jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
    ])  # fmt: skip


def cross(a: Array, b: Array) -> Array:
    """Of vectors [..., 3]."""
    ax, ay, az = [a[..., i] for i in range(3)]
    bx, by, bz = [b[..., i] for i in range(3)]
    return jnp.stack([ay * bz - az * by, az * bx - ax * bz, ax * by - ay * bx], -1)


def lowest(arm: Arm, readings: Readings) -> Array:
    """Heights [1 + fingers] of the hand and its fingers' pads above the table, m."""
    turn = rotation(readings["tool_quat"]) @ matrix(arm.tool_turn).T
    hand = readings["tool_pos"] - turn @ np.array(arm.tool_at)
    found = [height(arm.hand.shape[-1], hand, turn)]
    for link in arm.fingers:
        at, own = hand + turn @ np.array(link.at), turn @ matrix(link.turn)
        if joint := link.joint:
            q, axis = readings[f"{joint.name}_pos"][0], np.array(joint.axis)
            if joint.kind == "slide":
                at = at + own @ (q * axis)
            else:
                own = own @ about(axis, q)
        found.append(height(link.shape[-1], at, own))
    return jnp.stack(found)
