"""MJX's side of the contract, on a world small enough to compile in a test."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.physics.mjx import MJX
from envs.physics.native import Native
from envs.simulation import Simulation
from envs.task import Start, Task, TaskSpec
from rl import rollout
from rl.checkpoint import Checkpoints, fingerprint
from rl.policy import memoryless

WORLDS = 10
UNTUNED = {"xla_backend_optimization_level": 0}  # compiles in half the time, runs long enough
SLIDER = """<mujoco><option timestep="0.01"/><worldbody><camera name="eye" pos="0 -1 0"/>
  <body><joint name="x" type="slide" axis="1 0 0" range="-0.5 0.5"/>
  <geom size="0.1" mass="2" contype="0" conaffinity="0"/></body></worldbody>
  <actuator><motor name="push" joint="x" gear="5"/></actuator></mujoco>"""


def compiled(function, **options):
    return jax.jit(function, compiler_options=UNTUNED, **options)


@dataclass(frozen=True)
class Slider(Task):
    """Push a weight of unknown mass between two stops: small enough to compile in a test."""

    settle: int = 0

    @property
    def spec(self):
        return TaskSpec(
            actuators=("push",), low=(-1.0,), high=(1.0,), substeps=2, control_dt=0.02, horizon=3,
            fields=("qpos", "qvel"), settle=self.settle,
        )  # fmt: skip

    def model(self):
        return mujoco.MjModel.from_xml_string(SLIDER)

    def reset(self, key, context):
        x, v, mass = jax.random.uniform(key, (3,), minval=0.2, maxval=1)
        params = {"body_mass": jnp.array([0, mass])}
        return Start(x[None] * 0.6, v[None], params=params)

    def observe(self, readings, command, memory):
        return jnp.concatenate([readings["qpos"], readings["qvel"]]), memory

    def reward(self, before, after, action, command, episode):
        return after["qpos"][0], {}


def simulation(physics, **fields):
    task = Slider(**fields)
    return Simulation(task, physics(task.model(), task.spec), task.spec.horizon)


@pytest.fixture(scope="module")
def slider():
    """The environment on MJX with a compiled reset and step for WORLDS worlds."""
    env = simulation(MJX)
    return env, compiled(jax.vmap(env.reset)), compiled(jax.vmap(env.step))


@pytest.mark.long
def test_randomised_episodes_are_natives(slider):
    _, reset, step = slider
    native = simulation(Native)
    native_step = jax.jit(jax.vmap(native.step))
    keys = jax.random.split(jax.random.key(0), WORLDS)
    ours, theirs = reset(keys), jax.jit(jax.vmap(native.reset))(keys)
    bare = theirs.sim._replace(params={"body_mass": theirs.sim.params["body_mass"]})
    stale, stale_step = theirs._replace(sim=bare), jax.jit(jax.vmap(simulation(Native).step))
    worst = 0
    for _ in range(20):  # into the stop and off it: that is where derived constants count
        action = jnp.ones((WORLDS, 1))
        ours, theirs = step(ours, action), native_step(theirs, action)
        stale = stale_step(stale, action)
        np.testing.assert_allclose(ours.obs, theirs.obs, atol=1e-3)
        worst = max(worst, jnp.abs(stale.obs - theirs.obs).max())
    assert worst > 1e-2, "no constant of these matters"


def test_derived_constants_are_mujocos(slider):
    env = slider[0]
    model = env.task.model()
    model.body_mass[1] = 0.7
    mujoco.mj_setConst(model, mujoco.MjData(model))
    params = env.physics.constants({"body_mass": jnp.array([0, 0.7])}, True)
    put = env.physics._model(params)
    for name in ("body_mass", *params):
        if hasattr(put, name):
            want = np.ravel(getattr(model, name))
            np.testing.assert_allclose(np.ravel(getattr(put, name)), want, rtol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match="cannot vary geom_contype"):
        env.physics.step(env.physics.blank(), {}, {"geom_contype": jnp.zeros(1)})


@pytest.mark.long
def test_a_failed_world_ends_alone(slider):
    _, reset, step = slider
    before = reset(jax.random.split(jax.random.key(1), WORLDS))
    action = jnp.zeros((WORLDS, 1))
    well, ill = step(before, action), step(before, action.at[3].set(jnp.nan))
    assert ill.truncated.tolist() == [i == 3 for i in range(WORLDS)]
    assert ill.metrics["failed"].tolist() == ill.truncated.tolist()
    assert not ill.terminated.any()
    assert ill.reward[3] == 0
    assert (ill.obs[3] == before.obs[3]).all()
    others = jnp.arange(WORLDS) != 3
    assert (ill.obs[others] == well.obs[others]).all()
    again = step(ill, action)
    assert (again.obs[3] == well.obs[3]).all()


@pytest.mark.long
def test_collect_draws_starts_from_a_pool_and_counts_what_it_reuses(slider):
    env = slider[0]
    assert env.restarts == "prepared"
    still = memoryless(lambda params, obs, key: (jnp.zeros(1), ()))

    @compiled
    def run(key):
        worlds = rollout.start(env, still, None, key, WORLDS)
        return rollout.collect(env, still, None, worlds, key, 8)

    _, seen, episodes = run(jax.random.key(2))
    assert episodes.ended.sum(1).tolist() == [0, 0, WORLDS] * 2 + [0, 0]
    assert episodes.reused == WORLDS
    assert episodes.failed == 0
    first, second, third = (seen.obs[t, :, 0] for t in (0, 3, 6))
    assert jnp.unique(jnp.concatenate([first, second])).size == 2 * WORLDS
    assert (second == third).all()


def test_a_reset_settles_and_starts_the_clock(slider):
    env = simulation(MJX, settle=50)
    start = env.task.reset(jax.random.key(0), ())
    reset = compiled(env.physics.reset, static_argnums=5)
    mask, args = jnp.bool(True), (start.qpos, start.qvel, env.physics.constants(start.params, True))
    data = reset(env.physics.blank(), mask, *args, 50)
    other = Native(env.task.model(), env.task.spec)
    want = other.read(other.reset(other.blank(), mask, *args, 50))
    np.testing.assert_allclose(data.reads["qpos"], want["qpos"], atol=1e-4)
    assert abs(data.reads["qpos"] - start.qpos) > 0.01
    assert data.state["time"] == 0


def test_worlds_without_muscles_or_mocaps_fit_in_a_checkpoint(tmp_path):
    state = compiled(simulation(MJX).reset)(jax.random.key(0))
    kept = Checkpoints(tmp_path, {})
    kept.save(1, state, 0.0)
    assert fingerprint(kept.restore(state, 1)) == fingerprint(state)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_a_step_lowers_in_full_precision(platform):
    env = envs.make("HalfCheetah-v5", physics="mjx")
    state = jax.eval_shape(env.reset, jax.random.key(0))
    action = jax.ShapeDtypeStruct((env.action_dim,), jnp.float32)
    exported = jax.export.export(jax.jit(env.step), platforms=[platform])(state, action)
    assert exported.platforms == (platform,)
    products = [x for x in exported.mlir_module().splitlines() if "stablehlo.dot_general" in x]
    assert products
    assert all("HIGHEST" in line for line in products)
