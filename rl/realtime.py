"""Plans that take time: the robot goes on by the plan before, and the new one is led on by it.

Real-time chunking: Black et al. 2025, arXiv:2506.07339.  rl/bridge/executor.py does on a robot what
`delayed` does in simulation.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.executors import Look, lazily, recent
from rl.generative import Field, Flow, along
from rl.policy import Policy
from rl.types import Array, Key, Obs, Params

BETA = 10.0  # the most that a plan is led by


class Lead(NamedTuple):
    """What leads a new plan."""

    chunk: Array  # [H, A] the plan before, its first action for this tick; the last again and again
    weight: Array  # [H] in [0, 1] how much each action is held to it


class Late(NamedTuple):
    """What an executor carries.  A plan is under way while `asked` < `delay`."""

    seen: Array  # [h, O] lately, the newest last
    chunk: Array  # [H, A] that is being executed
    t: Array  # [] int32 ticks since it was asked for; -1: there is none yet
    coming: Array  # [H, A] that was asked for last
    asked: Array  # [] int32 ticks since then
    delay: Array  # [] int32 ticks from then until it is there


LedPlan = Callable[[Params, Array, Key, Lead], Array]
# Of parameters, what is carried, an observation, a key, and how late a plan is if one is asked for.
Tick = Callable[[Params, Late, Obs, Key, Array], tuple[Array, Late]]


def weights(horizon: int, delay: Array | int, gone: Array | int) -> Array:
    """How much a plan [H] is held to the one before (eq. 5): wholly while it is under way, less and
    less where they overlap, and not at the end, of which a plan so many ticks older knows nothing.
    """
    i, known = jnp.arange(horizon), horizon - gone
    delay = jnp.minimum(delay, known)
    c = (known - i) / (known - delay + 1)
    falling = c * jnp.expm1(c) / jnp.expm1(1.0)
    return jnp.where(i < delay, 1, jnp.where(i < known, falling, 0))


def lead(chunk: Array, delay: Array | int, gone: Array | int) -> Lead:
    """By a plan [H, A], of which so many actions are gone, of one that is there after a delay."""
    horizon = len(chunk)
    rest = chunk[jnp.minimum(gone + jnp.arange(horizon), horizon - 1)]
    return Lead(rest, weights(horizon, delay, gone))


def guidance(done: Array) -> Array:
    """How strongly data are led so far along from noise to data (eq. 2 and 4)."""
    rest = 1 - done
    return jnp.minimum(BETA, (done**2 + rest**2) / jnp.maximum(done * rest, 1e-9))


def guided(flow: Flow, field: Field, lead: Lead) -> Field:
    """The velocity of plans [B, H, A] that come to what leads them (eq. 2 to 4, by a VJP through
    the estimate of the data)."""

    def led(x: Array, time: Array) -> Array:
        done = along(flow.time(time), x)

        def data(x: Array) -> tuple[Array, Array]:
            velocity = field(x, time)
            return x + (1 - done) * flow.sign * velocity, velocity

        found, pull, velocity = jax.vjp(data, x, has_aux=True)
        (towards,) = pull(lead.weight[:, None] * (lead.chunk - found))
        return velocity + flow.sign * guidance(done) * towards

    return led


def delayed(plan: LedPlan, look: Look, execute: int, expected: int) -> Tick:
    """Ask for a plan every so many ticks, or when the one under way is there if that is later; each
    plays from when it is there, by the ticks since it was asked for, and holds its last action.

    An episode's first plan is there at once, and nothing leads it.  Others are led as if they took
    the ticks `expected`.
    """
    planned = lazily(plan)

    def tick(params: Params, carry: Late, obs: Obs, key: Key, delay: Array) -> tuple[Array, Late]:
        first, asked = carry.t < 0, carry.asked + 1
        seen = recent(carry.seen, look(params, obs), first)
        there = asked == carry.delay
        chunk = jnp.where(there, carry.coming, carry.chunk)
        t = jnp.where(there, asked, carry.t + 1)

        anew = first | (asked >= jnp.maximum(execute, carry.delay))
        leads = lead(chunk, expected, jnp.where(first, len(chunk), t))
        coming = planned(anew, carry.coming, params, seen, key, leads)
        asked = jnp.where(anew, 0, asked)
        delay = jnp.where(anew, jnp.where(first, 0, delay), carry.delay)

        there = anew & (delay == 0)
        chunk, t = jnp.where(there, coming, chunk), jnp.where(there, 0, t)
        action = chunk[jnp.minimum(t, len(chunk) - 1)]
        return action, Late(seen, chunk, t, coming, asked, delay)

    return tick


def late(
    plan: LedPlan,
    look: Look,
    begin: Callable[[Params], tuple[Array, Array]],
    execute: int,
    most: int,
) -> Policy:
    """Execute plans that come up to so many ticks late, any delay as likely as another.

    `begin(params)` has the shapes of what is seen [h, O] and planned [H, A].
    """
    tick = delayed(plan, look, execute, most)

    def init(params: Params) -> Late:
        seen, chunk = begin(params)
        return Late(seen, chunk, jnp.int32(-1), chunk, jnp.int32(0), jnp.int32(0))

    def step(params: Params, carry: Late, obs: Obs, key: Key) -> tuple[Array, Late, tuple[()]]:
        delay_key, key = jax.random.split(key)
        delay = jax.random.randint(delay_key, (), 0, most + 1)
        return *tick(params, carry, obs, key, delay), ()

    return Policy(init, step)
