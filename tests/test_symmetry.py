"""A quadruped's mirror image moves as the robot does, seen in a mirror."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from agents.ppo import PPO
from envs.locomotion import symmetry
from envs.locomotion.footstand import Footstand
from envs.locomotion.getup import Getup
from envs.locomotion.go1 import GO1
from envs.locomotion.joystick import Joystick
from envs.locomotion.legged import Legged
from envs.locomotion.quadruped import Inertial
from envs.locomotion.terrain import Plane, Steps
from rl import norm
from rl.mirror import AXIAL, VECTOR, Flip
from rl.types import Array, Transition

RNG = np.random.default_rng(0)
QUAT = np.array([1.0, -1.0, 1.0, -1.0])  # of a turn seen in the mirror y -> -y


def even(link: Inertial) -> Inertial:
    """`link` made symmetric in itself: its mass in the middle, its axes along the frame's."""
    return link._replace(com=(link.com[0], 0.0, link.com[2]), axes=(1.0, 0.0, 0.0, 0.0))


SYMMETRIC = replace(
    GO1, trunk=even(GO1.trunk), calf=even(GO1.calf), imu_at=(GO1.imu_at[0], 0.0, GO1.imu_at[2])
)


def drawn(legged: Legged) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A pose near standing, a velocity and targets."""
    quat = np.array([1, 0, 0, 0]) + RNG.normal(size=4) / 10
    angles = legged.pose + RNG.normal(size=12) / 5
    height = RNG.uniform(0.22, 0.36)
    qpos = np.concatenate([[0.3, 0.2, height], quat / np.linalg.norm(quat), angles])
    return qpos, RNG.normal(size=18), legged.pose + RNG.normal(size=12) / 5


def test_the_image_of_the_next_state_is_the_next_state_of_the_image() -> None:
    """On a copy of Go1 that is symmetric: the real one's trunk, calves and IMU are not."""
    legged = Legged(SYMMETRIC, Plane())
    data, touched = mujoco.MjData(legged.model), 0

    def after(qpos: np.ndarray, qvel: np.ndarray, targets: np.ndarray) -> tuple[Any, Any]:
        mujoco.mj_resetData(legged.model, data)
        data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, targets
        mujoco.mj_step(legged.model, data, 5)
        return data.qpos.copy(), data.qvel.copy()

    for _ in range(100):
        qpos, qvel, targets = drawn(legged)
        one = after(qpos, qvel, targets)
        touched += data.ncon > 0
        other = after(*exactly_mirrored(qpos, qvel), exact(symmetry.JOINTS, targets))
        for got, want in zip(other, exactly_mirrored(*one), strict=True):
            np.testing.assert_allclose(got, want, atol=1e-6)
    assert touched > 30


def exact(flip: Flip, x: np.ndarray) -> np.ndarray:
    return x[..., flip.index] * flip.sign


def exactly_mirrored(qpos: np.ndarray, qvel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """In float64."""
    image = [exact(VECTOR, qpos[:3]), qpos[3:7] * QUAT, exact(symmetry.JOINTS, qpos[7:])]
    speed = [exact(VECTOR, qvel[:3]), exact(AXIAL, qvel[3:6]), exact(symmetry.JOINTS, qvel[6:])]
    return np.concatenate(image), np.concatenate(speed)


def readings_of(legged: Legged, qpos: np.ndarray, qvel: np.ndarray, ctrl: np.ndarray) -> Any:
    data = mujoco.MjData(legged.model)
    data.qpos[:], data.qvel[:], data.ctrl[:] = qpos, qvel, ctrl
    mujoco.mj_forward(legged.model, data)
    names = [legged.model.sensor(i).name for i in range(legged.model.nsensor)]
    told = {name: np.array(data.sensor(name).data, np.float32) for name in names}
    fields = "actuator_force", "qacc", "geom_xpos", "geom_xmat"
    return told | {name: np.array(getattr(data, name), np.float32) for name in fields}


@pytest.mark.parametrize("measured", [True, False])
@pytest.mark.parametrize("history", [1, 3])
def test_reward_and_observation_of_the_image(measured: bool, history: int) -> None:
    """On the true robot, but for where its IMU sits: readings of a pose and of its image."""
    task = Joystick("go1", "flat", measured=measured, history=history)
    legged = Legged(SYMMETRIC, Plane())
    joints, mirror = symmetry.JOINTS, task.mirror
    observe, privileged, reward = map(jax.jit, (task.observe, task.privileged, task.reward))
    start = task.reset(jax.random.key(0), task.context())
    assert mirror.obs["policy"].index.shape == observe_size(task)
    for _ in range(20):
        qpos, qvel, targets = drawn(legged)
        raw = readings_of(legged, qpos, qvel, targets)
        image = readings_of(legged, *exactly_mirrored(qpos, qvel), exact(joints, targets))
        command, action, last = (RNG.uniform(-1, 1, n).astype(np.float32) for n in (3, 12, 12))
        gait = start.episode.gait._replace(
            air_time=RNG.uniform(0, 0.5, 4) * (RNG.random(4) < 0.5), peak=RNG.uniform(0, 0.1, 4)
        )
        legs = symmetry.LEGS.index
        swapped = jax.tree.map(lambda x, legs=legs: jnp.asarray(x)[legs], gait)
        memory = start.memory._replace(action=last)
        history_of = memory.history
        if history > 1:
            frames = RNG.normal(size=history_of.shape).astype(np.float32)
            flip = symmetry.frame(measured)
            memory = memory._replace(history=frames)
            history_of = exact(flip, frames)
        reflected = memory._replace(action=exact(joints, last), history=history_of)
        asked = exact(symmetry.COMMAND, command)
        seen, _ = observe(raw, command, memory)
        seen_image, _ = observe(image, asked, reflected)
        np.testing.assert_allclose(mirror.obs["policy"](seen), seen_image, atol=2e-6)
        told = start.episode._replace(gait=gait, action=last)
        told_image = told._replace(gait=swapped, action=exact(joints, last))
        known = privileged(raw, seen, told)
        np.testing.assert_allclose(
            mirror.obs["critic"](known), privileged(image, seen_image, told_image),
            rtol=1e-5, atol=1e-5,
        )  # fmt: skip
        one, parts = reward(raw, raw, action, command, told)
        other, same = reward(image, image, exact(joints, action), asked, told_image)
        np.testing.assert_allclose(one, other, atol=1e-6)
        for name in parts:
            np.testing.assert_allclose(parts[name], same[name], rtol=1e-5, atol=1e-6)


def test_the_image_of_the_ground_about_a_robot() -> None:
    class Image(Steps):
        def height(self, at: Array) -> Array:
            return super().height(at * jnp.array([1.0, -1.0]))

    legged, image = Legged(GO1, Steps()), Legged(GO1, Image())
    seen, told = jax.jit(legged.around), jax.jit(image.around)
    for _ in range(50):
        at = np.append(RNG.uniform(-4, 4, 2) * (6, 1), 0.3)
        quat = RNG.normal(size=4)
        quat /= np.linalg.norm(quat)
        mine = seen({"position": at, "orientation": quat})
        other = told({"position": exact(VECTOR, at), "orientation": quat * QUAT})
        np.testing.assert_allclose(exact(symmetry.AROUND, np.asarray(mine)), other, atol=1e-6)


@pytest.mark.parametrize("kind", [Getup, Footstand])
@pytest.mark.parametrize("measured", [True, False])
def test_the_image_of_a_robot_that_gets_up(kind: Any, measured: bool) -> None:
    task, legged = kind("go1", measured=measured), Legged(SYMMETRIC, Plane(), touching="all")
    joints, mirror = symmetry.JOINTS, task.mirror
    start = task.reset(jax.random.key(0), task.context())
    observe, privileged, reward = map(jax.jit, (task.observe, task.privileged, task.reward))
    for _ in range(10):
        qpos, qvel, targets = drawn(legged)
        raw = readings_of(legged, qpos, qvel, targets)
        image = readings_of(legged, *exactly_mirrored(qpos, qvel), exact(joints, targets))
        action, last, before = (RNG.uniform(-1, 1, 12).astype(np.float32) for _ in range(3))
        told = start.episode._replace(action=last)
        told_image = told._replace(action=exact(joints, last))
        if kind is Getup:
            told, told_image = (
                told._replace(before=before),
                told_image._replace(before=exact(joints, before)),
            )
        acted = "action" if kind is Getup else "targets"
        seen, _ = observe(raw, (), start.memory._replace(**{acted: last}))
        seen_image, _ = observe(image, (), start.memory._replace(**{acted: exact(joints, last)}))
        np.testing.assert_allclose(mirror.obs["policy"](seen), seen_image, atol=2e-6)
        known, known_image = privileged(raw, seen, told), privileged(image, seen_image, told_image)
        np.testing.assert_allclose(mirror.obs["critic"](known), known_image, rtol=1e-5, atol=1e-5)
        one, parts = reward(raw, raw, action, (), told)
        other, same = reward(image, image, exact(joints, action), (), told_image)
        np.testing.assert_allclose(one, other, atol=1e-6)
        for name in parts:
            np.testing.assert_allclose(parts[name], same[name], rtol=1e-5, atol=1e-6)


def observe_size(task: Joystick) -> tuple[int, ...]:
    start = task.reset(jax.random.key(0), task.context())
    sizes = {name: jnp.zeros(task.model().sensor(name).dim[0]) for name in task.spec.sensors}
    return task.observe(sizes, start.command, start.memory)[0].shape


def test_an_image_of_an_image_is_the_original() -> None:
    task = Joystick("go2", "flat", measured=True, history=2)
    for flip in (task.mirror.action, *task.mirror.obs.values()):
        x = RNG.normal(size=len(flip.index))
        np.testing.assert_array_equal(exact(flip, exact(flip, x)), x)
        assert not np.array_equal(exact(flip, x), x)


@pytest.mark.slow
def test_a_symmetric_policy_and_value_after_learning() -> None:
    """What it does in the mirror is the mirror image of what it does, however it was taught."""
    task = Joystick("go2", "flat", measured=True)
    agent = PPO((16, 16), (16, 16), lr=1e-2, epochs=2, minibatches=2, mirror=task.mirror)
    policy, critic = (len(task.mirror.obs[who].index) for who in ("policy", "critic"))

    def noise(*shape: int) -> jax.Array:
        return jnp.array(RNG.normal(size=(6, 8, *shape)), jnp.float32) + 0.3

    obs = {"policy": noise(policy), "critic": noise(critic)}
    first = jax.tree.map(lambda x: x[0, 0], obs)
    state = agent.init(jax.random.key(0), first, jnp.zeros(12))
    act = agent.policy(True, 12)
    for _ in range(3):
        taken = jax.vmap(jax.vmap(act.step, (None, None, 0, None)), (None, None, 0, None))
        action, _, aux = taken(agent.deploy(state), (), obs, jax.random.key(1))
        done = jnp.zeros((6, 8), bool)
        batch = Transition(obs, action, noise(), done, done, obs, aux)
        state, _ = jax.jit(agent.update)(state, batch, jax.random.key(2))
    image = {who: flip(obs[who]) for who, flip in task.mirror.obs.items()}
    mode = jax.vmap(jax.vmap(partial(agent.policy(False, 12).step, agent.deploy(state), ())))
    keys = jax.random.split(jax.random.key(3), (6, 8))
    one, other = mode(obs, keys)[0], mode(image, keys)[0]
    np.testing.assert_allclose(task.mirror.action(one), other, atol=1e-6)
    assert np.abs(one - other).max() > 0.01
    seen = [norm.normalise(state.critic_obs, x["critic"]) for x in (obs, image)]
    values = [np.asarray(agent.value(state, x)) for x in seen]
    np.testing.assert_allclose(*values, atol=1e-5)
    assert np.ptp(values[0]) > 0.01
