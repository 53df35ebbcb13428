"""Networks that see noised chunks of actions [B, H, A] at times [B], observations [B, h, O], and,
where it is told, how far to step [B]: fields of rl/generative.py and rl/diffusion.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from flax import linen as nn

from rl.train import sound
from rl.types import Array

FEATURES = 64  # of a time


def waves(time: Array) -> Array:
    """Sines and cosines [B, FEATURES] of times [B] in [0, 1], from slow to fast."""
    rates = 1000.0 ** (jnp.arange(FEATURES // 2) / (FEATURES // 2 - 1))
    phase = time[:, None] * rates
    return jnp.concatenate([jnp.sin(phase), jnp.cos(phase)], -1)


def times(time: Array, size: Array | None) -> Array:
    """What is told of time [B, ...]: when, and how far."""
    return waves(time) if size is None else jnp.concatenate([waves(time), waves(size)], -1)


class Plain(nn.Module):
    """Everything in one vector, through dense layers with GELU (FQL: Park et al. 2025)."""

    hidden: Sequence[int]

    @nn.compact
    def __call__(self, x: Array, time: Array, obs: Array, size: Array | None = None) -> Array:
        flat = [y.reshape(len(x), -1) for y in (x, obs)]
        y = jnp.concatenate([*flat, times(time, size)], -1)
        for width in self.hidden:
            y = nn.gelu(nn.Dense(width)(y))
        return nn.Dense(flat[0].shape[-1])(y).reshape(x.shape)


class Blocks(nn.Module):
    """Residual blocks with layer normalisation (IDQL: Hansen-Estruch et al. 2023)."""

    width: int
    depth: int

    @nn.compact
    def __call__(self, x: Array, time: Array, obs: Array, size: Array | None = None) -> Array:
        flat = [y.reshape(len(x), -1) for y in (x, obs)]
        told = nn.Dense(FEATURES)(nn.swish(nn.Dense(2 * FEATURES)(times(time, size))))
        y = nn.Dense(self.width)(jnp.concatenate([*flat, told], -1))
        for _ in range(self.depth):
            inner = nn.swish(nn.Dense(4 * self.width)(nn.LayerNorm()(y)))
            y = y + nn.Dense(self.width)(inner)
        return nn.Dense(flat[0].shape[-1])(nn.swish(y)).reshape(x.shape)


class Tokens(nn.Module):
    """A transformer over a token for each action, each observation and the time."""

    width: int
    depth: int
    heads: int

    @nn.compact
    def __call__(self, x: Array, time: Array, obs: Array, size: Array | None = None) -> Array:
        told = nn.Dense(self.width)(times(time, size))[:, None]
        y = jnp.concatenate([nn.Dense(self.width)(x), nn.Dense(self.width)(obs), told], 1)
        y = y + self.param("place", nn.initializers.normal(0.02), y.shape[1:])
        for _ in range(self.depth):
            y = y + nn.MultiHeadDotProductAttention(self.heads)(nn.LayerNorm()(y))
            inner = nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(y)))
            y = y + nn.Dense(self.width)(inner)
        return nn.Dense(x.shape[-1])(nn.LayerNorm()(y)[:, : x.shape[1]])


@dataclass(frozen=True)
class Dense:
    """One vector through dense layers."""

    hidden: tuple[int, ...] = (512, 512, 512)  # sizes of the layers

    def __post_init__(self) -> None:
        sound(self, hidden=(min(self.hidden, default=0) > 0, "sizes of at least 1"))

    @property
    def module(self) -> Plain:
        return Plain(self.hidden)


@dataclass(frozen=True)
class Residual:
    """One vector through residual blocks."""

    width: int = 256  # of a block
    depth: int = 3  # blocks

    def __post_init__(self) -> None:
        sound(
            self,
            width=(self.width > 0, "a size of at least 1"),
            depth=(self.depth > 0, "a count of at least 1"),
        )

    @property
    def module(self) -> Blocks:
        return Blocks(self.width, self.depth)


@dataclass(frozen=True)
class Transformer:
    """A token for each action and observation."""

    width: int = 128  # of a token
    depth: int = 2  # layers
    heads: int = 4  # of attention

    def __post_init__(self) -> None:
        sound(
            self,
            width=(self.width > 0, "a size of at least 1"),
            depth=(self.depth > 0, "a count of at least 1"),
            heads=(self.heads > 0 and self.width % self.heads == 0, "a count that divides width"),
        )

    @property
    def module(self) -> Tokens:
        return Tokens(self.width, self.depth, self.heads)


Net = Dense | Residual | Transformer
