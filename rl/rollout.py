"""Collecting and evaluating experience: the only place that steps environments."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl.env import Env, State
from rl.policy import Carry, Policy
from rl.types import Array, Key, Metrics, Params, PyTree, Transition

RESTARTS = 16  # worlds at a time: most ticks end a few of many episodes
CROWDED = (
    "a world had more contacts at once than its physics has room for, and lost some: give the "
    "task's TaskSpec more `contacts`, or take --physics native or mjx"
)


class Worlds(NamedTuple):
    """N worlds in mid-episode, with what the policy carries in each."""

    state: State  # leaves [N, ...]
    carry: Carry  # leaves [N, ...]
    episode_return: Array  # [N] undiscounted, so far
    episode_length: Array  # [N] int32


class Episodes(NamedTuple):
    """What ended when; `returns` and `lengths` count where `ended`.  Stacks along new axes."""

    ended: Array  # [T, N] bool
    returns: Array  # [T, N]
    lengths: Array  # [T, N] int32
    failed: Array  # [] worlds the simulation gave up
    reused: Array  # [] starts used more than once, by worlds that ended twice with one prepared
    metrics: Metrics = {}  # noqa: RUF012 (never written to) of `evaluate`: means over each episode
    final: Metrics = {}  # noqa: RUF012 of each episode's last step, where `ended`

    def means(self) -> dict[str, Array]:
        """Return and length over the ended episodes (NaN if none), and the counts."""
        count = self.ended.sum()
        full = {k: x.max() for k, x in self.final.items() if k == "overflow"}  # of each step
        return {
            "episode_return": jnp.where(self.ended, self.returns, 0).sum() / count,
            "episode_length": jnp.where(self.ended, self.lengths, 0).sum() / count,
            "episodes": count,
            "failed": self.failed.sum(),
            "reused_starts": self.reused.sum(),
            **full,
        }

    def sound(self) -> "Episodes":
        """These, of `evaluate` and on the host; ValueError where a world was not simulated so."""
        if np.any(self.final.get("overflow", 0)):
            raise ValueError(f"In an evaluation {CROWDED}.")
        return self


def start(
    env: Env, policy: Policy, params: Params, key: Key, num_envs: int, context: PyTree = None
) -> Worlds:
    """N fresh worlds, in the same `context`; None is the task's own."""
    state = jax.vmap(env.reset, (0, None))(jax.random.split(key, num_envs), context)
    carry = _initial_carry(policy, params, num_envs)
    return Worlds(state, carry, jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32))


def staggered(env: Env, worlds: Worlds, key: Key) -> Worlds:
    """Fresh worlds, so much into their episodes' time that these do not end all at once."""
    t = jax.random.randint(key, worlds.episode_length.shape, 0, env.horizon)
    return worlds._replace(state=worlds.state._replace(t=t))


def collect(
    env: Env, policy: Policy, params: Params, worlds: Worlds, key: Key, length: int
) -> tuple[Worlds, Transition, Episodes]:
    """Step every world `length` times: transitions with leaves [T, N, ...].

    A transition is recorded before its world restarts, so `next_obs` is the true last one.
    """
    num_envs = worlds.episode_length.shape[0]
    pool_key, key = jax.random.split(key)
    context, pool = worlds.state.context, None
    if env.restarts == "prepared":
        pool = jax.vmap(env.reset)(jax.random.split(pool_key, num_envs), context)

    def tick(
        loop: tuple[Worlds, Array], key: Key
    ) -> tuple[tuple[Worlds, Array], tuple[Transition, Episodes]]:
        worlds, ended = loop
        obs = worlds.state.obs
        action, carry, aux = jax.vmap(policy.step, (None, 0, 0, 0))(
            params, worlds.carry, obs, jax.random.split(key, num_envs)
        )
        after = jax.vmap(env.step)(worlds.state, action)
        seen = Transition(
            obs, action, after.reward, after.terminated, after.truncated, after.obs, aux
        )
        done = after.done
        total, steps = worlds.episode_return + after.reward, worlds.episode_length + 1
        failed = after.metrics.get("failed", jnp.zeros(())).sum()
        end = Episodes(done, total, steps, failed, ended, final=after.metrics)
        state = _restart(env, after, pool)
        carry = _select(done, _initial_carry(policy, params, num_envs), carry)
        worlds = Worlds(state, carry, jnp.where(done, 0, total), jnp.where(done, 0, steps))
        return (worlds, ended + done), (seen, end)

    begin = worlds, jnp.zeros(num_envs, jnp.int32)
    (worlds, ended), (seen, ends) = jax.lax.scan(tick, begin, jax.random.split(key, length))
    reused = jnp.maximum(ended - 1, 0).sum() if pool is not None else jnp.int32(0)
    return worlds, seen, ends._replace(failed=ends.failed.sum(), reused=reused)


def evaluate(env: Env, policy: Policy, params: Params, key: Key, episodes: int) -> Episodes:
    """One whole episode in each of `episodes` fresh worlds: leaves [episodes].

    The same key gives the same starts to every policy.
    """
    reset_key, key = jax.random.split(key)
    worlds = start(env, policy, params, reset_key, episodes)

    class Loop(NamedTuple):
        worlds: Worlds
        alive: Array
        failed: Array
        metrics: Metrics  # summed
        final: Metrics
        t: Array

    def running(loop: Loop) -> Array:
        return loop.alive.any() & (loop.t < env.horizon)

    def tick(loop: Loop) -> Loop:
        worlds, alive = loop.worlds, loop.alive
        keys = jax.random.split(jax.random.fold_in(key, loop.t), episodes)
        action, carry, _ = jax.vmap(policy.step, (None, 0, 0, 0))(
            params, worlds.carry, worlds.state.obs, keys
        )
        state = jax.vmap(env.step)(worlds.state, action)
        total = worlds.episode_return + jnp.where(alive, state.reward, 0)
        worlds = Worlds(state, carry, total, worlds.episode_length + alive)
        now = jax.tree.map(lambda x: jnp.where(alive, x, 0), state.metrics)
        metrics = jax.tree.map(jnp.add, loop.metrics, now)
        final = jax.tree.map(lambda new, old: jnp.where(alive, new, old), state.metrics, loop.final)
        failed = loop.failed + now.get("failed", jnp.zeros(())).sum()
        return Loop(worlds, alive & ~state.done, failed, metrics, final, loop.t + 1)

    metrics = jax.tree.map(jnp.zeros_like, worlds.state.metrics)
    loop = Loop(worlds, jnp.ones(episodes, bool), jnp.float32(0), metrics, metrics, jnp.int32(0))
    loop = jax.lax.while_loop(running, tick, loop)
    lengths = loop.worlds.episode_length
    metrics = jax.tree.map(lambda x: x / lengths, loop.metrics)
    returns = loop.worlds.episode_return
    return Episodes(~loop.alive, returns, lengths, loop.failed, jnp.int32(0), metrics, loop.final)


def bare(env: Any) -> tuple[PyTree, Callable[[PyTree], Any]]:
    """The arrays of an environment in which a policy acts (residual.Assisted), and how to put them
    back: where worlds are mapped over, none can be closed over."""
    if not hasattr(env, "params"):
        return (), lambda held: env
    return env.params, lambda held: replace(env, params=held)


def _restart(env: Env, state: State, pool: State | None) -> State:
    """Fresh episodes where one ended; from a `pool`, each world has one of its own."""
    return _restart_where_done(env, state) if pool is None else jax.vmap(env.restart)(state, pool)


def _restart_where_done(env: Env, state: State) -> State:
    """Restart N worlds, at no cost in the many ticks that end no episode."""

    held, anew = bare(env)

    @jax.custom_batching.custom_vmap
    def restart(held: PyTree, state: State) -> State:
        own = anew(held)
        count = state.done.shape[0]
        few = min(count, RESTARTS) if env.restarts == "few" else count

        def some(loop: tuple[Array, State]) -> tuple[Array, State]:
            left, state = loop
            at = jnp.arange(count)
            if few < count:
                at = jnp.nonzero(left, size=few, fill_value=count)[0]
            ended = jax.tree.map(lambda x: x.at[at].get(mode="clip"), state)
            real = at < count  # what fills up the last few is no world that ended
            ended = ended._replace(
                terminated=ended.terminated & real, truncated=ended.truncated & real
            )
            fresh = jax.vmap(own.restart)(ended)
            put = lambda x, new: x.at[at].set(new, mode="drop")  # noqa: E731
            return left.at[at].set(False, mode="drop"), jax.tree.map(put, state, fresh)

        return jax.lax.while_loop(lambda loop: loop[0].any(), some, (state.done, state))[1]

    @restart.def_vmap
    def over_seeds(size: int, batched: list[Any], *given: Any) -> tuple[State, State]:
        # A vmapped loop would run for all seeds as long as for one; S seeds of N are S * N worlds.
        many = lambda x, b: x if b else jnp.broadcast_to(x, (size, *x.shape))  # noqa: E731
        whole = jax.tree.map(many, given[1], batched[1])
        if any(jax.tree.leaves(batched[0])):  # whose environments differ
            every = jax.tree.map(many, given[0], batched[0])
            fresh = jax.lax.map(lambda one: restart(*one), (every, whole))
        else:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), whole)
            fresh = jax.tree.map(lambda x, y: x.reshape(y.shape), restart(given[0], flat), whole)
        return fresh, jax.tree.map(lambda _: True, fresh)

    return restart(held, state)


def _initial_carry(policy: Policy, params: Params, num_envs: int) -> Carry:
    carry = policy.init(params)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *jnp.shape(x))), carry)


def _select(done: Array, new: Carry, old: Carry) -> Carry:
    def pick(a: Array, b: Array) -> Array:
        return jnp.where(done.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(pick, new, old)
