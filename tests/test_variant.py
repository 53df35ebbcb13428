"""Factors and delays that are put on a task: each does what it says, on top of the task's own."""

from copy import copy

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.simulation import Simulation
from envs.variant import Scaled, Variant, vary


def acts(env: Simulation, actions: np.ndarray, seed: int = 3) -> tuple[dict, dict]:
    """What the world is, and what the robot is told of it, at first and after each action."""

    def tick(state, action):
        after = env.step(state, action)
        return after, (env.physics.read(after.sim.data), after.sim.told)

    @jax.jit
    def run(key):
        state = env.reset(key)
        first = env.physics.read(state.sim.data), state.sim.told
        return first, jax.lax.scan(tick, state, jnp.asarray(actions))[1]

    first, rest = run(jax.random.key(seed))
    raw, told = jax.tree.map(lambda a, b: np.concatenate([a[None], b]), first, rest)
    return raw, told


def test_a_model_of_other_factors_is_what_mujoco_makes_of_them() -> None:
    env, by = envs.make("HalfCheetah-v5", "native"), Variant(1.7, 0.6, 0.8)
    model = copy(env.task.model())
    model.body_mass, model.body_inertia = model.body_mass * 1.7, model.body_inertia * 1.7
    model.geom_friction[:, 0] *= 0.6
    model.actuator_gainprm[:] *= 0.8
    data = mujoco.MjData(model)
    mujoco.mj_setConst(model, data)
    other = vary(env, by, (0, 0), True)
    params = other.reset(jax.random.key(3)).sim.params
    for name in ("body_subtreemass", "dof_M0", "dof_invweight0", "body_invweight0"):
        np.testing.assert_allclose(params[name], getattr(model, name), rtol=1e-5)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 6)).astype(np.float32)
    (theirs, _), (plain, _) = acts(other, actions), acts(env, actions)
    data.qpos[:], data.qvel[:] = theirs["qpos"][0], theirs["qvel"][0]
    for action, seen in zip(actions, theirs["qpos"][1:], strict=True):
        data.ctrl[:] = action
        mujoco.mj_step(model, data, 5)
        np.testing.assert_allclose(seen, data.qpos, atol=1e-4)
    assert abs(theirs["qpos"][-1] - plain["qpos"][-1]).max() > 0.1


def test_a_servo_keeps_its_balance_and_a_teacher_is_told_what_there_is() -> None:
    task = envs.make_task("go1-joystick-flat", randomised=1.0)
    key, by = jax.random.key(0), Variant(1.5, 0.5, 0.7)
    plain, other = task.reset(key, task.context()), Scaled(task, by).reset(key, task.context())
    for name in ("actuator_gainprm", "actuator_biasprm"):
        np.testing.assert_allclose(other.params[name], 0.7 * getattr(task.model(), name), rtol=1e-6)
    np.testing.assert_allclose(
        other.params["body_mass"], 1.5 * plain.params["body_mass"], rtol=1e-6
    )
    ground, trunk = task.model().geom("ground").id, task.model().body("trunk").id
    told = np.array([other.params["geom_friction"][ground, 0], other.params["body_mass"][trunk]])
    off = told - [task.model().geom_friction[ground, 0], task.model().body_mass[trunk]]
    np.testing.assert_allclose(other.episode.factors[:2], off, rtol=1e-5)
    drawn = float(plain.params["geom_friction"][ground, 0])
    assert float(told[0]) == pytest.approx(drawn / 2)
    assert other.episode.factors.shape == plain.episode.factors.shape


@pytest.mark.parametrize("k", [1, 3])
def test_a_delay_is_so_many_control_steps(k: int) -> None:
    env = envs.make("Hopper-v5", "native")
    actions = np.random.default_rng(0).uniform(-0.9, 0.9, (8, 3)).astype(np.float32)
    late = vary(env, Variant(action_delay=k), (3, 0), False)
    np.testing.assert_allclose(acts(late, actions)[0]["ctrl"][1 + k :], actions[:-k], atol=1e-7)
    assert not acts(late, actions)[0]["ctrl"][1 : 1 + k].any()
    still = vary(env, Variant(observation_delay=k), (2, 3), False)
    (raw, prompt), (same, told) = acts(env, actions), acts(still, actions)
    np.testing.assert_array_equal(raw["qpos"], same["qpos"])
    np.testing.assert_array_equal(told["qpos"][k:], prompt["qpos"][:-k])
    assert (told["qpos"][:k] == prompt["qpos"][0]).all()


def test_a_delay_adds_to_the_tasks_own_and_draws_the_same() -> None:
    env = envs.make("go1-joystick-flat", "native", target_delay=(1, 1), noise=0.5)
    key = jax.random.key(0)
    reset = lambda env: jax.jit(env.reset)(key).sim  # noqa: E731
    plain, late = reset(env), reset(vary(env, Variant(action_delay=2), (2, 1), False))
    assert int(late.disturbed.target_delay) == int(plain.disturbed.target_delay) + 2 == 3
    assert late.disturbed.targets.shape == (4, 12)
    jax.tree.map(np.testing.assert_array_equal, plain.told, late.told)


def test_a_muscle_is_refused() -> None:
    class Strong:
        def model(self) -> mujoco.MjModel:
            return mujoco.MjModel.from_xml_string(
                '<mujoco><worldbody><body><joint name="j"/><geom size="1"/></body></worldbody>'
                '<actuator><muscle name="m" joint="j" lengthrange="0 1"/></actuator></mujoco>'
            )

    env = Simulation(Strong(), None, 1)
    with pytest.raises(ValueError, match="Actuator 'm' is a muscle"):
        vary(env, Variant(), (0, 0), True)
