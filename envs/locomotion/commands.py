"""A joystick's commands, held for a while and then changed, as MuJoCo Playground draws them.

Where the field of a level ends they lead back.
"""

import jax
import jax.numpy as jnp

from envs.locomotion.legged import CONTROL_DT, seen_from_above
from rl.types import Array, Key, Readings

COMMAND = (("forward", "m/s", 1.5), ("left", "m/s", 0.8), ("turn left", "rad/s", 1.2))  # +-
MOST = tuple(most for _, _, most in COMMAND)
KEPT = (0.9, 0.25, 0.5)  # chance of a new command not to be 0
HELD = 5.0  # s that a command is held, on average
BACK = 0.5  # of its range, on the way back


def draw(key: Key, reach: Array) -> Array:
    """A command [3] within this share of the range."""
    most = jnp.array(MOST) * reach
    return jax.random.uniform(key, (3,), minval=-most, maxval=most)


def following(key: Key, command: Array, reach: Array) -> Array:
    """The command [3] after `command`: each part kept, or 0, or drawn anew."""
    new_key, zero_key, keep_key = jax.random.split(key, 3)
    new = draw(new_key, reach) * jax.random.bernoulli(zero_key, jnp.array(KEPT))
    return jnp.where(jax.random.bernoulli(keep_key, 0.5, (3,)), new, command)


def hold(key: Key) -> Array:
    """Control steps [] until a new command."""
    return jnp.round(jax.random.exponential(key) * HELD / CONTROL_DT).astype(jnp.int32)


def homeward(command: Array, raw: Readings, middle: Array, half: float, reach: Array) -> Array:
    """`command` [3] within a square about `middle` [2], and beyond it a slow way back, unturned."""
    off = raw["position"][:2] - middle
    home = -seen_from_above(raw) @ off
    most = reach * BACK * jnp.array(MOST[:2])
    back = home * jnp.min(most / jnp.maximum(jnp.abs(home), 1e-6))
    return jnp.where(jnp.abs(off).max() > half, jnp.append(back, 0.0), command)
