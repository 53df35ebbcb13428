"""What a world of native physics takes along from step to step, and what it is given anew."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import envs
from envs.gym_mujoco.half_cheetah import HalfCheetah
from envs.physics.native import Native
from envs.task import TaskSpec


def as_bytes(arrays):
    return [np.asarray(x).tobytes() for x in arrays]


def test_what_pushed_a_world_once_pushes_it_no_more():
    spec, model = HalfCheetah().spec, HalfCheetah().model()
    physics, ctrl = Native(model, spec, 1), np.float32([[0.1] * 6, [0.5] * 6, [-0.9] * 6])
    first = jax.vmap(envs.simulate(HalfCheetah()).reset)(jax.random.split(jax.random.key(0), 3))
    words = np.asarray(first.sim.data.row)
    push = {"xfrc_applied": np.full((3, model.nbody, 6), 50.0), "qfrc_applied": np.ones((3, 9))}
    pushed = physics._step(words, {"ctrl": ctrl} | push, {})
    alone = Native(model, spec, 1)._step(words, {"ctrl": ctrl}, {})
    assert (pushed[0] != alone[0]).any(axis=(1, 2)).all()
    assert as_bytes(physics._step(words, {"ctrl": ctrl}, {})) == as_bytes(alone)
    after = [p._step(pushed[0], {"ctrl": ctrl}, {}) for p in (physics, Native(model, spec, 1))]
    assert as_bytes(after[0]) == as_bytes(after[1])


def test_all_that_outlives_a_step_travels_with_its_world():
    """An activation, an equality that is off and a mocap body that has moved stay as they are."""
    model = mujoco.MjModel.from_xml_string("""<mujoco><worldbody>
        <body name="hand" mocap="true" pos="0 0 1"><geom size="0.1" contype="0" conaffinity="0"/>
        </body><body name="ball"><joint name="x" type="slide"/><geom size="0.1" mass="1"/></body>
        </worldbody><equality><joint joint1="x" polycoef="0.3 0 0 0 0" active="false"/></equality>
        <actuator><general name="m" joint="x" dyntype="filter" dynprm="0.1"/></actuator></mujoco>
    """)
    fields = "qpos", "act", "eq_active", "mocap_pos"
    spec = TaskSpec(("m",), (-1.0,), (1.0,), 3, 0.006, 10, fields=fields)
    physics = Native(model, spec, 1)
    start = jax.vmap(lambda q: physics.reset(physics.blank(), jnp.bool(True), q, jnp.zeros(1), {}))
    first, second = start(jnp.float32([[0.0], [0.1]])), start(jnp.float32([[0.2], [0.4]]))
    ctrl = {"ctrl": jnp.ones((2, 1))}
    moved = ctrl | {"mocap_pos": jnp.full((2, 1, 3), 0.5), "eq_active": jnp.ones((2, 1))}
    first = jax.vmap(lambda d, x: physics.step(d, x, {}))(first, moved)
    second = jax.vmap(lambda d, x: physics.step(d, x, {}))(second, ctrl)  # in the same batch
    for data, held, hand in ((first, 1, [0.5] * 3), (second, 0, [0, 0, 1])):
        data = jax.vmap(lambda d, x: physics.step(d, x, {}))(data, ctrl)
        reads = physics.read(data)
        assert (np.asarray(reads["eq_active"]) == held).all()
        np.testing.assert_array_equal(reads["mocap_pos"][:, 0], [hand] * 2)
        np.testing.assert_allclose(reads["act"], np.full((2, 1), 1 - 0.98**6), rtol=1e-5)
