"""Every term changes what it says, by what it says, on every physics; and nothing when off."""

from copy import copy
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import envs
from envs.locomotion.push import Pushes
from envs.physics.mjx import MJX
from envs.physics.native import CONSTANTS, Native
from envs.physics.warp import Warp
from envs.randomise import Ranges
from envs.task import TaskSpec

# A sled that slides along x and turns, and beside it an arm on a motor: numbers one can check.
SLED = """
<mujoco>
  <option timestep="0.001" integrator="implicitfast"/>
  <worldbody>
    <geom name="ground" type="plane" size="0 0 1" friction="0.5" priority="1"/>
    <body name="trunk" pos="0 0 0.1">
      <freejoint/>
      <inertial pos="0.001 0 0" mass="2" diaginertia="0.02 0.03 0.04"/>
      <geom type="box" size="0.3 0.3 0.1" mass="0" condim="3"/>
    </body>
    <body name="arm" pos="5 0 1">
      <joint name="arm" axis="0 1 0" damping="0.1" armature="0.02" frictionloss="0.3"/>
      <inertial pos="0 0 -0.5" mass="1" diaginertia="0.01 0.01 0.01"/>
    </body>
    <body name="flyer" pos="0 0 9" gravcomp="1">
      <freejoint/>
      <inertial pos="0 0 0" mass="4" diaginertia="0.2 0.3 0.4"/>
    </body>
  </worldbody>
  <actuator>
    <position name="arm" joint="arm" kp="10" kv="2" forcerange="-3 3"/>
  </actuator>
</mujoco>
"""
FIELDS = ("qpos", "qvel", "qacc", "xipos", "actuator_force")
EVERY = Ranges(
    friction=(0.5, 2), frictionloss=(0.5, 2), armature=(0.5, 2), mass=(0.8, 1.2),
    density=(0.8, 1.2), inertia=(0.8, 1.2), stiffness=(0.8, 1.2), damping=(0.8, 1.2),
    strength=(0.8, 1.2), payload=(-1, 1), com=(-0.1, 0.1), encoder=(-0.1, 0.1),
)  # fmt: skip
EVERY_FIELD = (
    "actuator_biasprm", "actuator_forcerange", "actuator_gainprm", "body_inertia", "body_ipos",
    "body_mass", "dof_armature", "dof_damping", "dof_frictionloss", "geom_friction", "qpos0",
)  # fmt: skip
PHYSICS = pytest.mark.parametrize("backend", [Native, MJX, Warp])


@cache
def model() -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_string(SLED)


@cache
def physics(backend: type) -> Native | MJX:
    spec = TaskSpec(("arm",), (-9,), (9,), substeps=1, control_dt=0.001, horizon=1, fields=FIELDS)
    return backend(model(), spec)


@cache
def stepper(backend: type):
    world = physics(backend)

    @jax.jit
    def run(qpos, qvel, ctrl, applied, params):
        data = world.reset(world.blank(), jnp.bool(True), qpos, qvel, params)
        inputs = {"ctrl": ctrl, "xfrc_applied": applied}
        return world.read(world.step(data, inputs, params))

    return run


def after(
    backend: type, ranges: Ranges, *, speed: float = 0.0, swing: float = 0.0, target: float = 0.0,
    angle: float = 0.0, push: tuple[int, int | slice, float | np.ndarray] | None = None,
) -> dict[str, np.ndarray]:  # fmt: skip
    """Readings a substep on; `push` is a body, a component of its wrench and how much of it."""
    qpos, qvel, applied = model().qpos0.copy(), np.zeros(model().nv), np.zeros((model().nbody, 6))
    qpos[2], qvel[0], qvel[6], qpos[7] = 0.0999, speed, swing, angle
    if push:
        applied[push[0], push[1]] = push[2]
    params = ranges.draw(jax.random.key(0), model(), "trunk", "ground")
    if backend is MJX:  # which compiles for every other set of fields
        params = {name: jnp.array(getattr(model(), name)) for name in EVERY_FIELD} | params
    params = physics(backend).constants(params, jnp.bool(True))
    out = stepper(backend)(qpos, qvel, np.array([target]), applied, params)
    return {name: np.asarray(x, float) for name, x in out.items()}


def both(backend: type, ranges: Ranges, what, **how) -> tuple[float, float]:
    """A quantity of the nominal world and of the one drawn from `ranges`."""
    return what(after(backend, Ranges(), **how)), what(after(backend, ranges, **how))


FLYER, ARM = 3, 2


@pytest.mark.long
@PHYSICS
def test_friction_of_the_ground_slows_what_slides(backend: type) -> None:
    slowed = lambda out: -out["qacc"][0] / (out["qacc"][2] + 9.81)  # noqa: E731
    nominal, more = both(backend, Ranges(friction=(1.5, 1.5)), slowed, speed=3.0)
    assert (nominal, more) == pytest.approx((0.5, 0.75), rel=0.02)


@pytest.mark.long
@PHYSICS
@pytest.mark.parametrize(
    ("ranges", "factor"),
    [
        (Ranges(mass=(1.25, 1.25)), 1 / 1.25),
        (Ranges(density=(0.8, 0.8)), 1 / 0.8),
        (Ranges(inertia=(1.5, 1.5)), 1),
    ],
)
def test_mass_resists_a_force(backend: type, ranges: Ranges, factor: float) -> None:
    pushed = lambda out: out["qacc"][8]  # noqa: E731
    nominal, other = both(backend, ranges, pushed, push=(FLYER, 1, 8.0))
    assert nominal == pytest.approx(2, rel=1e-4)
    assert other == pytest.approx(2 * factor, rel=1e-4)


@pytest.mark.long
@PHYSICS
@pytest.mark.parametrize(
    ("ranges", "factor"),
    [
        (Ranges(mass=(1.25, 1.25)), 1),
        (Ranges(density=(0.8, 0.8)), 1 / 0.8),
        (Ranges(inertia=(1.5, 1.5)), 1 / 1.5),
    ],
)
def test_inertia_resists_a_torque(backend: type, ranges: Ranges, factor: float) -> None:
    for axis, moment in enumerate((0.2, 0.3, 0.4)):
        turned = lambda out, axis=axis: out["qacc"][10 + axis]  # noqa: E731
        nominal, other = both(backend, ranges, turned, push=(FLYER, 3 + axis, 0.6))
        assert nominal == pytest.approx(0.6 / moment, rel=1e-4)
        assert other == pytest.approx(factor * nominal, rel=1e-4)


@PHYSICS
def test_a_payload_is_the_trunks_alone(backend: type) -> None:
    lifted = lambda out: out["qacc"][2] + 9.81  # noqa: E731
    nominal, loaded = both(backend, Ranges(payload=(0.5, 0.5)), lifted, push=(1, 2, 100.0))
    assert nominal == pytest.approx(50, rel=1e-3)
    assert loaded == pytest.approx(40, rel=1e-3)
    flying = lambda out: out["qacc"][8]  # noqa: E731
    nominal, loaded = both(backend, Ranges(payload=(0.5, 0.5)), flying, push=(FLYER, 1, 8.0))
    assert loaded == pytest.approx(nominal, rel=1e-5)


@PHYSICS
def test_the_centre_of_mass_moves(backend: type) -> None:
    where = lambda out: out["xipos"][1] - out["qpos"][:3]  # noqa: E731
    nominal, moved = both(backend, Ranges(com=(0.02, 0.02)), where)
    np.testing.assert_allclose(moved - nominal, 0.02, atol=1e-4)


@PHYSICS
def test_a_kick_changes_the_speed_by_a_pi_th_of_it(backend: type) -> None:
    pushes = Pushes(wait=(0.1, 0.1), duration=(0.2, 0.2), kick=(3.0, 3.0))
    push, dt, gained, when = pushes.draw(jax.random.key(0)), 0.02, np.zeros(3), []
    for t in range(20):
        force = np.asarray(pushes.force(push, 4.0))
        gained += dt * after(backend, Ranges(), push=(FLYER, slice(3), force))["qacc"][7:10]
        when += [t * dt] if abs(force).max() > 1e-3 else []
        push = pushes.advance(jax.random.key(t), push, dt)
    assert np.linalg.norm(gained) == pytest.approx(3 / np.pi, rel=0.02)
    assert (min(when), max(when)) == pytest.approx((0.12, 0.28), abs=1e-6)


@PHYSICS
def test_joints_rub_and_rotors_weigh(backend: type) -> None:
    """The arm turns about its joint with J = 0.01 + 1 x 0.5^2 + 0.02 kg m^2."""
    inertia = 0.01 + 0.25 + 0.02
    spun = lambda out: out["qacc"][6] * inertia  # noqa: E731
    held = {"swing": 2.0, "target": 0.4}  # where kp and kd add up to 0 but for what the joint loses
    nominal, rubbed = both(backend, Ranges(frictionloss=(2, 2)), spun, **held)
    assert rubbed - nominal == pytest.approx(-0.3, rel=0.05)
    nominal, heavy = both(backend, Ranges(armature=(3, 3)), spun, angle=0.0, push=(ARM, 4, 1.0))
    assert nominal / heavy == pytest.approx((inertia + 0.04) / inertia, rel=0.02)


@pytest.mark.long
@PHYSICS
def test_motors_differ(backend: type) -> None:
    force = lambda out: out["actuator_force"][0]  # noqa: E731
    nominal, stiff = both(backend, Ranges(stiffness=(1.2, 1.2)), force, target=0.1, angle=0.02)
    assert (nominal, stiff) == pytest.approx((0.8, 0.96), abs=1e-3)
    nominal, damped = both(backend, Ranges(damping=(1.5, 1.5)), force, swing=0.5)
    assert (nominal, damped) == pytest.approx((-1, -1.5), abs=2e-2)
    nominal, weak = both(backend, Ranges(strength=(0.8, 0.8)), force, target=2.0)
    assert (nominal, weak) == pytest.approx((3, 2.4), abs=1e-6)
    spun = lambda out: out["qacc"][6] * 0.28  # noqa: E731
    nominal, damped = both(backend, Ranges(damping=(1.5, 1.5)), spun, swing=0.5)
    assert damped - nominal == pytest.approx(-0.5 * (2 + 0.1) * 0.5, rel=0.05)


@PHYSICS
def test_an_encoder_is_off_for_motor_and_policy_alike(backend: type) -> None:
    """At the same reading the arm hangs elsewhere, and the motor pulls as before."""
    ranges = Ranges(encoder=(0.05, 0.05))
    angle = lambda out: np.arctan2(*-(out["xipos"][ARM] - [5, 0, 1])[[0, 2]])  # noqa: E731
    nominal, off = both(backend, ranges, angle, angle=0.3)
    assert nominal == pytest.approx(0.3, abs=1e-3)
    assert off == pytest.approx(0.25, abs=1e-3)
    force = lambda out: out["actuator_force"][0]  # noqa: E731
    assert len({*np.round(both(backend, ranges, force, angle=0.1), 3)}) == 1


def test_constants_that_follow_are_those_of_set_const() -> None:
    assert all(values != getattr(Ranges(), name) for name, values in EVERY.items())
    nominal = envs.make_task("go2-joystick-flat").model()
    drawn = EVERY.draw(jax.random.key(3), nominal, "trunk", "ground")
    assert {*drawn} == {*EVERY_FIELD}
    edited = copy(nominal)
    for name, value in drawn.items():
        getattr(edited, name)[:] = np.asarray(value)
    mujoco.mj_setConst(edited, mujoco.MjData(edited))
    world = Native(nominal, TaskSpec((), (), (), 1, 0.02, 1))
    derived = jax.jit(world.constants)(drawn, True)
    assert set(derived) > set(drawn)
    for name in CONSTANTS:
        if np.size(getattr(nominal, name)):
            np.testing.assert_allclose(
                derived[name], getattr(edited, name), rtol=2e-6, atol=1e-7, err_msg=name
            )
    assert not np.allclose(derived["dof_invweight0"], nominal.dof_invweight0)


def test_what_is_off_is_not_there() -> None:
    task = envs.make_task("go2-joystick-flat", randomised=0.0)
    assert task.reset(jax.random.key(0), task.context()).params == {}
    one = Ranges(mass=(0.9, 1.1)).draw(jax.random.key(0), task.model(), "trunk", "ground")
    assert set(one) == {"body_mass"}
