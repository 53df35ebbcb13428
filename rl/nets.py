"""Networks and the distributions they feed."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from rl.types import Array, Key, Params


def apply(net: nn.Module, params: Params, *inputs: Array) -> Any:
    """`net.apply` for nets without mutable collections, so that it type-checks."""
    return net.apply(params, *inputs)


def orthogonal(gain: float) -> nn.initializers.Initializer:
    """Kernels [in, out] with orthonormal rows or columns times `gain` (Saxe et al. 2014).

    By Newton-Schulz iteration to the polar factor of a Gaussian matrix, which has the same
    distribution as QR gives.  Two batched QRs at once, as seeds under vmap make them, can
    deadlock jaxlib's CPU thread pool; products of matrices cannot.
    """

    def init(key: Key, shape: Sequence[int], dtype: Any = jnp.float32, **_: Any) -> Array:
        tall, slim = max(shape), min(shape)
        x = jax.random.normal(key, (tall, slim), dtype) / (tall**0.5 + slim**0.5)

        def step(x: Array, _: None) -> tuple[Array, None]:
            gram = jnp.matmul(x.T, x, precision="highest")
            return jnp.matmul(x, 1.5 * jnp.eye(slim) - 0.5 * gram, precision="highest"), None

        x = jax.lax.scan(step, x, length=60)[0]  # singular values grow 1.5-fold until near 1
        return gain * (x if shape[0] == tall else x.T)

    return init


class MLP(nn.Module):
    """Dense layers, orthogonal init of gain sqrt(2); the last is linear with gain `out_gain`."""

    sizes: Sequence[int]
    activation: Callable[[Array], Array] = nn.tanh
    out_gain: float = 1.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        *hidden, out = self.sizes
        for size in hidden:
            x = self.activation(nn.Dense(size, kernel_init=orthogonal(2**0.5))(x))
        return nn.Dense(out, kernel_init=orthogonal(self.out_gain))(x)


def flatten(obs: Any) -> Array:
    """One vector [..., O] of an observation pytree whose leaves are [..., size]."""
    return jnp.concatenate(jax.tree.leaves(obs), axis=-1)


def normal(key: Key, mean: Array, log_std: Array) -> tuple[Array, Array]:
    """Sample a diagonal Gaussian: action [..., A] and its log-density [...]."""
    action = mean + jnp.exp(log_std) * jax.random.normal(key, mean.shape)
    return action, normal_logp(action, mean, log_std)


def normal_logp(x: Array, mean: Array, log_std: Array) -> Array:
    """Log-density [...] of `x` [..., A] under a diagonal Gaussian."""
    z = (x - mean) * jnp.exp(-log_std)
    return (-0.5 * z**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)).sum(-1)


def normal_entropy(log_std: Array) -> Array:
    """Entropy [...] of a diagonal Gaussian with `log_std` [..., A]."""
    return (log_std + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).sum(-1)


def normal_kl(mean: Array, log_std: Array, to_mean: Array, to_log_std: Array) -> Array:
    """KL divergence [...] of a diagonal Gaussian from the first to the second."""
    variance = jnp.exp(2 * (log_std - to_log_std))
    shift = ((mean - to_mean) * jnp.exp(-to_log_std)) ** 2
    return (to_log_std - log_std + 0.5 * (variance + shift - 1)).sum(-1)


class Gaussian(nn.Module):
    """Policy head: x [..., O] -> mean [..., A], and a log_std [..., A] that knows no state."""

    action_dim: int
    hidden: Sequence[int]

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        mean = MLP((*self.hidden, self.action_dim), out_gain=0.01)(x)
        log_std = self.param("log_std", nn.initializers.zeros, (self.action_dim,))
        return mean, jnp.broadcast_to(log_std, mean.shape)
