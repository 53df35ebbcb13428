"""Replay on the device: a ring of rows [T, N, ...], so that what is read stays in one world."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.types import Array, Key, Transition


class Buffer(NamedTuple):
    data: Transition  # leaves [T, N, ...], in the dtypes they were seen in
    written: Array  # [] int32, rows ever written; row i lies at i modulo T


def init(rows: int, example: Transition) -> Buffer:
    """An empty ring of `rows` steps of every world; `example` has leaves [N, ...]."""
    data = jax.tree.map(lambda x: jnp.zeros((rows, *jnp.shape(x)), jnp.result_type(x)), example)
    return Buffer(data, jnp.int32(0))


def add(buffer: Buffer, seen: Transition) -> Buffer:
    """With the steps `seen` (leaves [K, N, ...]) in the place of the oldest."""
    rows = buffer.data.reward.shape[0]

    def write(buffer: Buffer, row: Transition) -> tuple[Buffer, None]:
        def put(ring: Array, x: Array) -> Array:
            return jax.lax.dynamic_update_index_in_dim(ring, x, buffer.written % rows, 0)

        return Buffer(jax.tree.map(put, buffer.data, row), buffer.written + 1), None

    return jax.lax.scan(write, buffer, seen)[0]


class Place(NamedTuple):
    """Where windows begin: leaves [B]."""

    row: Array  # as they were counted when they were written
    world: Array


def places(buffer: Buffer, key: Key, count: int, length: int = 1) -> Place:
    """Where `count` windows of `length` consecutive steps of a world begin, drawn uniformly.

    Needs at least `length` rows.
    """
    rows, worlds = buffer.data.reward.shape
    row_key, world_key = jax.random.split(key)
    oldest = jnp.maximum(buffer.written - rows, 0)
    row = jax.random.randint(row_key, (count,), oldest, buffer.written - length + 1)
    return Place(row, jax.random.randint(world_key, (count,), 0, worlds))


def windows(buffer: Buffer, at: Place, length: int = 1) -> Transition:
    """What begins at these places: [B, length, ...].

    A window may run on over the end of an episode, whose last step says so.
    """
    row = (at.row[:, None] + jnp.arange(length)) % buffer.data.reward.shape[0]
    return jax.tree.map(lambda ring: ring[row, at.world[:, None]], buffer.data)


def sample(buffer: Buffer, key: Key, count: int, length: int = 1) -> Transition:
    """`count` windows of `length` steps, drawn uniformly: [count, length, ...]."""
    return windows(buffer, places(buffer, key, count, length), length)


def later(buffer: Buffer, key: Key, at: Place, most: int) -> Place:
    """A step of each one's episode, from there to its end, or the newest, drawn uniformly.

    `most`: steps that an episode may have.
    """
    rows = at.row[:, None] + jnp.arange(most)
    ring, world = rows % buffer.data.reward.shape[0], at.world[:, None]
    over = buffer.data.terminated[ring, world] | buffer.data.truncated[ring, world]
    same = (jnp.cumsum(over, 1) - over == 0) & (rows < buffer.written)
    left = same.sum(1)
    ahead = jnp.floor(jax.random.uniform(key, left.shape) * left).astype(jnp.int32)
    return at._replace(row=at.row + jnp.minimum(ahead, left - 1))


def to_go(buffer: Buffer, at: Place, gamma: float, most: int, unknown: float) -> Array:
    """Discounted return [B] from each place to the end of its episode, as sampling.to_go has it;
    `unknown` where that has not ended yet.

    `most`: steps that an episode may have.
    """
    rows = at.row[:, None] + jnp.arange(most)
    ring, world = rows % buffer.data.reward.shape[0], at.world[:, None]
    terminated, truncated = (
        x[ring, world] for x in (buffer.data.terminated, buffer.data.truncated)
    )
    over = terminated | truncated
    same = (jnp.cumsum(over, 1) - over == 0) & (rows < buffer.written)
    reward = jnp.where(same, buffer.data.reward[ring, world], 0)
    cut = same & truncated & ~terminated
    ahead = jnp.where(cut, jnp.minimum(reward, 0) * gamma / (1 - gamma) if gamma < 1 else 0, 0)
    found = ((reward + ahead) * gamma ** jnp.arange(most)).sum(1)
    return jnp.where((over & same).any(1), found, unknown)


def mix(parts: Sequence[Transition], axis: int = 0) -> Transition:
    """Batches of equal size interleaved one by one: a slice along `axis` has as much of each."""

    def interleave(*xs: Array) -> Array:
        shape = xs[0].shape
        return jnp.stack(xs, axis + 1).reshape(*shape[:axis], -1, *shape[axis + 1 :])

    return jax.tree.map(interleave, *parts)
