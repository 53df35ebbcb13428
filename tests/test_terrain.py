"""Rough ground: what a critic is told of it, and that it holds up a robot."""

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import envs
from envs.locomotion.joystick import Joystick
from envs.locomotion.terrain import AROUND
from envs.physics.mjx import MJX
from envs.physics.native import Native


def test_a_critic_is_told_the_ground_about_its_robot() -> None:
    """Against rays cast down at the model, of a robot that leans and faces anywhere."""
    task = envs.make_task("go2-joystick-rough")
    assert isinstance(task, Joystick)
    model, rng = task.model(), np.random.default_rng(0)
    data, around, edges = mujoco.MjData(model), jax.jit(task.legged.around), 0
    data.qpos[2] = 10  # out of the rays' way
    mujoco.mj_forward(model, data)
    for _ in range(20):
        yaw, *lean = rng.uniform(-3, 3), *rng.uniform(-0.3, 0.3, 2)
        turn = Rotation.from_euler("ZYX", [yaw, *lean])
        at = np.append(rng.uniform(-4, 4, 2) * (6, 1), 0.3)
        found = around({"position": at, "orientation": np.roll(turn.as_quat(), 1)})
        ahead = turn.apply([1, 0, 0])[:2] / np.linalg.norm(turn.apply([1, 0, 0])[:2])
        points = at[:2] + AROUND @ np.array([ahead, (-ahead[1], ahead[0])])
        for point, height in zip(points, found, strict=True):
            above, hit = np.append(point, 2.0), np.zeros(1, np.int32)
            below = mujoco.mj_ray(model, data, above, -np.eye(3)[2], None, 1, -1, hit, None)
            assert model.geom(hit[0]).name.startswith("ground")
            edges += abs(2.0 - below - 0.3 - height) > 1e-4
    assert edges <= 2  # a point on the very edge of a step


@pytest.mark.long
def test_the_solver_has_settled_on_steps() -> None:
    """With one iteration half of the steps of legs that thrash are 0.4 rad/s off or more."""
    task = envs.make_task("go2-joystick-rough", level=5)
    assert isinstance(task, Joystick)
    model, pose = task.model(), np.asarray(task.legged.pose)
    data, other = mujoco.MjData(model), mujoco.MjData(model)
    rng, off, few = np.random.default_rng(0), [], model.opt.iterations
    start = jax.vmap(task.reset, (0, None))(jax.random.split(jax.random.key(0), 8), task.context())
    for qpos, qvel in zip(start.qpos, start.qvel, strict=True):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = qpos, qvel
        for _ in range(40):
            data.ctrl[:] = pose + rng.uniform(-0.4, 0.4, 12)
            mujoco.mj_step(model, data, 4)
            mujoco.mj_copyData(other, model, data)
            mujoco.mj_step(model, data)
            model.opt.iterations = 100
            mujoco.mj_step(model, other)
            model.opt.iterations = few
            off.append(np.abs(data.qvel - other.qvel).max())
    assert np.quantile(off, 0.9) < 0.02  # rad/s


@pytest.mark.slow
def test_steps_hold_up_a_robot_alike_on_every_physics() -> None:
    """Each foot meets the nearest of 420 boxes, of which MJX looks at a few alone."""
    task = envs.make_task("go2-joystick-rough")
    assert isinstance(task, Joystick)
    context = task.context()._replace(level=jnp.int32(5))
    start = jax.vmap(task.reset, (0, None))(jax.random.split(jax.random.key(0), 6), context)
    pose, found = jnp.asarray(task.legged.pose, jnp.float32), []
    for physics in (Native(task.model(), task.spec, 1), MJX(task.model(), task.spec)):

        def half_a_second(qpos: Any, qvel: Any, physics: Any = physics) -> Any:
            data = physics.reset(physics.blank(), jnp.bool(True), qpos, qvel, {})
            step = lambda _, data: physics.step(data, {"ctrl": pose}, {})  # noqa: E731
            return physics.read(jax.lax.fori_loop(0, 25, step, data))["position"]

        found.append(np.asarray(jax.jit(jax.vmap(half_a_second))(start.qpos, start.qvel)))
    np.testing.assert_allclose(*found, atol=1e-3)
    assert np.ptp(found[0][:, 2]) > 0.05
