"""Gymnasium's own environments are the oracle of the eleven MuJoCo tasks.

Observations agree to 1e-5 relative with a floor of 1 for every entry, |a - b| <= 1e-5 max(1, |b|),
and so do rewards; terminations agree exactly.  Every contact force is on.
"""

import inspect
from functools import cache
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.stats import ks_2samp

import envs

GYMNASIUM = [name for name in envs.names() if name.endswith("-v5")]
MAY_END = ("Ant", "Hopper", "Humanoid", "InvertedDoublePendulum", "InvertedPendulum", "Walker2d")
TOUCHY = ("Ant-v5", "Humanoid-v5", "HumanoidStandup-v5")  # observe contact forces
RUNNERS = ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer", "Walker2d")
SINGLE, FREE_RUNNING, STARTS = 1000, 60, 4
TOLERANCE = 1e-5


class Seen(NamedTuple):
    first: np.ndarray  # [N, O], of the reset
    obs: np.ndarray  # [T, N, O]
    reward: np.ndarray  # [T, N]
    terminated: np.ndarray  # [T, N]


@cache
def oracle(name, overrides=()):
    return gymnasium.make(name, **dict(overrides)).unwrapped


def put(env, qpos, qvel):
    """Gymnasium's reset observation at `qpos`, `qvel`, with no trace of what ran before."""
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(qpos.astype(np.float64), qvel.astype(np.float64))
    return env._get_obs()


def run_oracle(env, qpos, qvel, actions):
    """Step Gymnasium's environment from each of N states: actions [T, N, A]."""
    length, worlds, _ = actions.shape
    first = [put(env, *start) for start in zip(qpos, qvel, strict=True)]
    obs = np.zeros((length, worlds, len(first[0])))
    reward, terminated = np.zeros((length, worlds)), np.zeros((length, worlds), bool)
    for i in range(worlds):
        put(env, qpos[i], qvel[i])
        for t in range(length):
            obs[t, i], reward[t, i], terminated[t, i], _, _ = env.step(actions[t, i])
    return Seen(np.stack(first), obs, reward, terminated)


@cache
def ours(name, overrides=(), rescale=False):
    """A compiled run of our environment, of the signature of `run_oracle` without `env`."""
    env = envs.make(name, physics="native", rescale=rescale, **dict(overrides))

    @jax.jit
    def run(qpos, qvel, actions):
        def tick(state, action):
            state = jax.vmap(env.step)(state, action)
            return state, (state.obs, state.reward, state.terminated)

        state = jax.vmap(env.reset_to, (None, 0, 0))(jax.random.key(0), qpos, qvel)
        return Seen(state.obs, *jax.lax.scan(tick, state, actions)[1])

    return run


@cache
def recorded(name, count=SINGLE):
    """`count` float32 states [N, nq], [N, nv] of random episodes, and actions [1, N, A]."""
    env = oracle(name)
    env.reset(seed=0)
    env.action_space.seed(0)
    qpos, qvel, actions, fresh = [], [], [], 0
    for _ in range(count):
        qpos.append(env.data.qpos.astype(np.float32))
        qvel.append(env.data.qvel.astype(np.float32))
        actions.append(env.action_space.sample())
        fresh += 1
        if env.step(actions[-1])[2] or fresh == 200:
            env.reset()
            fresh = 0
    return np.stack(qpos), np.stack(qvel), np.stack(actions)[None]


def assert_close(got, want):
    assert got.shape == want.shape
    error = np.abs(got - want) / np.maximum(1, np.abs(want))
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error[worst] <= TOLERANCE, f"{got[worst]} is not {want[worst]} at {worst}"


def assert_same(got, want):
    for name, value, expected in zip(Seen._fields, got, want, strict=True):
        assert np.isfinite(value).all(), name
        if name == "terminated":
            np.testing.assert_array_equal(value, expected)
        else:
            assert_close(np.asarray(value), expected)


def unlike(a, b):
    return any(x.shape != y.shape or not np.allclose(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("name", GYMNASIUM)
def test_single_steps(name):
    qpos, qvel, actions = recorded(name)
    want = run_oracle(oracle(name), qpos, qvel, actions)
    assert_same(ours(name)(qpos, qvel, actions), want)
    assert want.terminated.any() == (name.removesuffix("-v5") in MAY_END)
    assert not want.terminated.all()
    if name in TOUCHY:
        assert (want.obs[..., -72:] != 0).any(-1).mean() > 0.2, "few states in contact"


@pytest.mark.parametrize("name", GYMNASIUM)
def test_free_running(name):
    qpos, qvel, actions = recorded(name)
    at = np.arange(STARTS) * (SINGLE // STARTS)
    actions = actions[0, : FREE_RUNNING * STARTS].reshape(FREE_RUNNING, STARTS, -1)
    want = run_oracle(oracle(name), qpos[at], qvel[at], actions)
    assert_same(ours(name)(qpos[at], qvel[at], actions), want)


@pytest.mark.parametrize("name", [f"{runner}-v5" for runner in RUNNERS])
def test_reward_is_exact_far_from_the_origin(name):
    qpos, qvel, actions = (x[..., :100, :].copy() for x in recorded(name))
    qpos[:, 0] = np.linspace(490, 510, 100)
    want = run_oracle(oracle(name), qpos, qvel, actions)
    got = ours(name)(qpos, qvel, actions)
    assert_close(np.asarray(got.reward), want.reward)


@pytest.mark.parametrize("name", GYMNASIUM)
def test_fields_are_gymnasiums_arguments(name):
    wanted = inspect.signature(type(oracle(name)).__init__).parameters
    ours = {k: v for k, v in vars(envs.make_task(name)).items() if k != "rescale"}
    apart = ("self", "default_camera_config", "kwargs")  # cameras are not a matter of the task
    assert ours == {k: p.default for k, p in wanted.items() if k not in apart}
    assert envs.make(name, physics="native").horizon == gymnasium.spec(name).max_episode_steps


OVERRIDES = [
    ("Ant-v5", {"include_cfrc_ext_in_observation": False, "contact_cost_weight": 0.0}),
    ("Ant-v5", {"contact_force_range": (-0.3, 0.5), "main_body": "aux_1", "frame_skip": 3}),
    ("Ant-v5", {"healthy_z_range": (0.4, 0.8), "healthy_reward": 0.3}),
    ("HalfCheetah-v5", {"ctrl_cost_weight": 0.7, "forward_reward_weight": 2.0}),
    ("HalfCheetah-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 2}),
    ("Hopper-v5", {"healthy_state_range": (-2.0, 2.0), "terminate_when_unhealthy": False}),
    ("Hopper-v5", {"healthy_z_range": (1.2, 1.3), "healthy_angle_range": (-0.05, 0.05)}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "contact_cost_weight": 1e-3}),
    ("Humanoid-v5", {"contact_cost_weight": 1e-3, "contact_cost_range": (0.5, 2.0),
                     "include_cfrc_ext_in_observation": False}),
    ("HumanoidStandup-v5", {"impact_cost_weight": 1e-3, "include_cvel_in_observation": False,
                            "include_qfrc_actuator_in_observation": False}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 3.0}),
    ("Pusher-v5", {"reward_near_weight": 0.9, "reward_dist_weight": 0.2}),
    ("Reacher-v5", {"reward_control_weight": 0.3, "frame_skip": 4}),
    ("Swimmer-v5", {"exclude_current_positions_from_observation": False}),
    ("Walker2d-v5", {"healthy_angle_range": (-0.1, 0.1), "healthy_reward": 2.0}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "overrides"), OVERRIDES)
def test_overrides_do_what_gymnasiums_do(name, overrides):
    qpos, qvel, actions = (x[..., :100, :] for x in recorded(name))
    overrides = tuple(overrides.items())
    plain = run_oracle(oracle(name), qpos, qvel, actions)
    want = run_oracle(oracle(name, overrides), qpos, qvel, actions)
    assert unlike(want, plain), "this override shows nothing"
    assert_same(ours(name, overrides)(qpos, qvel, actions), want)


@pytest.mark.parametrize("name", ["Humanoid-v5", "InvertedPendulum-v5", "Pusher-v5"])
def test_rescaled_actions_are_gymnasiums(name):
    env = gymnasium.wrappers.RescaleAction(oracle(name), np.float32(-1), np.float32(1))
    qpos, qvel, _ = (x[..., :50, :] for x in recorded(name))
    actions = np.random.default_rng(0).uniform(-1, 1, (1, 50, env.action_space.shape[0]))
    actions = actions.astype(np.float32)
    own = np.stack([env.action(a) for a in actions[0]])[None]
    assert np.abs(own - actions).max() > 0.1
    want = run_oracle(oracle(name), qpos, qvel, own)
    assert_same(ours(name, rescale=True)(qpos, qvel, actions), want)


@pytest.mark.parametrize("name", GYMNASIUM)
def test_resets_are_drawn_as_gymnasiums(name):
    """Kolmogorov-Smirnov on every coordinate and on what couples them; seeds are fixed."""
    env, worlds = oracle(name), 1000
    env.reset(seed=1)
    want = []
    for _ in range(worlds):
        env.reset()
        want.append(env.state_vector())
    want = features(np.stack(want))
    reset = jax.jit(jax.vmap(envs.make(name, physics="native").reset))
    told = reset(jax.random.split(jax.random.key(1), worlds)).sim.told
    got = features(np.concatenate([told["qpos"], told["qvel"]], axis=1))
    for i in range(want.shape[1]):
        spread = np.ptp(want[:, i])
        if spread == 0:
            np.testing.assert_allclose(got[:, i], want[0, i], atol=1e-7)
        else:
            assert ks_2samp(got[:, i], want[:, i]).pvalue > 1e-4, i
            assert got[:, i].std() == pytest.approx(want[:, i].std(), rel=0.1)


def features(states):
    """States [N, nq + nv] and the length of each two neighbours as a vector: goals, cylinders."""
    pairs = [np.hypot(states[:, i], states[:, i + 1]) for i in range(states.shape[1] - 1)]
    return np.column_stack([states, *pairs])


def test_starts_of_the_arms_lie_where_they_may():
    keys = jax.random.split(jax.random.key(2), 5000)
    goal = jax.jit(jax.vmap(lambda k: envs.make_task("Reacher-v5").reset(k, ()).qpos[-2:]))(keys)
    assert 0.199 < jnp.linalg.norm(goal, axis=1).max() < 0.2
    cylinder = jax.jit(jax.vmap(lambda k: envs.make_task("Pusher-v5").reset(k, ()).qpos[-4:-2]))(
        keys
    )
    assert 0.17 < jnp.linalg.norm(cylinder, axis=1).min() < 0.171
    assert (jnp.abs(cylinder[:, 1]) < 0.2).all()
    assert ((cylinder[:, 0] > -0.3) & (cylinder[:, 0] <= 0)).all()
