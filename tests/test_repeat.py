"""Action repeat against a loop written out by hand."""

from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.repeat import Repeat
from rl import policy, rollout
from rl.env import State

WORLDS, HELD = 6, 12


@dataclass(frozen=True, eq=False)
class Walk:
    """A point pushed along a line until it is 2 from where it began; every number is exact."""

    horizon: int = 11
    action_dim = 1
    control_dt = 0.1
    restarts = "few"

    def reset(self, key, context=None):
        no, zero = jnp.bool(False), jnp.float32(0)
        return State((), (), jnp.zeros(1), zero, no, no, {"pushed": zero}, jnp.int32(0), key)

    def restart(self, state, prepared=None):
        return self.select(state.done, self.reset(jax.random.split(state.key)[0]), state)

    def select(self, done, fresh, state):
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)

    def step(self, state, action):
        obs, t = state.obs + action, state.t + 1
        return state._replace(
            obs=obs,
            reward=obs[0] * t,
            terminated=jnp.abs(obs[0]) > 2,
            truncated=t >= self.horizon,
            metrics={"pushed": jnp.abs(action[0])},
            t=t,
        )


def by_hand(env, times, actions):
    """Rewards, metrics, flags, observations of actions [T, N, A], each held, in plain Python."""
    step, restart = jax.jit(jax.vmap(env.step)), jax.jit(jax.vmap(env.restart))
    state = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), actions.shape[1]))
    for action in actions:
        over = np.zeros(len(action), bool)
        reward, metrics = np.zeros(len(action)), dict.fromkeys(state.metrics, 0.0)
        for _ in range(times):
            after = step(state, action)
            reward += np.where(over, 0, after.reward)
            metrics = {k: metrics[k] + np.where(over, 0, x) for k, x in after.metrics.items()}
            state = jax.vmap(env.select)(jnp.asarray(over), state, after)
            over = over | np.asarray(after.done)
        yield reward, metrics, state, over
        state = restart(state)


@pytest.mark.parametrize("times", [1, 4])
@pytest.mark.parametrize(
    "env",
    [Walk(), Walk(horizon=3), envs.make("InvertedPendulum-v5", max_episode_steps=10)],
    ids=["walk", "short", "pendulum"],
)
def test_equals_a_loop_and_stops_inside_where_an_episode_ends(env, times):
    actions = jax.random.uniform(jax.random.key(1), (HELD, WORLDS, 1), minval=-1, maxval=1)
    held = Repeat(env, times)
    step, restart = jax.jit(jax.vmap(held.step)), jax.jit(jax.vmap(held.restart))
    state = jax.jit(jax.vmap(held.reset))(jax.random.split(jax.random.key(0), WORLDS))
    inside = 0
    for action, (reward, metrics, there, over) in zip(
        actions, by_hand(env, times, actions), strict=True
    ):
        here = step(state, action)
        np.testing.assert_allclose(here.reward, reward, rtol=1e-5, atol=1e-6)
        for name, x in metrics.items():
            np.testing.assert_allclose(here.metrics[name], x, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(here.obs, there.obs, rtol=1e-6, atol=1e-6)
        np.testing.assert_array_equal(here.terminated, there.terminated)
        np.testing.assert_array_equal(here.truncated, there.truncated)
        np.testing.assert_array_equal(here.t, -(-there.t // times))
        inside += int((over & (np.asarray(there.t) % times > 0)).sum())
        state = restart(here)
    assert times == 1 or inside > 0, "no episode ended inside a held action: nothing was tested"


def test_an_ended_episode_is_not_stepped():
    held = Repeat(Walk(horizon=3), 4)
    ended = held.step(held.reset(jax.random.key(0)), jnp.ones(1) / 2)
    again = held.step(ended, jnp.ones(1))
    assert bool(ended.truncated)
    assert float(ended.reward) == 0.5 * 1 + 1.0 * 2 + 1.5 * 3
    assert float(ended.metrics["pushed"]) == 1.5
    assert float(again.reward) == 0
    assert float(again.metrics["pushed"]) == 0
    assert float(again.obs[0]) == float(ended.obs[0]) == 1.5
    assert int(again.t) == int(ended.t) == 1


def test_clock_counts_held_actions():
    held = Repeat(Walk(), 4)
    assert held.horizon == 3  # 4 + 4 + 3 steps
    assert held.control_dt == pytest.approx(0.4)
    still = policy.memoryless(lambda params, obs, key: (jnp.zeros(1), ()))
    episodes = jax.jit(lambda key: rollout.evaluate(held, still, (), key, 2))(jax.random.key(0))
    assert episodes.ended.all()
    assert episodes.lengths.tolist() == [3, 3]


def test_refuses_to_hold_for_no_step():
    with pytest.raises(ValueError, match="needs 1 or more"):
        Repeat(Walk(), 0)


def test_holds_actions_of_worlds_on_the_host():
    def make():
        return gymnasium.make("InvertedPendulum-v5", max_episode_steps=10)

    held = Repeat(envs.from_gymnasium(make, 3), 4)
    random = policy.uniform(1)
    worlds = rollout.start(held, random, (), jax.random.key(0), 3)
    _, seen, ends = jax.jit(lambda w, key: rollout.collect(held, random, (), w, key, 9))(
        worlds, jax.random.key(1)
    )
    # Upright pays 1 a step, so rewards are steps made; none lasts beyond 10, in 3 held actions.
    assert ends.ended.sum() >= 3
    assert np.asarray(ends.lengths)[np.asarray(ends.ended)].max() <= 3
    assert np.asarray(ends.returns)[np.asarray(ends.ended)].max() <= 10
    assert set(np.asarray(seen.reward)[~np.asarray(ends.ended)].tolist()) <= {4.0}
