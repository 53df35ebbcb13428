"""Running mean and variance of a pytree, merged a batch at a time (Chan et al. 1979, eq. 2.1)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.types import Array, PyTree


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
