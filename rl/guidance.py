"""What may be done with a policy that draws plans without teaching it anything: combinators.

Each makes of `draw(params, noise [B, H, A], seen [B, h, O], key, bounds)` another of its kind.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from rl.chunks import Draw
from rl.generative import Bounds
from rl.types import Array, Key, Params

Worth = Callable[[Params, Array, Array], Array]  # [B] of plans [B, H, A] where that was seen


def candidates(
    draw: Draw, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds, count: int
) -> Array:
    """Plans [count, B, H, A], the first of the noise that is given."""
    noise_key, key = jax.random.split(key)
    more = jax.random.normal(noise_key, (count - 1, *noise.shape))
    every = jnp.concatenate([noise[None], more]).reshape(-1, *noise.shape[1:])
    told = jnp.broadcast_to(seen, (count, *seen.shape)).reshape(-1, *seen.shape[1:])
    return draw(params, every, told, key, bounds).reshape(count, *noise.shape)


def chosen(plans: Array, worth: Array) -> Array:
    """For each row the one of plans [count, B, ...] that is worth [count, B] most."""
    at = worth.argmax(0).reshape(1, -1, *[1] * (plans.ndim - 2))
    return jnp.take_along_axis(plans, at, 0)[0]


def best_of(draw: Draw, worth: Worth, count: int) -> Draw:
    """The plan of `count` that is worth most (IDQL: Hansen-Estruch et al. 2023, 2304.10573)."""

    def best(params: Any, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        plans = candidates(draw, params, noise, seen, key, bounds, count)
        value = jax.lax.map(lambda plan: worth(params, seen, plan), plans)
        return chosen(plans, value)

    return best
