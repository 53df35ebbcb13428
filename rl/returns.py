"""Returns and advantages as functions of arrays."""

import jax
import jax.numpy as jnp

from rl.types import Array, Obs, Transition


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


def within(window: Transition) -> Array:
    """Which steps [B, n] of windows are of the episode that they begin in: how much of a chunk of
    actions was taken."""
    done = window.terminated | window.truncated
    ended = jnp.cumsum(done, axis=1) - done
    return ended == 0


def n_step(window: Transition, gamma: float) -> tuple[Array, Array, Obs]:
    """Reward, discount [B] and last observation of windows with leaves [B, n, ...].

    The sum ends with the window or with the first step that ends an episode, which counts;
    a terminated one has discount 0, a truncated one goes on from its own last observation.
    """
    alive = within(window)
    steps = alive.sum(1)
    reward = (window.reward * alive * gamma ** jnp.arange(alive.shape[1])).sum(1)

    def last(x: Array) -> Array:
        return jax.vmap(lambda row, i: row[i])(x, steps - 1)

    discount = jnp.where(last(window.terminated), 0.0, gamma**steps)
    return reward, discount, jax.tree.map(last, window.next_obs)
