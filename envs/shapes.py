"""Primitive shapes that stand for the parts of robots and things."""

from typing import NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from rl.types import Array

Vec3 = tuple[float, float, float]
Quat = tuple[float, float, float, float]  # wxyz
UPRIGHT: Quat = (1.0, 0.0, 0.0, 0.0)


class Ball(NamedTuple):
    radius: float  # m
    at: Vec3


class Box(NamedTuple):
    half: Vec3  # m
    at: Vec3 = (0.0, 0.0, 0.0)
    turn: Quat = UPRIGHT


class Rod(NamedTuple):
    """A capsule, or with flat ends a cylinder."""

    radius: float  # m
    start: Vec3
    end: Vec3
    flat: bool = False


Collider = Ball | Box | Rod


def form(geom: mujoco.MjsGeom, part: Collider, flip: np.ndarray | float = 1.0) -> None:
    """Give `geom` the shape of `part`, mirrored by the signs `flip` [3]."""
    kinds = mujoco.mjtGeom
    match part:
        case Ball(radius, at):
            geom.type, geom.size[0], geom.pos = kinds.mjGEOM_SPHERE, radius, np.multiply(flip, at)
        case Box(half, at, turn):
            geom.type, geom.size, geom.pos = kinds.mjGEOM_BOX, half, np.multiply(flip, at)
            geom.quat = turn
        case Rod(radius, start, end, flat):
            geom.type = kinds.mjGEOM_CYLINDER if flat else kinds.mjGEOM_CAPSULE
            geom.size[0] = radius
            geom.fromto = np.concatenate([np.multiply(flip, start), np.multiply(flip, end)])


def height(part: Collider, at: Array, turn: Array) -> Array:
    """[] m, of the lowest point of a part of a body at `at` [3], turned as `turn` [3, 3]."""
    down = turn[2]
    match part:
        case Ball(radius, place):
            return at[2] + down @ np.array(place) - radius
        case Box(half, place, quat):
            axes = np.zeros(9)
            mujoco.mju_quat2Mat(axes, np.array(quat))
            own = jnp.abs(down @ axes.reshape(3, 3))
            return at[2] + down @ np.array(place) - own @ np.array(half)
        case Rod(radius, start, end, flat):
            ends = jnp.stack([down @ np.array(start), down @ np.array(end)])
            axis = np.subtract(end, start) / np.linalg.norm(np.subtract(end, start))
            wide = jnp.sqrt(jnp.maximum(1 - (down @ axis) ** 2, 0)) if flat else 1.0
            return at[2] + ends.min() - radius * wide
    raise TypeError(part)
