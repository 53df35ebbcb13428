"""MJX-Warp on a CPU: its side of the contract, on a world small enough to compile in a test."""

import sys
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from benchmarks import rows
from benchmarks.contacts import Args as Contacts
from envs.physics.native import Native
from envs.physics.warp import Warp
from envs.physics.warp_model import unsupported
from envs.simulation import Simulation
from envs.task import Camera, Start, Task, TaskSpec
from experiments import cli, ppo
from rl import health, rollout, runs
from rl.checkpoint import Checkpoints, fingerprint
from rl.policy import memoryless
from tests.test_backends import FEATURES, SPEC, thing

WORLDS = 6
LOG = """<mujoco><option timestep="0.01"/><worldbody><geom type="plane" size="5 5 1"/>
  <body pos="0 0 0.1"><joint name="z" type="slide" axis="0 0 1"/>
  <joint name="x" type="slide" axis="1 0 0" range="-0.5 0.5"/>
  <joint name="tilt" axis="0 1 0"/><geom type="capsule" fromto="-0.2 0 0 0.2 0 0" size="0.1"
  mass="2" friction="0.2"/><site name="s"/></body></worldbody>
  <actuator><motor name="push" joint="x" gear="20"/></actuator>
  <sensor><accelerometer name="felt" site="s"/><framepos name="at" objtype="site" objname="s"/>
  </sensor></mujoco>"""


@dataclass(frozen=True)
class Log(Task):
    """Push a log of unknown mass over the ground, which it touches at both ends."""

    contacts: int = 64
    horizon: int = 30

    @property
    def spec(self):
        return TaskSpec(
            actuators=("push",), low=(-1.0,), high=(1.0,), substeps=2, control_dt=0.02,
            horizon=self.horizon, sensors=("felt", "at"), fields=("qpos", "qvel", "qacc"),
            contacts=self.contacts,
        )  # fmt: skip

    def model(self):
        return mujoco.MjModel.from_xml_string(LOG)

    def reset(self, key, context):
        x, v, mass = jax.random.uniform(key, (3,), minval=-1, maxval=1)
        qpos, qvel = jnp.array([0.0, 0.4 * x, 0.1 * v]), jnp.array([0.0, v, 0.0])
        return Start(qpos, qvel, params={"body_mass": jnp.array([0, 2 + mass])})

    def observe(self, readings, command, memory):
        return jnp.concatenate([readings[n].ravel() for n in ("qpos", "qvel", "felt")]), memory

    def reward(self, before, after, action, command, episode):
        return after["at"][0], {}


def simulation(physics, **fields):
    task = Log(**fields)
    return Simulation(task, physics(task.model(), task.spec), task.spec.horizon)


@pytest.fixture(scope="module")
def log():
    """The environment on Warp, with a compiled reset and step of WORLDS worlds."""
    env = simulation(Warp)
    return env, jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))


@pytest.mark.long
def test_randomised_episodes_are_natives(log):
    env, reset, step = log
    native = simulation(Native)
    keys = jax.random.split(jax.random.key(0), WORLDS)
    ours, theirs = reset(keys), jax.jit(jax.vmap(native.reset))(keys)
    assert [*env.physics.read(ours.sim.data)] == [*native.physics.read(theirs.sim.data)]
    native_step, touched = jax.jit(jax.vmap(native.step)), 0
    for t in range(20):
        got, want = env.physics.read(ours.sim.data), native.physics.read(theirs.sim.data)
        for name, value in want.items():
            close = {"felt": 0.1, "qacc": 0.1}.get(name, 1e-3)
            np.testing.assert_allclose(
                got[name], value, atol=close, rtol=1e-2, err_msg=f"{name} {t}"
            )
        action = jax.random.uniform(jax.random.key(t), (WORLDS, 1), minval=-1)
        ours, theirs = step(ours, action), native_step(theirs, action)
        touched += float((want["felt"][:, 2] > 5).mean()) / 20
    assert touched > 0.5, "what lies on no ground feels no weight"
    assert jnp.unique(ours.obs[:, 1]).size == WORLDS
    assert ours.metrics["overflow"].tolist() == [0] * WORLDS


def test_a_reset_of_some_leaves_the_others(log):
    env, reset, step = log
    state = step(reset(jax.random.split(jax.random.key(1), WORLDS)), jnp.ones((WORLDS, 1)))
    fresh = reset(jax.random.split(jax.random.key(2), WORLDS))
    some = jnp.arange(WORLDS) % 2 == 0
    ended = state._replace(truncated=some)
    after = jax.vmap(env.restart)(ended, fresh)
    for new, first, old in zip(
        *map(jax.tree.leaves, (after.sim, fresh.sim, ended.sim)), strict=True
    ):
        assert (new[some] == first[some]).all()
        assert (new[~some] == old[~some]).all()
    went = step(after, jnp.ones((WORLDS, 1))), step(ended, jnp.ones((WORLDS, 1)))
    assert (went[0].obs[~some] == went[1].obs[~some]).all()
    assert (went[0].obs[some] != went[1].obs[some]).any(1).all()


def test_a_failed_world_ends_alone(log):
    _, reset, step = log
    before = reset(jax.random.split(jax.random.key(1), WORLDS))
    action = jnp.zeros((WORLDS, 1))
    well, ill = step(before, action), step(before, action.at[3].set(jnp.nan))
    assert ill.truncated.tolist() == [i == 3 for i in range(WORLDS)]
    assert ill.metrics["failed"].tolist() == ill.truncated.tolist()
    assert (ill.obs[3] == before.obs[3]).all()
    others = jnp.arange(WORLDS) != 3
    np.testing.assert_allclose(ill.obs[others], well.obs[others], atol=1e-5)


@pytest.mark.long
def test_seeds_side_by_side_are_worlds_of_one_batch(log):
    env, reset, step = log
    state = reset(jax.random.split(jax.random.key(3), WORLDS))
    action = jnp.linspace(-1, 1, WORLDS)[:, None]
    pairs = jax.tree.map(lambda x: x.reshape(2, -1, *x.shape[1:]), (state, action))
    nested = jax.jit(jax.vmap(jax.vmap(env.step)))(*pairs)
    np.testing.assert_allclose(nested.obs.reshape(WORLDS, -1), step(state, action).obs, atol=1e-5)
    alone = jax.jit(env.step)(*jax.tree.map(lambda x: x[2], (state, action)))
    np.testing.assert_allclose(alone.obs, nested.obs[0, 2], atol=1e-5)


def test_what_cannot_vary_is_refused(log):
    with pytest.raises(ValueError, match="cannot vary geom_contype between worlds"):
        log[0].physics.step(log[0].physics.blank(), {}, {"geom_contype": jnp.zeros(2)})


def test_worlds_fit_in_a_checkpoint(log, tmp_path):
    state = log[1](jax.random.split(jax.random.key(0), WORLDS))
    kept = Checkpoints(tmp_path, {})
    kept.save(1, state, 0.0)
    assert fingerprint(kept.restore(state, 1)) == fingerprint(state)


def test_contacts_without_room_fail_their_world_and_are_told():
    env = simulation(Warp, contacts=1, horizon=5)
    assert env.physics.room.contacts == 1
    still = memoryless(lambda params, obs, key: (jnp.zeros(1), ()))
    found = jax.jit(lambda key: rollout.evaluate(env, still, None, key, 3))(jax.random.key(0))
    assert found.failed > 0
    assert jnp.isfinite(found.returns).all()
    with pytest.raises(ValueError, match="more contacts at once than its physics has room for"):
        found.sound()
    metrics = jax.device_get(found.means())
    assert "TaskSpec more `contacts`" in health.trouble(metrics, {})
    assert health.trouble(metrics | {"overflow": 0.0}, {}) == ""


@pytest.fixture
def train(monkeypatch, tmp_path):
    monkeypatch.setitem(envs.TASKS, "log", Log)
    words = ["--env", "log", "--physics", "warp", "--num-envs", "8", "--unroll", "8", "--no-video",
             "--agent.minibatches", "2", "--eval-episodes", "2", "--agent.hidden", "8",
             "--evals", "0", "--save-s", "0"]  # fmt: skip

    def run(*more):
        flags = more if "--resume" in more else [*words, "--out", str(tmp_path / "run"), *more]
        monkeypatch.setattr(sys, "argv", ["experiments/ppo.py", *flags])
        ppo.main(cli.parse(ppo.Args, [*flags]))
        return tmp_path / "run"

    return run


@pytest.mark.slow
def test_ppo_trains_and_goes_on(train):
    out = train("--steps", "128")
    found = runs.read_manifest(out)
    assert (found["status"], found["physics"]) == ("done", "warp")
    train("--resume", str(out / "checkpoints" / "64"))
    assert [row["step"] for row in runs.read_metrics(out)] == [64, 128]
    assert np.isfinite(runs.read_manifest(out)["eval_returns"]).all()


@pytest.mark.slow
def test_ppo_stops_where_contacts_have_no_room(train):
    with pytest.raises(SystemExit, match=r"^failed: a world had more contacts.* by step 64;"):
        train("--steps", "128", "--env.contacts", "1")


def test_rooms_are_twice_what_any_task_was_seen_to_need():
    seen = rows.read(Contacts().results)
    assert {*seen} == {*envs.names()} - {"Humanoid-v5", "HumanoidStandup-v5"}
    for name, row in seen.items():
        most = max([row["contacts"], *row.get("warp", {}).values()])
        assert row["room"]["contacts"] >= most, name
        assert SPEC.contacts >= 2 * row["contacts"], name
        assert row["room"]["rows"] >= row["rows"], name


@pytest.mark.parametrize(
    "feature",
    ["delay or history", "actuator armature", "disabled actuator groups", "sleeping", "PGS"],
)
def test_what_it_would_ignore_is_refused(feature):
    model = mujoco.MjModel.from_xml_string(FEATURES[feature])
    with pytest.raises(ValueError, match=f"Warp cannot simulate this task: .*{feature}"):
        Warp(model, SPEC)


def test_readings_it_would_get_wrong_are_refused():
    text = '<accelerometer name="imu" site="s"/><jointlimitpos name="stop" joint="z"/>'
    model = mujoco.MjModel.from_xml_string(thing(sensor=text, joint='range="-1 1"'))
    assert unsupported(model, replace(SPEC, sensors=("imu",))) == []
    assert "limits" in unsupported(model, replace(SPEC, sensors=("stop",)))[0]
    with pytest.raises(ValueError, match="not its default view"):
        Warp(model, replace(SPEC, cameras=(Camera("free"),)))
    assert "no field efc_aref" in unsupported(model, replace(SPEC, fields=("efc_aref",)))[0]
    model.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    assert "reads imu at" in unsupported(model, replace(SPEC, sensors=("imu",)))[0]


def test_without_its_package_it_says_which_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "warp", None)
    for name in ("envs.physics.warp", "envs.physics.warp_model"):
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ValueError, match=r"needs warp-lang: pip install 'robotrl\[warp\]'"):
        envs.make("Reacher-v5", physics="warp")
