"""Rollouts on an environment whose every number is known: it counts, and ends where it says."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import rollout
from rl.env import Restarts, State
from rl.policy import Policy, memoryless
from rl.types import Array, Key, PyTree


@dataclass(frozen=True)
class Count:
    """obs is (start, t); reward t; terminated at t = start + 2, truncated at `horizon`."""

    horizon: int = 4
    restarts: Restarts = "few"
    action_dim: int = 1
    control_dt: float = 1.0
    endless: bool = False  # but for the horizon

    def reset(self, key: Key, context: PyTree = None) -> State:
        start_key, key = jax.random.split(key)
        start = jax.random.randint(start_key, (), 0, 4).astype(jnp.float32)
        no, zero = jnp.bool(False), jnp.int32(0)
        obs = jnp.stack([start, 0.0])
        return State(start, context, obs, jnp.float32(0), no, no, {}, zero, key)

    def step(self, state: State, action: Array) -> State:
        t = state.t + 1
        return state._replace(
            obs=jnp.stack([state.sim, t.astype(jnp.float32)]), reward=t.astype(jnp.float32),
            terminated=(t >= state.sim + 2) & (not self.endless), truncated=t >= self.horizon, t=t,
        )  # fmt: skip

    def restart(self, state: State, prepared: State | None = None) -> State:
        fresh = self.reset(state.key, state.context) if prepared is None else prepared
        return self.select(state.done, fresh, state)

    def select(self, done: Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)


def counting() -> Policy:
    """Its carry is the number of steps since its episode began, which is also its aux."""
    return Policy(
        init=lambda params: jnp.int32(0),
        step=lambda params, carry, obs, key: (jnp.zeros(1), carry + 1, carry),
    )


@pytest.mark.parametrize("worlds", [6, 40])
@pytest.mark.parametrize("restarts", ["few", "all", "prepared"])
def test_collect_records_true_ends_and_restarts_all(restarts: Restarts, worlds: int) -> None:
    env, policy = Count(restarts=restarts), counting()
    begun = rollout.start(env, policy, (), jax.random.key(0), worlds)
    collect = jax.jit(lambda w, k: rollout.collect(env, policy, (), w, k, 20))
    after, seen, episodes = collect(begun, jax.random.key(1))
    obs, then = np.asarray(seen.obs), np.asarray(seen.next_obs)
    done = np.asarray(seen.terminated | seen.truncated)
    assert (then[..., 1] == obs[..., 1] + 1).all()  # the true last observation, never the reset's
    assert (obs[1:, :, 1] == np.where(done[:-1], 0, then[:-1, :, 1])).all()
    assert (np.asarray(seen.aux) == obs[..., 1]).all()  # the policy's carry began anew each time
    assert (done == (then[..., 1] >= np.minimum(obs[..., 0] + 2, env.horizon))).all()
    assert (np.asarray(seen.terminated) == (then[..., 1] >= obs[..., 0] + 2)).all()
    length = then[..., 1]
    assert (np.asarray(episodes.lengths)[done] == length[done]).all()
    assert (np.asarray(episodes.returns)[done] == (length * (length + 1) / 2)[done]).all()
    means = episodes.means()
    assert means["episodes"] == done.sum()
    assert means["episode_length"] == pytest.approx(length[done].mean())
    twice = np.maximum(done.sum(0) - 1, 0).sum()
    assert twice > 0
    assert means["reused_starts"] == (twice if restarts == "prepared" else 0)
    again = collect(after, jax.random.key(2))[1]
    assert (np.asarray(again.obs[0, :, 1]) == np.asarray(after.state.t)).all()  # goes on, mid-way


def test_worlds_begin_their_episodes_differently() -> None:
    env, policy = Count(), counting()
    begun = rollout.start(env, policy, (), jax.random.key(0), 64)
    _, seen, _ = rollout.collect(env, policy, (), begun, jax.random.key(1), 30)
    firsts = np.asarray(seen.obs)[np.asarray(seen.obs)[..., 1] == 0][:, 0]
    assert len(set(firsts.tolist())) == 4
    assert len({tuple(column) for column in np.asarray(seen.obs[..., 0]).T.tolist()}) > 50


def test_evaluate_is_one_whole_episode_each_and_starts_are_shared() -> None:
    env = Count()
    lazy = memoryless(lambda params, obs, key: (jnp.zeros(1), ()))
    judge = jax.jit(lambda policy_key: rollout.evaluate(env, lazy, (), policy_key, 32))
    found = judge(jax.random.key(3))
    starts = jax.vmap(env.reset)(jax.random.split(jax.random.split(jax.random.key(3))[0], 32)).sim
    length = np.minimum(np.asarray(starts) + 2, env.horizon)
    assert (np.asarray(found.lengths) == length).all()
    assert (np.asarray(found.returns) == length * (length + 1) / 2).all()
    other = rollout.evaluate(env, counting(), (), jax.random.key(3), 32)
    assert (np.asarray(other.lengths) == length).all()
    assert jnp.array_equal(judge(jax.random.key(3)).returns, found.returns)


def test_collect_traces_the_step_once() -> None:
    traced = []
    env = Count()
    policy = memoryless(lambda p, o, k: (traced.append(1) or jnp.zeros(1), ()))
    collect = jax.jit(lambda w, k: rollout.collect(env, policy, (), w, k, 8)[0])
    worlds = rollout.start(env, policy, (), jax.random.key(0), 3)
    for i in range(3):
        worlds = collect(worlds, jax.random.key(i))
    assert len(traced) == 1


@pytest.mark.optimised
def test_seeds_side_by_side_are_the_seeds_alone() -> None:
    env, policy = Count(), counting()

    def run(key: Key) -> tuple:
        begun = rollout.start(env, policy, (), key, 5)
        return rollout.collect(env, policy, (), begun, key, 12)

    keys = jax.random.split(jax.random.key(0), 3)
    together = jax.jit(jax.vmap(run))(keys)
    alone = [jax.jit(run)(key) for key in keys]
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *alone)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, together, stacked))
    assert "cond" in str(jax.make_jaxpr(jax.vmap(run))(keys))  # no select: resets stay rare


def test_staggered_worlds_end_at_all_times_and_not_at_once() -> None:
    env, policy = Count(horizon=50, restarts="all", endless=True), counting()
    begun = rollout.start(env, policy, (), jax.random.key(0), 400)
    staggered = rollout.staggered(env, begun, jax.random.key(1))
    for worlds, ends in ((begun, {49, 99}), (staggered, set(range(100)))):
        _, _, episodes = rollout.collect(env, policy, (), worlds, jax.random.key(2), 100)
        ended = np.asarray(episodes.ended)
        assert set(np.flatnonzero(ended.any(1))) == ends
        lengths = np.asarray(episodes.lengths)[ended]
        assert lengths.max() == 50
    assert ended.sum(1).max() < 40
    assert len(set(np.asarray(episodes.lengths)[:50][ended[:50]])) == 50  # the first are cut short
