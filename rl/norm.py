"""Running mean and variance of a pytree, merged a batch at a time (Chan et al. 1979, eq. 2.1),
and of what rewards add up to.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.types import Array, PyTree, Transition


class Stats(NamedTuple):
    """Moments of everything seen; leaves of `mean` and `var` have the shape of one example."""

    count: Array  # [] float32
    mean: PyTree
    var: PyTree


def init(example: PyTree) -> Stats:
    """No evidence yet: mean 0, variance 1, so that normalising changes nothing."""
    mean = jax.tree.map(lambda x: jnp.zeros(jnp.shape(x), jnp.float32), example)
    return Stats(jnp.float32(1e-4), mean, jax.tree.map(jnp.ones_like, mean))


def update(stats: Stats, batch: PyTree) -> Stats:
    """Statistics with `batch` (leaves [..., *example shape]) merged in."""

    def merge(mean: Array, var: Array, x: Array) -> tuple[Array, Array, Array]:
        x = x.reshape(-1, *mean.shape)
        n = jnp.float32(x.shape[0])
        total, delta = stats.count + n, x.mean(0) - mean
        square = var * stats.count + x.var(0) * n + delta**2 * stats.count * n / total
        return mean + delta * n / total, square / total, total

    means, tree = jax.tree.flatten(stats.mean)
    merged = [
        merge(*leaves)
        for leaves in zip(
            means, tree.flatten_up_to(stats.var), tree.flatten_up_to(batch), strict=True
        )
    ]
    mean, var, total = zip(*merged, strict=True)
    return Stats(total[0], tree.unflatten(mean), tree.unflatten(var))


def normalise(stats: Stats, x: PyTree, clip: float = 10.0) -> PyTree:
    """`x` (leaves [..., *example shape]) to zero mean and unit variance, within +-`clip`."""
    return jax.tree.map(
        lambda v, mean, var: jnp.clip((v - mean) * jax.lax.rsqrt(var + 1e-8), -clip, clip),
        x,
        stats.mean,
        stats.var,
    )


class Returns(NamedTuple):
    """What the rewards of N worlds add up to: a unit to give them in (SimbaV2: Lee et al. 2025).

    A step that ends an episode counts in it; the authors' code forgets the episode before it.
    """

    sums: Array  # [N] discounted rewards of the episode in progress
    stats: Stats  # of all sums there were
    largest: Array  # [] of their sizes


def returns(num_envs: int) -> Returns:
    return Returns(jnp.zeros(num_envs), init(jnp.float32(0)), jnp.float32(0))


def earn(before: Returns, seen: Transition, gamma: float) -> Returns:
    """With the rewards of fresh transitions [T, N, ...]."""

    def step(sums: Array, now: Transition) -> tuple[Array, Array]:
        sums = gamma * sums + now.reward
        return jnp.where(now.terminated | now.truncated, 0, sums), sums

    sums, every = jax.lax.scan(step, before.sums, seen)
    largest = jnp.maximum(before.largest, jnp.abs(every).max())
    return Returns(sums, update(before.stats, every), largest)


def unit(seen: Returns, bound: float) -> Array:
    """What to divide rewards by: returns then vary by one, and stay within `bound`."""
    return jnp.maximum(jnp.sqrt(seen.stats.var + 1e-8), seen.largest / bound)
