"""Executors of plans: how many actions of each are done, and what becomes of those that overlap.

A plan is made of what was seen lately: `plan(params, seen [h, O], key) -> chunk [H, A]`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rl.policy import Policy
from rl.types import Array, Key, Obs, Params, PyTree

Plan = Callable[[Params, Array, Key], Array]
Look = Callable[[Params, Obs], Array]  # what of an observation is planned by [O]


class Queue(NamedTuple):
    """What an executor carries."""

    seen: Array  # [h, O] lately, the newest last
    chunk: Array  # [H, A] that is being executed
    t: Array  # [] int32 ticks since its first action; -1: there is none yet


class Overlap(NamedTuple):
    """What an ensemble of plans carries."""

    seen: Array  # [h, O]
    chunks: Array  # [H, H, A] the newest plans, the newest first
    count: Array  # [] int32 of them


def lazily(make: Callable[..., Array]) -> Callable[..., Array]:
    """`call(need, old, *args)`: `make(*args)` where it is needed, else old; a batch of worlds makes
    it at the ticks at which any of them needs it, and not at every tick as under a vmapped cond."""

    @jax.custom_batching.custom_vmap
    def call(need: Array, old: Array, *args: Any) -> Array:
        def fresh() -> Array:
            wanted = need.reshape(*need.shape, *[1] * (old.ndim - need.ndim))
            return jnp.where(wanted, make(*args), old)

        return jax.lax.cond(need.any(), fresh, lambda: old)

    @call.def_vmap
    def over(size: int, batched: list[PyTree], need: Array, old: Array, *args: Any) -> Any:
        axes = jax.tree.map(lambda b: 0 if b else None, tuple(batched[2:]))
        given = [
            x if b else jnp.broadcast_to(x, (size, *x.shape))
            for x, b in zip((need, old), batched, strict=False)
        ]
        return lazily(jax.vmap(make, axes))(*given, *args), True

    return call


def recent(seen: Array, now: Array, first: Array) -> Array:
    """What was seen lately [h, O], and now; of an episode's `first` tick that alone."""
    later = jnp.concatenate([seen[1:], now[None]])
    return jnp.where(first, jnp.broadcast_to(now, seen.shape), later)


def receding(
    plan: Plan, look: Look, begin: Callable[[Params], tuple[Array, Array]], execute: int
) -> Policy:
    """Execute so many actions of a plan, then plan anew; all of them: open loop.

    `begin(params)` has the shapes of what is seen [h, O] and planned [H, A].
    """
    planned = lazily(plan)

    def init(params: Params) -> Queue:
        return Queue(*begin(params), jnp.int32(-1))

    def step(params: Params, carry: Queue, obs: Obs, key: Key) -> tuple[Array, Queue, tuple[()]]:
        first = carry.t < 0
        seen = recent(carry.seen, look(params, obs), first)
        anew = first | (carry.t + 1 == execute)
        chunk = planned(anew, carry.chunk, params, seen, key)
        t = jnp.where(anew, 0, carry.t + 1)
        return chunk[t], Queue(seen, chunk, t), ()

    return Policy(init, step)


def ensembled(
    plan: Plan, look: Look, begin: Callable[[Params], tuple[Array, Array]], decay: float
) -> Policy:
    """Plan at every tick, and act as all plans that tell of it do on average: exp(-decay i) for the
    i-th oldest of them (ACT: Zhao et al. 2023, arXiv:2304.13705)."""

    def init(params: Params) -> Overlap:
        seen, chunk = begin(params)
        return Overlap(seen, jnp.zeros((len(chunk), *chunk.shape)), jnp.int32(0))

    def step(
        params: Params, carry: Overlap, obs: Obs, key: Key
    ) -> tuple[Array, Overlap, tuple[()]]:
        seen = recent(carry.seen, look(params, obs), carry.count == 0)
        chunks = jnp.concatenate([plan(params, seen, key)[None], carry.chunks[:-1]])
        age = jnp.arange(len(chunks))
        count = jnp.minimum(carry.count + 1, len(chunks))
        weight = jnp.where(age < count, jnp.exp(-decay * (count - 1 - age)), 0)
        action = weight @ chunks[age, age] / weight.sum()
        return action, Overlap(seen, chunks, count), ()

    return Policy(init, step)
