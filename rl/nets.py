"""Networks and the distributions they feed."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from rl.types import Array, Key, Params

LOG_STD = -20.0, 2.0
LECUN = nn.initializers.lecun_normal()


def apply(net: nn.Module, params: Params, *inputs: Array | None) -> Any:
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
    """Dense layers, the last of which is linear; by default ReLU and LeCun-normal kernels."""

    sizes: Sequence[int]
    activation: Callable[[Array], Array] = nn.relu
    kernel_init: nn.initializers.Initializer = LECUN
    out_init: nn.initializers.Initializer = LECUN
    layer_norm: bool = False  # before each activation (RLPD: Ball et al. 2023)
    dropout: float = 0.0  # before that, where a key is given (DroQ: Hiraoka et al. 2022)

    @nn.compact
    def __call__(self, x: Array, key: Key | None = None) -> Array:
        *hidden, out = self.sizes
        for i, size in enumerate(hidden):
            x = nn.Dense(size, kernel_init=self.kernel_init)(x)
            if self.dropout and key is not None:
                x = nn.Dropout(self.dropout)(x, deterministic=False, rng=jax.random.fold_in(key, i))
            if self.layer_norm:
                x = nn.LayerNorm()(x)
            x = self.activation(x)
        return nn.Dense(out, kernel_init=self.out_init)(x)


def tanh_mlp(sizes: Sequence[int], out_gain: float) -> MLP:
    """What on-policy learning likes: tanh, orthogonal of gain sqrt(2), the last of `out_gain`."""
    return MLP(sizes, nn.tanh, orthogonal(2**0.5), orthogonal(out_gain))


def flatten(obs: Any) -> Array:
    """One vector [..., O] of an observation pytree whose leaves are [..., size]; ValueError where
    one is a picture."""
    if any(x.dtype == jnp.uint8 for x in jax.tree.leaves(obs)):
        raise ValueError("This agent sees no pictures: leave out --env.pixels, or take drq.")
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
    """PPO's policy: x [..., O] -> mean [..., A], and a log_std [..., A] that knows no state."""

    action_dim: int
    hidden: Sequence[int]
    std: float = 1.0  # to begin with
    out_gain: float = 0.01  # of the mean, to begin with

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        mean = tanh_mlp((*self.hidden, self.action_dim), self.out_gain)(x)
        first = nn.initializers.constant(math.log(self.std))
        log_std = self.param("log_std", first, (self.action_dim,))
        return mean, jnp.broadcast_to(log_std, mean.shape)


class TanhMean(nn.Module):
    """IQL's policy: x [..., O] -> mean [..., A] within 1, and a log_std [..., A] of no state."""

    action_dim: int
    hidden: Sequence[int]
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: Array, key: Key | None = None) -> tuple[Array, Array]:
        mean = nn.tanh(MLP((*self.hidden, self.action_dim), dropout=self.dropout)(x, key))
        log_std = self.param("log_std", nn.initializers.zeros, (self.action_dim,))
        return mean, jnp.broadcast_to(jnp.clip(log_std, -5.0, 2.0), mean.shape)


class SquashedGaussian(nn.Module):
    """FastSAC's policy (Seo et al. 2025, arXiv:2512.01996): as StateGaussian, with log_std held
    smoothly within `log_std`, and at first a mean of 0 and the middle of that in every state."""

    action_dim: int
    hidden: Sequence[int]
    log_std: tuple[float, float] = (-5.0, 0.0)

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        sizes, zeros = (*self.hidden, 2 * self.action_dim), nn.initializers.zeros
        net = MLP(sizes, nn.silu, out_init=zeros, layer_norm=True)
        mean, free = jnp.split(net(x), 2, axis=-1)
        low, high = self.log_std
        return mean, low + 0.5 * (high - low) * (1 + jnp.tanh(free))


class StateGaussian(nn.Module):
    """SAC's policy: x [..., O] -> mean and log_std [..., A], before the tanh."""

    action_dim: int
    hidden: Sequence[int]

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        mean, log_std = jnp.split(MLP((*self.hidden, 2 * self.action_dim))(x), 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD)


def tanh_normal(key: Key, mean: Array, log_std: Array) -> tuple[Array, Array]:
    """Sample a diagonal Gaussian squashed by tanh: action [..., A] and its log-density [...].

    log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u)) does not underflow for large |u|
    (Haarnoja et al. 2018, arXiv:1812.05905, appendix C).
    """
    noise = jax.random.normal(key, mean.shape)
    u = mean + jnp.exp(log_std) * noise
    logp = -0.5 * (noise**2 + jnp.log(2 * jnp.pi)) - log_std
    return jnp.tanh(u), (logp - 2 * (jnp.log(2) - u - nn.softplus(-2 * u))).sum(-1)


class Q(nn.Module):
    """Action value: x [..., O], action [..., A] -> [..., K], what the critic's head reads."""

    hidden: Sequence[int]
    outputs: int = 1
    layer_norm: bool = False
    dropout: float = 0.0
    activation: Callable[[Array], Array] = nn.relu

    @nn.compact
    def __call__(self, x: Array, action: Array, key: Key | None = None) -> Array:
        sizes = (*self.hidden, self.outputs)
        mlp = MLP(sizes, self.activation, layer_norm=self.layer_norm, dropout=self.dropout)
        return mlp(jnp.concatenate([x, action], axis=-1), key)


class BatchRenorm(nn.Module):
    """Features of x [B, F] scaled by the batch, corrected towards their running statistics.

    Ioffe 2017 (arXiv:1702.03275) in CrossQ's form (Bhatt et al. 2024): plain batch normalisation
    for the first `warm` passes, and a correction that leaves out a feature which does not vary.
    Running statistics are in the collection "stats"; without `train` they alone scale.
    """

    warm: int
    momentum: float = 0.99
    limits: tuple[float, float] = (3.0, 5.0)  # of the correction's factor and shift

    @nn.compact
    def __call__(self, x: Array, train: bool) -> Array:
        size = x.shape[-1:]
        ran_mean = self.variable("stats", "mean", jnp.zeros, size)
        ran_var = self.variable("stats", "var", jnp.ones, size)
        passes = self.variable("stats", "passes", jnp.int32, 0)
        scale = self.param("scale", nn.initializers.ones, size)
        bias = self.param("bias", nn.initializers.zeros, size)
        mean, var = ran_mean.value, ran_var.value
        if train:
            now, spread, (most, furthest) = x.mean(0), x.var(0), self.limits
            std = jnp.sqrt(var + 1e-3)
            r = jnp.clip(jnp.sqrt(spread + 1e-3) / std, 1 / most, most)
            d = jnp.clip((now - mean) / std, -furthest, furthest)
            r, d = jax.lax.stop_gradient((r, d))
            is_warm = passes.value >= self.warm
            ran_mean.value = self.momentum * mean + (1 - self.momentum) * now
            ran_var.value = self.momentum * var + (1 - self.momentum) * spread
            passes.value = passes.value + 1
            mean = jnp.where(is_warm, now - d * jnp.sqrt(spread) / r, now)
            var = jnp.where(is_warm, spread / r**2, spread)
        return (x - mean) * jax.lax.rsqrt(var + 1e-3) * scale + bias


class RenormMLP(nn.Module):
    """CrossQ's network: batch renormalisation in front of every dense layer, ReLU between."""

    sizes: Sequence[int]
    warm: int

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:
        *hidden, out = self.sizes
        x = BatchRenorm(self.warm)(x, train)
        for size in hidden:
            x = BatchRenorm(self.warm)(nn.relu(nn.Dense(size)(x)), train)
        return nn.Dense(out)(x)


def renorm(
    net: RenormMLP, params: Params, stats: Params, x: Array, train: bool
) -> tuple[Array, Params]:
    """`net` of x [B, F], and its statistics after this pass."""
    out: Any = net.apply({"params": params, "stats": stats}, x, train, mutable=["stats"])
    return out[0], out[1]["stats"]
