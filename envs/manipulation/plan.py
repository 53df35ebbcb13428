"""What an expert is to do: where the tool goes, stage by stage."""

from typing import NamedTuple

import jax.numpy as jnp

from envs.manipulation.kinematics import rotation, yaw_of
from rl.types import Array, Readings

OPEN, SHUT = 1.0, -1.0
TURN = 20.0  # rad of yaw that still counts as turned, for a m of `near`
WAYS = "over", "left", "right"  # of `aside`
BROAD, CLOSE = 0.02, 0.006  # m from a place that is near enough to go on, or to touch things


class Plan(NamedTuple):
    """Each stage lasts until the tool is there, and the last until the episode ends."""

    at: Array  # [S, 3] m
    yaw: Array  # [S] rad
    grip: Array  # [S] OPEN to SHUT
    near: Array  # [S] m from there that is there; and turned so, within TURN rad a m
    least: Array  # [S] control steps that it stays there, at least
    speed: Array  # [S] share of the expert's own
    kept: Array  # [] int32, what to be told the next time


class Stage(NamedTuple):
    at: Array  # [3] m
    grip: float
    near: float = BROAD
    least: int = 0
    speed: float = 1.0


def plan(yaw: Array, *stages: Stage, kept: Array | int = -1) -> Plan:
    """Of stages in their order, all with the tool's `yaw` [], rad."""
    at, *columns = zip(*stages, strict=True)
    grip, near, least, speed = (jnp.array(column) for column in columns)
    turned = jnp.broadcast_to(yaw, len(at))
    return Plan(jnp.stack(at), turned, grip, near, least, speed, jnp.asarray(kept, jnp.int32))


def above(at: Array, by: float) -> Array:
    """A place [3] so many m higher."""
    return at + jnp.array([0.0, 0.0, by])


def level(at: Array, height: float) -> Array:
    """A place [3] above or below that one, so high, m."""
    return jnp.concatenate([at[:2], jnp.array([height])])


def aside(at: Array, way: Array, by: float, height: float) -> Array:
    """A place [3] `height` m above `at`, and, by its way, `by` m to the left or right of it."""
    return at + jnp.stack([jnp.zeros(()), jnp.array([0.0, by, -by])[way], jnp.asarray(height)])


def squared(readings: Readings, held: str, other: str) -> Array:
    """The tool's yaw [] that lines up a square thing, or the tool, with another: the nearest."""
    tool, mine, others = (
        yaw_of(rotation(readings[f"{name}_quat"])) for name in ("tool", held, other)
    )
    return tool + wrapped(4 * (others - mine)) / 4


def wrapped(angle: Array) -> Array:
    """The same turn within half a circle either way, rad."""
    return jnp.arctan2(jnp.sin(angle), jnp.cos(angle))
