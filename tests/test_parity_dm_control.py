"""dm_control's own environments are the oracle of the five suite tasks.

Observations and rewards agree to 1e-5 relative with a floor of 1: |a - b| <= 1e-5 max(1, |b|).
Where a reward jumps, it is equal, unless the oracle itself stands within 1e-5 of the jump.
"""

import subprocess
import sys
from functools import cache
from importlib import util
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dm_control import suite
from dm_control.utils import rewards
from scipy.stats import ks_2samp

import envs
from envs.dmc import models

# dm_control does this where NumPy is 2.5; the oracle is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore:Setting the shape on a NumPy array")

TASKS = [name for name in envs.names() if name.startswith("dmc-")]
SINGLE, FREE_RUNNING, STARTS = 500, 20, 8
TOLERANCE = 1e-5


class States(NamedTuple):
    keys: jax.Array  # [N], what our reset draws besides the pose: the reacher's target
    qpos: np.ndarray  # [N, nq] float32
    qvel: np.ndarray  # [N, nv] float32


class Seen(NamedTuple):
    first: np.ndarray  # [N, O], of the reset
    obs: np.ndarray  # [T, N, O]
    reward: np.ndarray  # [T, N]


@cache
def oracle(name):
    _, domain, task = name.split("-")
    env = suite.load(domain, task, task_kwargs={"random": 0, "time_limit": float("inf")})
    env.reset()
    return env


def flat(observation):
    return np.concatenate([np.ravel(x) for x in observation.values()])


def put(env, qpos, qvel, target):
    """The oracle's observation in a state, with no trace of what ran before."""
    with env.physics.reset_context():
        env.physics.data.qpos[:], env.physics.data.qvel[:] = qpos, qvel
        if target is not None:
            env.physics.named.model.geom_pos["target"] = target
    return flat(env.task.get_observation(env.physics))


def to_jump(name, env):
    """How far the oracle is from where its reward jumps, in the unit of what decides."""
    if name == "dmc-finger-spin":
        return abs(env.physics.hinge_velocity() + 15)
    if name == "dmc-reacher-hard":
        return abs(env.physics.finger_to_target_dist() - 0.025)
    return np.inf


def run_oracle(name, states, actions):
    """Step the oracle from each of N states, actions [T, N, A]; and `to_jump` [T, N]."""
    env, (length, worlds, _) = oracle(name), actions.shape
    targets = target(name, states.keys)
    first = [[] for _ in range(worlds)]
    obs, reward, gap = [[[None] * worlds for _ in range(length)] for _ in range(3)]
    for i in range(worlds):
        first[i] = put(env, states.qpos[i], states.qvel[i], targets and targets[i])
        for t in range(length):
            step = env.step(actions[t, i])
            obs[t][i], reward[t][i] = flat(step.observation), step.reward
            gap[t][i] = to_jump(name, env)
    return Seen(np.array(first), np.array(obs), np.array(reward)), np.array(gap)


@cache
def ours(name, rescale=False):
    """A compiled run of our environment from states under actions [T, N, A]."""
    env = envs.make(name, physics="native", rescale=rescale)

    @jax.jit
    def run(states, actions):
        def tick(state, action):
            state = jax.vmap(env.step)(state, action)
            return state, (state.obs, state.reward)

        state = jax.vmap(env.reset_to)(*states)
        return Seen(state.obs, *jax.lax.scan(tick, state, actions)[1])

    return run


def target(name, keys):
    """Where our reset of each key puts the reacher's target: a list of [3], None if it has none."""
    env = envs.make(name, physics="native")
    params = jax.jit(jax.vmap(env.reset))(keys).sim.params
    if "geom_pos" not in params:
        return None
    return list(np.asarray(params["geom_pos"], np.float64)[:, env.task.model().geom("target").id])


@cache
def recorded(name):
    """States of random episodes, a third of them made eventful, and actions [T, N, A]."""
    env, rng = oracle(name), np.random.default_rng(0)
    qpos, qvel, low, high = [], [], env.action_spec().minimum, env.action_spec().maximum
    while len(qpos) < SINGLE:
        env.reset()
        for t in range(100):
            env.step(rng.uniform(low, high))
            if t % 5 == 0:
                qpos.append(env.physics.data.qpos.astype(np.float32))
                qvel.append(env.physics.data.qvel.astype(np.float32))
    qpos, qvel = np.array(qpos[:SINGLE]), np.array(qvel[:SINGLE])
    keys = jax.random.split(jax.random.key(0), 4000)
    if name == "dmc-cartpole-swingup":
        qpos[::3] = rng.uniform([-1.5, -20], [1.5, 20], qpos[::3].shape)
    if name == "dmc-cheetah-run":
        qvel[::3, 0] = rng.uniform(-2, 12, len(qvel[::3]))
    if name == "dmc-finger-spin":
        qvel[::3, 2] = rng.uniform(-20, -10, len(qvel[::3]))
    if name == "dmc-reacher-hard":
        places = target(name, keys)
        near = [near_target(env, q, places) for q in qpos[::3]]
        keys = keys[: len(qpos)].at[::3].set(keys[np.array(near)])
    actions = rng.uniform(low, high, (FREE_RUNNING, SINGLE, len(low))).astype(np.float32)
    return States(keys[: len(qpos)], qpos, qvel), actions


def near_target(env, qpos, targets):
    """Which of `targets` is nearest to the fingertip at `qpos`."""
    put(env, qpos, 0, targets[0])
    tip = env.physics.named.data.geom_xpos["finger"]
    return np.argmin(np.linalg.norm(np.array(targets) - tip, axis=1))


def assert_same(got, want, gap):
    for field in ("first", "obs"):
        a, b = getattr(got, field), getattr(want, field)
        assert (np.abs(a - b) / np.maximum(1, np.abs(b))).max() <= TOLERANCE, field
    sure = gap > TOLERANCE
    assert (~sure).sum() <= 2
    assert np.abs(got.reward - want.reward)[sure].max() <= TOLERANCE


@pytest.mark.parametrize("name", TASKS)
def test_single_steps_are_dm_controls(name):
    states, actions = recorded(name)
    want, gap = run_oracle(name, states, actions[:1])
    assert np.ptp(want.reward) > 0.1, "this reward shows nothing"
    assert (want.obs.std((0, 1)) > 1e-3).all(), "an entry that never changes"
    assert_same(ours(name)(states, actions[:1]), want, gap)


@pytest.mark.parametrize("name", TASKS)
def test_free_running_steps_are_dm_controls(name):
    states, actions = recorded(name)
    states, actions = jax.tree.map(lambda x: x[:STARTS], states), actions[:, :STARTS]
    want, gap = run_oracle(name, states, actions)
    assert_same(ours(name)(states, actions), want, gap)


@pytest.mark.parametrize("name", TASKS)
def test_resets_are_drawn_as_dm_controls(name):
    """Kolmogorov-Smirnov on every observed entry; seeds are fixed."""
    env, worlds = oracle(name), 400
    want = np.array([flat(env.reset().observation) for _ in range(worlds)])
    reset = jax.jit(jax.vmap(envs.make(name, physics="native").reset))
    got = np.asarray(reset(jax.random.split(jax.random.key(1), worlds)).obs)
    for i in range(want.shape[1]):
        if np.ptp(want[:, i]) < 1e-6:
            np.testing.assert_allclose(got[:, i], want[0, i], atol=1e-5)
        else:
            assert ks_2samp(got[:, i], want[:, i]).pvalue > 1e-4, i


@pytest.mark.parametrize("name", TASKS)
def test_clock_is_dm_controls(name):
    _, domain, task = name.split("-")
    env, spec = suite.load(domain, task), envs.make_task(name).spec
    assert spec.control_dt == pytest.approx(env.control_timestep())
    env.reset()
    length = next(t for t in range(1, 2000) if env.step(env.action_spec().minimum).last())
    assert spec.horizon == length


def test_finger_starts_without_contact():
    task, env = envs.make_task("dmc-finger-spin"), oracle("dmc-finger-spin")
    keys = jax.random.split(jax.random.key(0), 1000)

    def contacts(qpos):
        put(env, qpos, 0, None)
        return env.physics.data.ncon

    starts = jax.jit(jax.vmap(lambda k: task.reset(k, ()).qpos))(keys)
    assert sum(map(contacts, np.asarray(starts))) == 0
    poses = jax.jit(jax.vmap(lambda k: models.pose(k, task.model())))(keys)
    clear = jax.jit(jax.vmap(task.clearance))(poses) > 0
    assert [contacts(q) == 0 for q in np.asarray(poses)] == clear.tolist()
    assert 0.02 < 1 - clear.mean() < 0.2


@pytest.mark.parametrize(
    ("low", "high", "margin", "sigmoid", "at_margin"),
    [
        (0, 0.025, 0, "gaussian", 0.1),
        (-1, 2, 0.5, "gaussian", 0.1),
        (1, np.inf, 0.5, "linear", 0.5),
        (10, np.inf, 10, "linear", 0),
        (0, 0, 1, "quadratic", 0),
        (0, 0, 1, "quadratic", 0.3),
    ],
)
def test_tolerance_is_dm_controls(low, high, margin, sigmoid, at_margin):
    x = np.concatenate([np.linspace(-12, 12, 400), [low, low - margin, low - 1e-3]])
    shape = {"margin": margin, "sigmoid": sigmoid, "value_at_margin": at_margin}
    want = rewards.tolerance(x, (low, high), **shape)
    got = models.tolerance(jnp.asarray(x, jnp.float32), low, high, **shape)
    np.testing.assert_allclose(got, want, atol=2e-6)


def test_models_need_dm_controls_files_and_not_its_code(monkeypatch):
    code = (
        "import sys, envs; envs.make_task('dmc-reacher-hard').model();"
        "sys.exit(any(name.split('.')[0] == 'dm_control' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="extra `dmc`"):
        models.load("an-uncached.xml")
    monkeypatch.setattr(models, "find_spec", util.find_spec)
    with pytest.raises(FileNotFoundError, match=r"no model 'unheard-of\.xml'"):
        models.load("unheard-of.xml")
