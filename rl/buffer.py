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


def sample(buffer: Buffer, key: Key, count: int, length: int = 1) -> Transition:
    """`count` windows of `length` consecutive steps of a world, uniformly: [count, length, ...].

    A window may run on over the end of an episode, whose last step says so.  Needs at least
    `length` rows.
    """
    rows, worlds = buffer.data.reward.shape
    row_key, world_key = jax.random.split(key)
    oldest = jnp.maximum(buffer.written - rows, 0)
    first = jax.random.randint(row_key, (count, 1), oldest, buffer.written - length + 1)
    world = jax.random.randint(world_key, (count, 1), 0, worlds)
    row = (first + jnp.arange(length)) % rows
    return jax.tree.map(lambda ring: ring[row, world], buffer.data)


def mix(parts: Sequence[Transition]) -> Transition:
    """Batches of equal size interleaved one by one: any slice holds as much of each."""

    def interleave(*xs: Array) -> Array:
        return jnp.stack(xs, 1).reshape(-1, *xs[0].shape[1:])

    return jax.tree.map(interleave, *parts)
