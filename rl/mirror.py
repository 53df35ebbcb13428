"""Left-right symmetry: what a robot sees and does, as its mirror image would.

A policy that is told it treats an observation and its image alike: f'(x) = (f(x) + M f(M x)) / 2,
M being the mirror.  Learning from a step then is learning from its image as well (Mittal et al.
2024, arXiv:2403.04359, compare this with images added to the batch and with a loss).
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from rl.types import Array, PyTree


class Flip(NamedTuple):
    """How a vector is mirrored: x[..., index] * sign."""

    index: np.ndarray  # [n]
    sign: np.ndarray  # [n]

    def __call__(self, x: Array) -> Array:
        return jnp.take(x, self.index, axis=-1, mode="clip") * self.sign


class Mirror(NamedTuple):
    """Of a task: a Flip for its action, and one for each leaf of its observation."""

    obs: PyTree
    action: Flip


def flip(*signs: float, index: Sequence[int] | np.ndarray | None = None) -> Flip:
    """Components that change sign, and first, if `index` says so, places."""
    places = np.arange(len(signs)) if index is None else np.array(index)
    return Flip(places, np.array(signs, np.float32))


def joined(*flips: Flip) -> Flip:
    """That of vectors one after the other."""
    starts = np.cumsum([0, *(len(one.index) for one in flips[:-1])])
    index = np.concatenate([one.index + start for one, start in zip(flips, starts, strict=True)])
    return Flip(index, np.concatenate([one.sign for one in flips]))


SAME = flip(1.0)
VECTOR = flip(1.0, -1.0, 1.0)  # x forward, y left, z up
AXIAL = flip(-1.0, 1.0, -1.0)  # a turn about each axis
