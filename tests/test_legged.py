"""When a quadruped's policy sees what, and that every physics agrees on what touches the ground."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.locomotion import walking
from envs.locomotion.footstand import HIND, Footstand
from envs.locomotion.getup import Getup
from envs.locomotion.joystick import Joystick
from envs.locomotion.walking import standing
from envs.physics.mjx import MJX
from envs.physics.native import Native

QUIET = {"noise": 0.0}
ACTION, SPEEDS = slice(33, 45), slice(21, 33)  # of Go1's 48 numbers


def seen(steps: int = 8, at: int = 3, **fields: Any) -> np.ndarray:
    """Observations [steps + 1, 48] of a robot that acts at step `at` alone: all joints by 0.5."""
    env = envs.make("go1-joystick-flat", **QUIET, **fields)

    @jax.jit
    def run(key: jax.Array) -> jax.Array:
        start = env.reset_to(key, *stance(env.task))
        act = lambda s, t: ((n := env.step(s, jnp.where(t == at, 0.5, 0) * jnp.ones(12))), n.obs)  # noqa: E731
        obs = jax.lax.scan(act, start, jnp.arange(steps))[1]
        return jnp.concatenate([start.obs["policy"][None], obs["policy"]])

    return np.asarray(run(jax.random.key(0)))


def stance(task: Any) -> tuple[np.ndarray, np.ndarray]:
    """Held at the pose long enough to be still."""
    model, data = task.model(), mujoco.MjData(task.model())
    data.qpos[:] = [0, 0, task.legged.robot.height, 1, 0, 0, 0, *task.legged.pose]
    data.ctrl[:] = task.legged.pose
    mujoco.mj_step(model, data, 500)
    return data.qpos.copy(), np.zeros(model.nv)


def moved(obs: np.ndarray) -> int:
    """The first step whose joints are faster than those of a robot that stands."""
    return int(np.argmax(np.abs(obs[:, SPEEDS]).max(1) > 1.0))


def told(obs: np.ndarray) -> list[int]:
    """The steps that show the action as the last."""
    return np.flatnonzero((obs[:, ACTION] == 0.5).all(1)).tolist()


def test_an_impulse_shows_up_where_the_robot_would_see_it() -> None:
    """Acted upon the observation of step 3, it is the last action of step 4, and moves joints."""
    obs = seen()
    assert told(obs) == [4]
    assert moved(obs) == 4


def test_playgrounds_timing_is_a_step_late() -> None:
    obs = seen(playground_timing=True)
    assert told(obs) == [5]
    assert moved(obs) == 4


def test_delays_are_of_whole_steps() -> None:
    late = seen(target_delay=(2, 2))
    assert (told(late), moved(late)) == ([4], 6)
    blind = seen(reading_delay=(2, 2))
    assert (told(blind), moved(blind)) == ([4], 6)


def test_history_is_what_was_seen_before() -> None:
    now = seen()
    past = np.stack([x[:45] for x in now])
    deep = seen(history=3)
    assert deep.shape[1] == 3 * 45 + 3
    for t in range(2, 9):
        np.testing.assert_array_equal(deep[t, :45], past[t])
        np.testing.assert_array_equal(deep[t, 45:90], past[t - 1])
        np.testing.assert_array_equal(deep[t, 90:135], past[t - 2])
    np.testing.assert_array_equal(deep[0, 45:135], 0)


@cache
def reader(backend: type) -> Any:
    """Jitted: readings of go1-joystick-flat at a pose and speed."""
    task = Joystick("go1", "flat")
    world = backend(task.model(), task.spec)
    return jax.jit(
        lambda qpos, qvel: world.read(world.reset(world.blank(), jnp.bool(True), qpos, qvel, {}))
    )


def test_a_foot_that_comes_down_and_lifts_off_touches_alike_on_every_physics() -> None:
    """The robot is lowered to the ground, tilted, and lifted again: contacts, and what they pay."""
    task, rng = Joystick("go1", "flat"), np.random.default_rng(0)
    terms = jax.jit(partial(walking.terms, task.legged))
    gaits, seen = {Native: standing(), MJX: standing()}, []
    for t, height in enumerate([*np.linspace(0.4, 0.27, 15), *np.linspace(0.27, 0.4, 15)]):
        tilt = np.array([1, 0.1 * np.sin(t), 0.1 * np.cos(t), 0])
        qpos = np.array([0.1, 0, height, *tilt / np.linalg.norm(tilt), *task.legged.pose])
        qvel = rng.normal(size=18)
        found = {}
        for backend in (Native, MJX):
            raw = reader(backend)(qpos, qvel)
            feet = task.legged.feet(raw)
            args = jnp.zeros(12), jnp.array([1.0, 0, 0]), gaits[backend], jnp.bool(False)
            paid = {n: x for n, x in terms(raw, *args).items() if n.startswith("feet")}
            gaits[backend] = gaits[backend].advance(feet)
            found[backend] = feet.contact, paid
        np.testing.assert_array_equal(found[Native][0], found[MJX][0])
        for name, x in found[Native][1].items():
            np.testing.assert_allclose(x, found[MJX][1][name], rtol=1e-4, atol=1e-4, err_msg=name)
        seen.append(np.asarray(found[Native][0]))
    down = np.array(seen)
    assert not down[0].any()
    assert not down[-1].any()
    assert down.any(0).all()
    assert ((down.sum(1) > 0) & (down.sum(1) < 4)).any()


def test_a_foot_touches_where_mujoco_finds_a_contact() -> None:
    task, rng = Joystick("go2", "flat"), np.random.default_rng(1)
    model, data, both = task.model(), mujoco.MjData(task.model()), set()
    spec = task.spec
    world = Native(model, spec)
    rest = jnp.zeros(18)
    read = jax.jit(lambda q: world.read(world.reset(world.blank(), jnp.bool(True), q, rest, {})))
    for _ in range(60):
        quat = np.array([1, 0, 0, 0]) + rng.normal(size=4) / 15
        angles = task.legged.pose + rng.normal(size=12) / 8
        data.qpos[:] = [0, 0, rng.uniform(0.2, 0.33), *quat / np.linalg.norm(quat), *angles]
        mujoco.mj_forward(model, data)
        geoms = {model.geom(int(i)).name for pair in data.contact.geom[: data.ncon] for i in pair}
        touch = task.legged.feet(read(data.qpos)).contact
        for leg, on in zip(("FR", "FL", "RR", "RL"), np.asarray(touch), strict=True):
            assert bool(on) == (leg in geoms)
            both.add(bool(on))
    assert both == {True, False}


@pytest.mark.parametrize("name", ["go1-footstand", "go2-footstand"])
def test_the_lowest_point_of_a_leg_is_where_mujoco_finds_it(name: str) -> None:
    task, rng = envs.make_task(name), np.random.default_rng(2)
    assert isinstance(task, Footstand)
    model, data = task.model(), mujoco.MjData(task.model())
    ids = [i for i in range(model.ngeom) if model.geom(i).name.startswith(("RR_", "RL_"))]
    for _ in range(20):
        quat = rng.normal(size=4)
        data.qpos[:] = [0, 0, 1, *quat / np.linalg.norm(quat), *rng.normal(size=12)]
        mujoco.mj_forward(model, data)
        raw = {"geom_xpos": data.geom_xpos, "geom_xmat": data.geom_xmat}
        got = np.asarray(task.legged.lowest(jax.tree.map(jnp.asarray, raw), HIND))
        ground = model.geom("ground").id
        want = [mujoco.mj_geomDistance(model, data, ground, i, 5.0, None) for i in ids]
        np.testing.assert_allclose(got, want, atol=1e-5)


@pytest.mark.parametrize("name", ["go1-getup", "go2-getup"])
def test_standing_for_two_seconds_is_up(name: str) -> None:
    task = envs.make_task(name, noise=0.0, dropped=0.0, randomised=0.0)
    assert isinstance(task, Getup)
    env = envs.simulate(task)
    qpos, qvel = stance(task)

    @jax.jit
    def run(key: jax.Array) -> Any:
        def act(state: Any, _: Any) -> Any:
            state = env.step(state, jnp.zeros(12))  # the pose
            return state, state.metrics

        return jax.lax.scan(act, env.reset_to(key, qpos, qvel), length=120)[1]

    metrics = run(jax.random.key(0))
    assert np.asarray(metrics["stands"]).all()
    assert np.asarray(metrics["up"]).tolist() == [0.0] * 99 + [1.0] * 21


@pytest.mark.long
@pytest.mark.parametrize("name", ["go1-footstand", "go2-footstand"])
def test_who_begins_reared_up_stands_on_its_hind_feet(name: str) -> None:
    """And only who stood fails by being down."""
    for reared in (0.0, 1.0):
        env = envs.make(name, reared=(reared, reared), noise=0.0)
        task = env.task
        assert isinstance(task, Footstand)
        start = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 8))
        step = jax.jit(jax.vmap(env.step))
        for _ in range(5):
            start = step(start, jnp.zeros((8, 12)))
        raw = env.physics.read(start.sim.data)
        np.testing.assert_array_equal(start.metrics["stands"], reared)
        touching = np.asarray(jax.vmap(task.legged.feet)(raw).contact)
        assert touching[:, 2:].any(1).mean() > 0.5
        assert touching[:, :2].any() == (reared == 0)
        episode, over = start.sim.episode, jax.vmap(task.terminated)
        np.testing.assert_array_equal(episode.stood, reared)
        np.testing.assert_array_equal(over(raw, episode), False)
        np.testing.assert_array_equal(
            over(raw, episode._replace(stood=jnp.ones(8, bool))), not reared
        )
    with pytest.raises(ValueError, match=r"reared is \(1, 0\); it needs 0 <= least <= most <= 1"):
        envs.make_task(name, reared=(1, 0))


def test_a_dropped_robot_lies_still_when_its_episode_begins() -> None:
    env = envs.make("go2-getup", dropped=1.0)
    start = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 32))
    told = env.physics.read(start.sim.data)
    lies = np.asarray(told["upright"][:, 2]) < 0.5
    assert 0.3 < lies.mean() < 1
    assert np.median(np.abs(np.asarray(told["linvel"])).max(1)) < 0.5
    assert (np.asarray(told["position"][:, 2]) < 0.45).all()


@pytest.mark.parametrize(("delay", "told"), [((0, 1), True), ((0, 0), False)])
def test_a_critic_is_told_the_action_that_a_delay_may_let_act(delay: Any, told: bool) -> None:
    env = envs.make("go2-joystick-flat", target_delay=delay)
    actions = np.random.default_rng(0).uniform(-1, 1, (4, 12)).astype(np.float32)
    state, step = jax.jit(env.reset)(jax.random.key(0)), jax.jit(env.step)
    for before, action in zip(np.concatenate([np.zeros((1, 12)), actions]), actions, strict=False):
        state = step(state, action)
        assert np.allclose(state.obs["critic"][-12:], before, atol=1e-6) == told
    assert isinstance(env.task, Joystick)
    flip = env.task.mirror.obs["critic"]
    assert flip.index.shape == state.obs["critic"].shape
    image = np.asarray(flip(state.obs["critic"]))[-12:]
    assert np.allclose(image, env.task.mirror.action(before), atol=1e-6) == told


@pytest.mark.parametrize("name", [name for name in envs.names() if name.startswith("go")])
def test_nothing_in_a_state_is_empty(name: str) -> None:
    """Checkpoints cannot hold what has no elements."""
    start = jax.eval_shape(envs.make(name).reset, jax.random.key(0))
    assert all(leaf.size for leaf in jax.tree.leaves(start))
