"""How episodes end and begin again: failures, time limits, restarts, context."""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from envs.disturb import Disturbance
from envs.gym_mujoco.half_cheetah import HalfCheetah

WORLDS, LENGTH = 6, 6
NAN_ACTION, EXPLODES, NAN_START = 1, 3, 4  # worlds that fail; the others must not notice


@dataclass(frozen=True)
class Levelled(HalfCheetah):
    """A cheetah with a context, which names its command, and a mass of its own."""

    climb = 0.0

    def context(self):
        return {"level": jnp.float32(0)}

    def curriculum(self, key, context, episode, terminated):
        return {"level": context["level"] + self.climb}

    def reset(self, key, context):
        mass = jnp.asarray(self.model().body_mass, jnp.float32)
        params = {"body_mass": mass * jax.random.uniform(key, minval=0.5, maxval=2.0)}
        return super().reset(key, context)._replace(command=context["level"], params=params)


@cache
def compiled(name, **options):
    env = envs.make(name, physics="native", **options)
    return {
        "reset": jax.jit(jax.vmap(env.reset)),
        "reset_to": jax.jit(jax.vmap(env.reset_to)),
        "step": jax.jit(jax.vmap(env.step)),
        "restart": jax.jit(jax.vmap(env.restart)),
    }


def keys(count, seed=0):
    return jax.random.split(jax.random.key(seed), count)


def plain(tree):
    """`tree` with its random keys as numbers."""

    def data(x):
        return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x

    return jax.tree.map(data, tree)


def bits(tree):
    """Leaves as bytes, so that NaN equals itself and -0 is not 0."""
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(plain(tree))]


def assert_close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def world(tree, i):
    return jax.tree.map(lambda x: x[i], tree)


def starts(name):
    task = envs.make_task(name)
    start = jax.vmap(task.reset, (0, None))(keys(WORLDS), ())
    return np.array(start.qpos), np.array(start.qvel), len(task.spec.actuators)


def run(do, qpos, qvel, actions):
    """The state at the start, and that after each step, before those that ended restart."""
    state = do["reset_to"](keys(WORLDS), qpos, qvel)
    seen = [state]
    for action in actions:
        seen.append(do["step"](state, action))
        state = do["restart"](seen[-1])
    return seen


def assert_failed(state, before):
    """`state` of one world ended its episode, unrewarded, with what was last seen."""
    assert (bool(state.truncated), bool(state.terminated)) == (True, False)
    assert float(state.reward) == 0
    assert all(float(value) == (name == "failed") for name, value in state.metrics.items())
    assert np.isfinite(state.obs).all()
    np.testing.assert_array_equal(state.obs, before.obs)


# Ant keeps an MjData for each world, HalfCheetah one for each thread.
@pytest.mark.parametrize("name", ["Ant-v5", "HalfCheetah-v5"])
def test_a_failed_world_ends_its_episode_and_harms_no_other(name):
    do, (qpos, qvel, size) = compiled(name), starts(name)
    actions = np.random.default_rng(0).uniform(-1, 1, (LENGTH, WORLDS, size)).astype(np.float32)
    clean = run(do, qpos, qvel, actions)
    qvel[EXPLODES], qpos[NAN_START], actions[2:4, NAN_ACTION] = 1e9, np.nan, np.nan
    seen = run(do, qpos, qvel, actions)
    for t in range(LENGTH + 1):
        for i in {*range(WORLDS)} - {NAN_ACTION, EXPLODES, NAN_START}:
            assert bits(world(seen[t], i)) == bits(world(clean[t], i))
    assert np.isfinite(seen[0].obs).all()
    assert_failed(world(seen[1], EXPLODES), world(seen[0], EXPLODES))
    assert_failed(world(seen[1], NAN_START), world(seen[0], NAN_START))
    assert_failed(world(seen[3], NAN_ACTION), world(seen[2], NAN_ACTION))
    failed = np.stack([state.metrics["failed"] for state in seen]).astype(int)
    want = np.zeros_like(failed)
    want[1, [EXPLODES, NAN_START]] = want[3:5, NAN_ACTION] = 1  # at each NaN, and else never
    np.testing.assert_array_equal(failed, want)
    alive = seen[-1]
    assert alive.t.tolist() == [6, 2, 6, 5, 5, 6]
    assert np.isfinite(alive.obs).all()


@pytest.mark.parametrize("name", ["Ant-v5", "HalfCheetah-v5"])
def test_a_world_that_fails_again_in_the_same_place_is_found_again(name):
    """MuJoCo counts warnings from nought at each failure: the second looks like the first."""
    do, (qpos, qvel, size) = compiled(name), starts(name)
    qvel[EXPLODES], qpos[NAN_START] = 1e9, np.nan
    state, still = do["reset_to"](keys(WORLDS), qpos, qvel), np.zeros((WORLDS, size), np.float32)
    for _ in range(3):
        after = do["step"](state, still)
        assert after.truncated.tolist() == [False, False, False, True, True, False]
        assert bits(world(after.sim.data.row, EXPLODES)) == bits(
            world(state.sim.data.row, EXPLODES)
        )
        state = after


def test_a_time_limit_truncates_and_does_not_terminate():
    do = compiled("HalfCheetah-v5", max_episode_steps=3)
    state, still = do["reset"](keys(2)), np.zeros((2, 6), np.float32)
    for t in (1, 2, 3):
        state = do["step"](state, still)
        assert state.t.tolist() == [t, t]
        assert state.truncated.tolist() == [t == 3] * 2
        assert not state.terminated.any()
        assert not state.metrics["failed"].any()
    assert do["restart"](state).t.tolist() == [0, 0]


def test_an_episode_may_terminate_with_and_without_the_time_limit():
    do = compiled("InvertedPendulum-v5", max_episode_steps=2)
    qpos = np.array([[0, 0.1], [0, 0.3], [0, 0.17]], np.float32)
    qvel = np.array([[0, 0], [0, 0], [0, 0.5]], np.float32)
    one = do["step"](do["reset_to"](keys(3), qpos, qvel), np.zeros((3, 1), np.float32))
    assert one.terminated.tolist() == [False, True, False]
    assert one.truncated.tolist() == [False, False, False]
    two = do["step"](one, np.zeros((3, 1), np.float32))
    assert two.terminated.tolist() == [False, True, True]
    assert two.truncated.tolist() == [True, True, True]
    assert two.done.all()


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Pusher-v5", "Reacher-v5"])
def test_the_horizon_is_the_tasks_unless_told(name):
    env = envs.make(name, physics="native")
    assert env.horizon == {"Pusher-v5": 100, "Reacher-v5": 50}.get(name, 1000)
    assert envs.make(name, physics="native", max_episode_steps=7).horizon == 7


def test_a_restart_leaves_nothing_of_the_episode_but_context():
    """Masses, bias, delays, queues, clock: all are those of a reset with the same key."""
    disturbance = Disturbance({"qvel": 0.1}, bias={"qpos": 0.2}, reading_delay=(0, 2))
    env = envs.simulate(Levelled(), physics="native", disturbance=disturbance)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    restart = jax.jit(jax.vmap(env.restart))
    state = reset(keys(4), {"level": jnp.arange(4.0)})
    for _ in range(3):
        state = step(state, jnp.ones((4, 6)))
    ended = jnp.array([True, False, True, False])
    state = state._replace(terminated=ended & (jnp.arange(4) == 0), truncated=ended)
    after = restart(state)
    fresh = reset(state.key, state.context)
    assert state.context["level"].tolist() == state.sim.command.tolist() == [0, 1, 2, 3]
    for i in (1, 3):
        assert bits(world(after, i)) == bits(world(state, i))
    for i in (0, 2):
        assert bits(world(after.sim.data, i)) == bits(world(fresh.sim.data, i))
        jax.tree.map(assert_close, plain(world(after, i)), plain(world(fresh, i)))
    assert (after.sim.params["body_mass"] != state.sim.params["body_mass"]).any(1)[::2].all()
    assert (after.sim.disturbed.bias["qpos"] != state.sim.disturbed.bias["qpos"]).any(1)[::2].all()


class Climbing(Levelled):
    climb = 1.0


def test_a_curriculum_goes_on_from_each_worlds_own_level():
    env = envs.simulate(Climbing(), physics="native")
    reset, restart = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.restart))
    state = reset(keys(4), {"level": 10 * jnp.arange(4.0)})
    ended = jnp.array([True, False, True, False])
    over = state._replace(truncated=ended)
    after = restart(over)
    assert after.context["level"].tolist() == after.sim.command.tolist() == [1, 10, 21, 30]
    # One begun in advance is of the level before: it moves on an episode later.
    prepared = reset(keys(8)[4:], state.context)
    after = restart(over, prepared)
    assert after.context["level"].tolist() == [1, 10, 21, 30]
    assert after.sim.command.tolist() == [0, 10, 20, 30]
    assert (after.key == jnp.where(ended, prepared.key, state.key)).all()
