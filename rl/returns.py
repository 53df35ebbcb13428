"""Returns and advantages as functions of arrays."""

import jax
import jax.numpy as jnp

from rl.types import Array


def gae(
    reward: Array,
    value: Array,
    next_value: Array,
    terminated: Array,
    truncated: Array,
    *,
    gamma: float,
    lam: float,
) -> Array:
    """Generalised advantage estimates (Schulman et al. 2016, eq. 16); everything is [T, ...].

    `next_value` is that of the observation before any reset.  A terminated step does not
    bootstrap, a truncated one does; neither lets the sum run on into the next episode.
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    decay = gamma * lam * (1.0 - (terminated | truncated))

    def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    return jax.lax.scan(back, jnp.zeros_like(reward[0]), (delta, decay), reverse=True)[1]
