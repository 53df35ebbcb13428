"""Replay: what is read is what was written, of one world, in order, whatever came before."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl import buffer
from rl.types import Transition

N = 3


def rows(first: int, count: int) -> Transition:
    """Steps whose every number says which step of which world it is."""
    t, n = np.meshgrid(np.arange(first, first + count), np.arange(N), indexing="ij")
    image = np.stack([t % 256, n], -1).astype(np.uint8)
    state = jnp.asarray((t * N + n)[..., None], jnp.float32)
    return Transition(
        obs={"image": jnp.asarray(image), "state": state},
        action=jnp.asarray(t[..., None], jnp.float32), reward=jnp.asarray(t, jnp.float32),
        terminated=jnp.asarray(t % 7 == 0), truncated=jnp.asarray(t % 11 == 0),
        next_obs={"image": jnp.asarray(image), "state": jnp.zeros((count, N, 1))},
    )  # fmt: skip


def filled(capacity: int, additions: list[int]) -> tuple[buffer.Buffer, int]:
    ring = buffer.init(capacity, jax.tree.map(lambda x: x[0], rows(0, 1)))
    total = 0
    for count in additions:
        ring, total = buffer.add(ring, rows(total, count)), total + count
    return ring, total


@settings(max_examples=8, deadline=None)
@given(
    capacity=st.integers(5, 9), additions=st.lists(st.integers(1, 4), min_size=3, max_size=6),
    length=st.integers(1, 3), seed=st.integers(0, 2**31 - 1),
)  # fmt: skip
def test_windows_are_consecutive_and_of_what_is_kept(
    capacity: int, additions: list[int], length: int, seed: int
) -> None:
    ring, total = filled(capacity, additions)
    got = buffer.sample(ring, jax.random.key(seed), 200, length)
    t, state = np.asarray(got.reward), np.asarray(got.obs["state"][..., 0])
    assert t.shape == (200, length)
    assert (np.diff(t, axis=1) == 1).all()  # one after the other, also over the ring's seam
    world = state - t * N
    assert (world == world[:, :1]).all()  # in one world
    assert set(np.unique(t)) <= set(range(max(0, total - capacity), total))
    assert (np.asarray(got.obs["image"][..., 1]) == world).all()
    assert got.obs["image"].dtype == jnp.uint8
    assert (np.asarray(got.terminated) == (t % 7 == 0)).all()


def test_every_step_of_every_world_is_drawn_alike() -> None:
    ring, _ = filled(6, [4, 5])  # rows 3 to 8 are kept
    got = buffer.sample(ring, jax.random.key(0), 36_000)
    _, counts = np.unique(np.asarray(got.obs["state"]), return_counts=True)
    assert len(counts) == 18
    assert counts == pytest.approx(2000, rel=0.12)  # over 5 standard deviations


def test_mixed_batches_hold_as_much_of_each_in_any_slice() -> None:
    one, other = (jax.tree.map(lambda x: x[:, 0], rows(first, 8)) for first in (0, 100))
    mixed = np.asarray(buffer.mix([one, other]).reward)
    assert mixed.shape == (16,)
    for begin in range(0, 16, 4):
        assert (mixed[begin : begin + 4] >= 100).sum() == 2


def test_the_same_under_vmap_over_seeds() -> None:
    seeds = jax.tree.map(lambda *xs: jnp.stack(xs), rows(0, 4), rows(50, 4))
    empty = jax.tree.map(lambda x: jnp.stack([x, x]), filled(5, [])[0])
    both = jax.vmap(buffer.add)(empty, seeds)
    for i, first in enumerate((0, 50)):
        alone = buffer.add(filled(5, [])[0], rows(first, 4))
        assert jax.tree.all(jax.tree.map(lambda x, y, i=i: bool((x[i] == y).all()), both, alone))
