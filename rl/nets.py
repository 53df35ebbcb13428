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


class MLP(nn.Module):
    """Dense layers, orthogonal init of gain sqrt(2); the last is linear with gain `out_gain`."""

    sizes: Sequence[int]
    activation: Callable[[Array], Array] = nn.tanh
    out_gain: float = 1.0

    @nn.compact
    def __call__(self, x: Array) -> Array:
        *hidden, out = self.sizes
        for size in hidden:
            x = self.activation(nn.Dense(size, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(out, kernel_init=nn.initializers.orthogonal(self.out_gain))(x)


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
