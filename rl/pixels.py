"""Pictures: how they are stacked, shifted and encoded, for agents that learn from them."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from rl.nets import orthogonal
from rl.returns import n_step, within
from rl.types import Array, Key, Obs, Transition

KERNEL = 3  # pixels, a side of each convolution's
zeros = nn.initializers.zeros


class Seen(NamedTuple):
    """An observation: its pictures as the channels of one, and all else as one vector."""

    image: Array  # [..., H, W, C] uint8
    numbers: Array  # [..., O], of which there may be none


class Sample(NamedTuple):
    """A window of steps as one, its pictures stacked: leaves [B, ...]."""

    obs: Seen
    action: Array
    reward: Array  # summed over the window
    discount: Array  # of what comes after it
    next_obs: Seen


def seen(obs: Obs) -> Seen:
    """What all see of `obs`, a critic's own entry left out; ValueError where there is no picture.

    Pictures are what has bytes; they are all of one size.
    """
    shown = {k: x for k, x in obs.items() if k != "critic"} if isinstance(obs, dict) else obs
    leaves = jax.tree.leaves(shown)
    images = [x for x in leaves if x.dtype == jnp.uint8]
    if len({x.shape[-3:-1] for x in images}) != 1:
        raise ValueError(
            "There is no picture in what the policy sees, or not of one size: give --env.pixels "
            "84, which the arms and the tasks named dmc-... have."
        )
    image = jnp.concatenate(images, -1)
    none = jnp.zeros((*image.shape[:-3], 0))
    return Seen(image, jnp.concatenate([none, *(x for x in leaves if x.dtype != jnp.uint8)], -1))


def stacked(frames: Array) -> Array:
    """Pictures [..., F, H, W, C], oldest first, as one [..., H, W, F * C]."""
    *lead, count, height, width, channels = frames.shape
    return jnp.moveaxis(frames, -4, -2).reshape(*lead, height, width, count * channels)


def sample(windows: Transition, history: int, gamma: float) -> Sample:
    """What to learn from windows [B, history + n, ...], of which the first steps are only seen.

    Where an episode began within them its first picture stands for those before, as it does for a
    policy.  Replay so holds each picture twice, as the end of a step and as the next one's begin.
    """
    now = jax.tree.map(lambda x: x[:, history:], windows)
    if not now.reward.shape[1]:
        raise ValueError(f"Windows of {history + 1} steps are needed: {history} are only seen.")
    obs, (reward, discount, after) = seen(windows.obs), n_step(now, gamma)
    done = windows.terminated | windows.truncated
    count = jnp.arange(1, history + 1)
    first = jnp.where(done[:, :history], count, 0).max(1, initial=0)[:, None]  # of the episode
    begin = jnp.maximum(jnp.arange(history + 1), first)
    last = history + within(now).sum(1)[:, None]  # after the window's last step
    end = jnp.maximum(last + jnp.arange(-history, 0), first)
    frames = jax.vmap(lambda x, at: x[at])
    before, next_obs = frames(obs.image, end), seen(after)
    images = jnp.concatenate([before, next_obs.image[:, None]], 1)
    return Sample(
        Seen(stacked(frames(obs.image, begin)), obs.numbers[:, history]),
        now.action[:, 0], reward, discount,
        next_obs._replace(image=stacked(images)),
    )  # fmt: skip


def shift(key: Key, images: Array, most: int) -> Array:
    """Pictures [B, H, W, C] moved by up to `most` pixels each way, each by its own draw, their edge
    repeated (Kostrikov et al. 2021, arXiv:2004.13649, section 3.1: padded and cropped)."""
    batch, height, width = images.shape[:3]
    by = jax.random.randint(key, (2, batch), -most, most + 1)

    def one(image: Array, down: Array, right: Array) -> Array:
        rows = jnp.clip(jnp.arange(height) + down, 0, height - 1)
        return image[rows][:, jnp.clip(jnp.arange(width) + right, 0, width - 1)]

    return jax.vmap(one)(images, *by)


class Encoder(nn.Module):
    """3 x 3 convolutions with ReLU of pictures [..., H, W, C] uint8 -> [..., F], none padded.

    Channels and strides are a layer's each; kernels are orthogonal, with gain sqrt(2) (Yarats et
    al. 2021, arXiv:2107.09645, appendix B).
    """

    channels: Sequence[int]
    strides: Sequence[int]

    @property
    def least(self) -> int:
        """Pixels of a side of which one is left."""
        side = 1
        for stride in reversed(self.strides):
            side = (side - 1) * stride + KERNEL
        return side

    @nn.compact
    def __call__(self, image: Array) -> Array:
        x = image.reshape(-1, *image.shape[-3:]).astype(jnp.float32) / 255 - 0.5
        least = self.least
        if min(x.shape[1:3]) < least:
            raise ValueError(
                f"{len(self.channels)} convolutions with strides {self.strides} leave nothing of a "
                f"picture of {x.shape[2]} x {x.shape[1]} pixels: give --env.pixels of at least "
                f"{least}, or fewer channels and strides."
            )
        for i, (out, stride) in enumerate(zip(self.channels, self.strides, strict=True)):
            shape = KERNEL * KERNEL * x.shape[-1], out
            kernel = self.param(f"kernel_{i}", orthogonal(2**0.5), shape)
            x = nn.relu(convolved(x, kernel, stride) + self.param(f"bias_{i}", zeros, (out,)))
        return x.reshape(*image.shape[:-3], -1)


def convolved(x: Array, kernel: Array, stride: int) -> Array:
    """Pictures x [B, H, W, C] convolved with a kernel [9 C, K], whose rows go down, right, deep."""
    products, library = partial(by_products, stride=stride), partial(by_library, stride=stride)
    return jax.lax.platform_dependent(x, kernel, cpu=products, default=library)


def by_products(x: Array, kernel: Array, stride: int) -> Array:
    """As one product of matrices: on a CPU XLA's own convolutions take ten times as long in a
    loop, where learning is."""
    high, wide = ((side - KERNEL) // stride * stride + 1 for side in x.shape[1:3])
    parts = [
        x[:, i : i + high : stride, j : j + wide : stride]
        for i in range(KERNEL)
        for j in range(KERNEL)
    ]
    return jnp.concatenate(parts, -1) @ kernel


def by_library(x: Array, kernel: Array, stride: int) -> Array:
    kernel = kernel.reshape(KERNEL, KERNEL, x.shape[-1], -1)
    layout = "NHWC", "HWIO", "NHWC"
    return jax.lax.conv_general_dilated(
        x, kernel, (stride, stride), "VALID", dimension_numbers=layout
    )


class Trunk(nn.Module):
    """What of an encoder's outputs [..., F] a network goes by: few features within 1 [..., K]."""

    features: int

    @nn.compact
    def __call__(self, x: Array) -> Array:
        return nn.tanh(nn.LayerNorm()(nn.Dense(self.features, kernel_init=orthogonal(1.0))(x)))
