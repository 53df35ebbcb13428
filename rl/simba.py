"""SimbaV2's networks: weights and features of length one (Lee et al. 2025, arXiv:2502.15280).

Layers as in the authors' repository, DAVIAN-Robotics/SimbaV2.  `hidden` names the blocks: as many
as it has numbers, all as wide as its first.  `project` must follow every optimiser step.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from rl.nets import orthogonal
from rl.types import Array, Key, Params

LOG_STD = -10.0, 2.0
SHIFT = 3.0  # appended to the input, so that its length is not lost


def unit(x: Array, axis: int = -1) -> Array:
    """`x` with every vector along `axis` of length one."""
    length = jnp.sqrt((x**2).sum(axis, keepdims=True))
    return x / jnp.maximum(length, 1e-8)


def project(params: Params) -> Params:
    """With the weights [..., in, out] of every unit of a `Sphere` scaled to length one."""

    def scaled(path: Any, x: Array) -> Array:
        names = jax.tree_util.keystr(path, simple=True, separator="/")
        return unit(x, axis=-2) if "Sphere_" in names else x

    return jax.tree_util.tree_map_with_path(scaled, params)


class Sphere(nn.Module):
    """Linear, without bias; `project` holds its units at length one."""

    size: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return nn.Dense(self.size, use_bias=False, kernel_init=orthogonal(1.0))(x)


class Scaler(nn.Module):
    """A factor for each feature, `begin` at first, that Adam moves at a pace set by `scale`."""

    begin: float
    scale: float

    @nn.compact
    def __call__(self, x: Array) -> Array:
        factor = self.param("factor", nn.initializers.constant(self.scale), x.shape[-1:])
        return x * factor * (self.begin / self.scale)


class Trunk(nn.Module):
    """x [..., O] -> features of length one [..., width]."""

    hidden: Sequence[int]

    @nn.compact
    def __call__(self, x: Array) -> Array:
        width, blocks = self.hidden[0], len(self.hidden)
        gain = (2 / width) ** 0.5
        x = unit(jnp.concatenate([x, jnp.full_like(x[..., :1], SHIFT)], axis=-1))
        h = unit(Scaler(gain, gain)(Sphere(width)(x)))
        for _ in range(blocks):
            wide = nn.relu(Scaler(gain / 2, gain / 2)(Sphere(4 * width)(h))) + 1e-8
            step = unit(Sphere(width)(wide)) - h
            h = unit(h + Scaler(1 / (blocks + 1), width**-0.5)(step))
        return h


class Head(nn.Module):
    """Two linear maps with nothing between them but a scaler."""

    outputs: int

    @nn.compact
    def __call__(self, h: Array) -> Array:
        h = Scaler(1.0, 1.0)(Sphere(h.shape[-1])(h))
        return Sphere(self.outputs)(h) + self.param("bias", nn.initializers.zeros, (self.outputs,))


class SimbaGaussian(nn.Module):
    """SAC's policy: x [..., O] -> mean and log_std [..., A], before the tanh."""

    action_dim: int
    hidden: Sequence[int]

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        h, (low, high) = Trunk(self.hidden)(x), LOG_STD
        mean, raw = Head(self.action_dim)(h), Head(self.action_dim)(h)
        return mean, low + (high - low) / 2 * (1 + jnp.tanh(raw))


class SimbaQ(nn.Module):
    """Action value: x [..., O], action [..., A] -> [..., K], what the critic's head reads."""

    hidden: Sequence[int]
    outputs: int

    @nn.compact
    def __call__(self, x: Array, action: Array, key: Key | None = None) -> Array:
        return Head(self.outputs)(Trunk(self.hidden)(jnp.concatenate([x, action], axis=-1)))
