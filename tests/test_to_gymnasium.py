"""Ours as Gymnasium's users know theirs: its checkers, and its own vector environments."""

import warnings
from dataclasses import dataclass
from functools import cache

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.utils.env_match import check_environments_match
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs
from envs.adapters.to_gymnasium import to_gymnasium
from envs.gym_mujoco.inverted_pendulum import InvertedPendulum
from envs.repeat import Repeat

WORLDS = 3


@cache
def ours(name="InvertedPendulum-v5", steps=8, **fields):
    return envs.make(name, max_episode_steps=steps, **fields)


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Hopper-v5", "InvertedPendulum-v5"])
def test_gymnasiums_checker_has_nothing_to_say(name):
    id_ = f"Ours{name}"
    gymnasium.register(id_, lambda **options: to_gymnasium(ours(name), **options))
    env = gymnasium.make(id_).unwrapped
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(env, skip_render_check=True)  # pictures need GL and have tests of their own
    # Joint positions and velocities have no bounds, in gymnasium's own tasks as well.
    said = [str(w.message) for w in said if "infinity" not in str(w.message)]
    said = [s for s in said if "settotalmass" not in s]  # MuJoCo about gymnasium's model
    assert said == []


def test_gymnasiums_matcher_finds_equal_seeds_equal():
    check_environments_match(to_gymnasium(ours()), to_gymnasium(ours()), 30, seed=3)


def test_seeds_differ_and_unseeded_resets_go_on_from_the_seed():
    env = to_gymnasium(ours())
    starts = [env.reset(seed=s)[0] for s in (1, None, None, 2, 1, None, None)]
    assert not np.allclose(starts[0], starts[3])
    assert not np.allclose(starts[1], starts[2])
    np.testing.assert_array_equal(starts[:3], starts[4:])


@pytest.mark.parametrize("name", envs.names())
def test_every_task_takes_the_actions_that_its_space_has(name):
    env = to_gymnasium(envs.make(name))
    assert env.action_space == spaces.Box(-1, 1, (env.env.action_dim,), np.float32)


@pytest.mark.parametrize("name", ["Humanoid-v5", "InvertedPendulum-v5", "Reacher-v5"])
def test_action_space_is_the_tasks_own_unless_rescaled(name):
    env = envs.make(name, rescale=False)
    assert to_gymnasium(env).action_space == gymnasium.make(name).action_space
    assert to_gymnasium(Repeat(env, 2)).action_space == gymnasium.make(name).action_space
    unit = to_gymnasium(envs.make(name)).action_space
    assert unit == spaces.Box(-1, 1, unit.shape, np.float32)


def test_pictures_are_of_the_current_state():
    env = to_gymnasium(Repeat(ours("HalfCheetah-v5"), 2), "rgb_array")
    assert env.render() is None  # no state yet
    env.reset(seed=0)
    first = np.asarray(env.render())
    env.step(np.ones(6))
    assert first.dtype == np.uint8
    assert first.ndim == 3
    assert first.std() > 0
    assert not np.array_equal(first, np.asarray(env.render()))
    with pytest.raises(ValueError, match="render_mode"):
        to_gymnasium(ours(), "human")


def test_bad_calls_are_told():
    env, vector = to_gymnasium(ours()), envs.to_gymnasium_vector(ours(), WORLDS)
    with pytest.raises(ResetNeeded, match="reset"):
        env.step(np.zeros(1))
    with pytest.raises(ResetNeeded, match="reset"):
        vector.step(np.zeros((WORLDS, 1)))
    with pytest.raises(ValueError, match="no options"):
        env.reset(options={"low": 0})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2,\); this takes \(1,\)"):
        env.step(np.zeros(2))
    with pytest.raises(ValueError, match="2 seeds for 3"):
        vector.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="bool"):
        vector.reset(options={"reset_mask": [True, False, False]})
    with pytest.raises(ValueError, match="with a True"):
        vector.reset(options={"reset_mask": np.zeros(WORLDS, bool)})
    with pytest.raises(ValueError, match="num_envs is 0"):
        envs.to_gymnasium_vector(ours(), 0)
    with pytest.raises(ValueError, match="there are NextStep, SameStep, Disabled"):
        envs.to_gymnasium_vector(ours(), 2, "whenever")
    assert envs.to_gymnasium_vector(ours(), 2, "SameStep").mode is AutoresetMode.SAME_STEP
    for factory, count in ((env, 2), (lambda: env, 0)):
        with pytest.raises(ValueError, match="a factory and num_envs >= 1"):
            envs.from_gymnasium(factory, count)


@pytest.mark.parametrize("seed", [5, [7, 7, 9]], ids=["one", "each"])
@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_vector_equals_gymnasiums_own_over_single_ones(mode, seed):
    theirs = SyncVectorEnv([lambda: to_gymnasium(ours())] * WORLDS, autoreset_mode=mode)
    vector = envs.to_gymnasium_vector(ours(), WORLDS, mode)
    assert vector.observation_space == theirs.observation_space
    assert vector.action_space == theirs.action_space
    assert vector.metadata == theirs.metadata
    assert data_equivalence(vector.reset(seed=seed), theirs.reset(seed=seed))
    assert vector.np_random_seed == tuple(theirs.np_random_seed)
    ended = np.zeros(2, int)
    vector.action_space.seed(0)
    for _ in range(40):
        action = vector.action_space.sample()
        here, there = vector.step(action), theirs.step(action)
        assert data_equivalence(here, there), f"ours {here}\ntheirs {there}"
        ended += [here[2].sum(), here[3].sum()]
        done = here[2] | here[3]
        if mode is AutoresetMode.DISABLED and done.any():
            with pytest.raises(ResetNeeded):
                vector.step(action)
            again = [e.reset(options={"reset_mask": done.copy()}) for e in (vector, theirs)]
            assert data_equivalence(again[0], again[1])
    assert ended.min() >= 3, "too few episodes ended, or all in one way: nothing was tested"


@dataclass(frozen=True)
class Falls(InvertedPendulum):
    """Its context counts episodes that ended in a fall, and others."""

    def context(self):
        return np.zeros(2, int)

    def curriculum(self, key, context, episode, terminated):
        return context + jax.numpy.stack([terminated, ~terminated])


def test_a_curriculum_hears_how_a_worlds_episodes_ended():
    env = envs.simulate(Falls(), max_episode_steps=8)
    vector = envs.to_gymnasium_vector(env, WORLDS, "SameStep")
    vector.reset(seed=0)
    ended = np.zeros((WORLDS, 2), int)
    vector.action_space.seed(0)
    for _ in range(40):
        _, _, terminated, truncated, _ = vector.step(vector.action_space.sample())
        ended += np.stack([terminated, truncated & ~terminated], 1)
    np.testing.assert_array_equal(vector.state.context, ended)
    assert ended.sum(0).min() >= 3


def test_unseeded_vectors_differ_and_a_seed_for_some_leaves_the_rest():
    a, b = (envs.to_gymnasium_vector(ours(), WORLDS) for _ in range(2))
    first = a.reset()[0]
    assert len({x.tobytes() for x in (*first, *b.reset()[0])}) == 2 * WORLDS
    mask = np.array([False, True, False])
    again = a.reset(seed=[None, 4, None], options={"reset_mask": mask})[0]
    np.testing.assert_array_equal(again[~mask], first[~mask])
    np.testing.assert_array_equal(again[1], to_gymnasium(ours()).reset(seed=4)[0])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_what_a_vector_returned_is_the_callers(mode):
    vector = envs.to_gymnasium_vector(ours(steps=1), WORLDS, mode)
    kept: list[tuple] = [vector.reset(seed=0)]
    for _ in range(4):
        if mode is AutoresetMode.DISABLED:
            kept.append(vector.reset(options={"reset_mask": np.ones(WORLDS, bool)}))
        kept.append(vector.step(vector.action_space.sample()))
    arrays = [
        [x for x in jax.tree.leaves(k) if isinstance(x, np.ndarray) and x.dtype != object]
        for k in kept
    ]
    for i, some in enumerate(arrays):
        assert all(x.flags.writeable for x in some)
        others = [y for other in arrays[:i] for y in other]
        assert not any(np.shares_memory(x, y) for x in some for y in others)
