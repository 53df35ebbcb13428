"""How to push a T to where it should be: which face next, and how to get behind it.

Of all places to push it takes the one whose motion, slow and with a friction limit that is an
ellipsoid (Lynch, Maekawa, Tanie 1992), points best along what is left to do; going round to another
place costs, and a place is kept to until another is clearly better.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from envs.manipulation.plan import wrapped
from rl.types import Array

BAR, STEM = (0.06, 0.015), (0.015, 0.045)  # m, halves of its parts' sides, seen from above
BAR_SHARE, STEM_SHARE = 4 / 7, 3 / 7  # of its mass: as of its area
BAR_AT, STEM_AT = 0.06 * STEM_SHARE, -0.06 * BAR_SHARE  # m ahead of the centre of mass
TOOL = 0.016  # m, about half the width of closed fingers
AROUND = 0.125  # m from the centre of mass, that the tool goes round at
LANE, BEHIND = 0.013, 0.008  # m to a side of a push's line that is on it, and into the face
AHEAD = 0.025  # m along a push's line, that the tool aims at
FUNNEL = 0.4  # by which the lane is wider, a m back from the face
LEVER = 0.045  # m, torque at most over force at most, of its friction with the table
ARC = 0.5  # rad along the circle, of a step on it
HEED = 0.06  # m that a rad of turning counts as
SLACK = 0.6  # rad that it goes back rather than once around
PATIENCE, FARTHER = 0.2, 0.1  # by which another place is better, and what a rad to it costs
LEAST, MOST = 0.006, 0.03  # m that a push aims ahead


class Places(NamedTuple):
    """Where it may be pushed, in its own frame."""

    at: np.ndarray  # [P, 2] m, on its outline
    normal: np.ndarray  # [P, 2] into it


def places() -> Places:
    top, under, end = BAR_AT + BAR[1], BAR_AT - BAR[1], STEM_AT - STEM[1]
    rows = [((x, top), (0, -1)) for x in (-0.05, -0.025, 0.0, 0.025, 0.05)]
    rows += [((x, under), (0, 1)) for x in (-0.045, 0.045)]
    rows += [((side * BAR[0], BAR_AT), (-side, 0)) for side in (-1, 1)]
    rows += [
        ((side * STEM[0], y), (-side, 0)) for side in (-1, 1) for y in (-0.025, -0.05, end + 0.01)
    ]
    rows += [((0, end), (0, 1))]
    return Places(*(np.array(column, np.float32) for column in zip(*rows, strict=True)))


class Sight(NamedTuple):
    """How a T lies, and what is left to do."""

    at: Array  # [2] m
    yaw: Array  # [] rad
    off: Array  # [2] m to move
    turn: Array  # [] rad to turn


def toward(tool: Array, tee: Sight, side: Array, kept: Array) -> tuple[Array, Array]:
    """Where [2] the tool goes next, and which place it is about, having been about `kept` [].

    -1 is none.  Round a T it goes anticlockwise where `side` [] is 1, clockwise where it is -1.
    """
    at, yaw, off, turn = tee
    all_places = places()
    c, s = jnp.cos(yaw), jnp.sin(yaw)
    axes = jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])
    arm, normal = all_places.at @ axes.T, all_places.normal @ axes.T  # [P, 2]
    torque = arm[:, 0] * normal[:, 1] - arm[:, 1] * normal[:, 0]
    motion = jnp.concatenate([normal, HEED * (torque / LEVER**2)[:, None]], 1)
    left = jnp.concatenate([off, HEED * turn[None]])
    along = motion @ left / jnp.linalg.norm(motion, axis=1)
    cosine = along / jnp.maximum(jnp.linalg.norm(left), 1e-6)
    tool = tool - at
    behind = jnp.sum((tool - arm) * normal, 1)
    beside = (tool - arm)[:, 0] * normal[:, 1] - (tool - arm)[:, 1] * normal[:, 0]
    wide = LANE + FUNNEL * jnp.maximum(-TOOL - behind, 0)
    in_lane = (jnp.abs(beside) < wide) & (behind < BEHIND - TOOL)
    # Back from the place along the push, to the circle.
    inner = jnp.sum(arm * normal, 1)
    back = inner + jnp.sqrt(jnp.maximum(inner**2 + AROUND**2 - jnp.sum(arm**2, 1), 0))
    entry = arm - back[:, None] * normal
    bearing = jnp.arctan2(tool[1], tool[0])
    way = wrapped(jnp.arctan2(entry[:, 1], entry[:, 0]) - bearing)
    way = jnp.where(way * side < -SLACK, way + 2 * jnp.pi * side, way)
    fresh = jnp.argmax(cosine - FARTHER * jnp.abs(way))
    stay = (kept >= 0) & (cosine[kept] > jnp.max(cosine) - PATIENCE)
    best = jnp.where(stay, kept, fresh)
    push = jnp.clip(along[best] / jnp.linalg.norm(motion[best]), LEAST, MOST)
    ahead = jnp.minimum(behind[best] + AHEAD, push - TOOL)  # to the line first, and along it
    straight = arm[best] + ahead * normal[best]
    next_bearing = bearing + jnp.clip(way[best], -ARC, ARC)
    ring = AROUND * jnp.stack([jnp.cos(next_bearing), jnp.sin(next_bearing)])
    out = AROUND * tool / jnp.maximum(jnp.linalg.norm(tool), 1e-6)
    round_it = jnp.where(jnp.linalg.norm(tool) < AROUND - 0.015, out, ring)
    near = jnp.linalg.norm(tool - entry[best]) < 0.02
    round_it = jnp.where(near, entry[best], round_it)
    return at + jnp.where(in_lane[best], straight, round_it), best
