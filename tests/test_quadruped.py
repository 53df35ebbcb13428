"""Go1 and Go2 are the robots that their makers describe."""

import mujoco
import numpy as np
import pytest

from envs.locomotion.go1 import GO1
from envs.locomotion.go2 import GO2
from envs.locomotion.legged import Legged
from envs.locomotion.quadruped import ANGLES, JOINTS, LEGS, SPEEDS, Quadruped
from envs.locomotion.terrain import Plane, Steps

ROBOTS = {"go1": GO1, "go2": GO2}
# Published figures, rounded: kg, kg m^2, m, rad, N m.
TABLE = {
    "go1": {
        "mass": 12.743, "links": (5.204, 0.68, 1.009, 0.19586), "com": (0.0223, 0.002, -0.0005),
        "trunk": (0.07166, 0.06301, 0.01681), "hip": (7.341e-4, 4.684e-4, 3.987e-4),
        "thigh": (4.787e-3, 4.609e-3, 7.09e-4), "calf": (1.498e-3, 1.485e-3, 3.58e-5),
        "hip_at": (0.1881, 0.04675, 0), "width": 0.08, "foot": 0.023, "torque": (23.7, 23.7, 35.55),
        "front": ((-0.863, 0.863), (-0.686, 4.501), (-2.818, -0.888)),
        "rear": ((-0.863, 0.863), (-0.686, 4.501), (-2.818, -0.888)), "height": 0.278,
    },
    "go2": {
        "mass": 15.206, "links": (6.921, 0.678, 1.152, 0.24135), "com": (0.0211, 0, -0.0054),
        "trunk": (0.10703, 0.09808, 0.02445), "hip": (8.840e-4, 5.960e-4, 4.800e-4),
        "thigh": (5.950e-3, 5.841e-3, 8.79e-4), "calf": (1.490e-3, 1.464e-3, 5.31e-5),
        "hip_at": (0.1934, 0.0465, 0), "width": 0.0955, "foot": 0.022,
        "torque": (23.7, 23.7, 45.43),
        "front": ((-1.0472, 1.0472), (-1.5708, 3.4907), (-2.7227, -0.83776)),
        "rear": ((-1.0472, 1.0472), (-0.5236, 4.5379), (-2.7227, -0.83776)), "height": 0.27,
    },
}  # fmt: skip
BOTH = pytest.mark.parametrize("name", TABLE)


def model_of(robot: Quadruped) -> mujoco.MjModel:
    return robot.spec().compile()


@BOTH
def test_masses_inertias_and_limits_are_those_of_the_tables(name: str) -> None:
    model, facts = model_of(ROBOTS[name]), TABLE[name]
    assert model.body_mass.sum() == pytest.approx(facts["mass"], abs=1e-3)
    assert model.body("trunk").mass[0] == pytest.approx(facts["links"][0])
    assert model.body("trunk").ipos == pytest.approx(facts["com"], abs=6e-5)
    assert model.body("trunk").inertia == pytest.approx(facts["trunk"], rel=1e-3)
    for leg in LEGS:
        front, left = (1 if leg[0] == "F" else -1), (1 if leg[1] == "L" else -1)
        hip = model.body(f"{leg}_hip")
        assert hip.pos == pytest.approx(np.multiply(facts["hip_at"], (front, left, 1)))
        assert model.body(f"{leg}_thigh").pos == pytest.approx((0, left * facts["width"], 0))
        assert model.body(f"{leg}_calf").pos == pytest.approx((0, 0, -0.213))
        assert model.geom(leg).size[0] == facts["foot"]
        ranges = facts["front" if front > 0 else "rear"]
        for i, link in enumerate(("hip", "thigh", "calf")):
            body, joint = model.body(f"{leg}_{link}"), model.joint(f"{leg}_{link}")
            motor = model.actuator(f"{leg}_{link}")
            assert body.mass[0] == pytest.approx(facts["links"][i + 1], abs=1e-5)
            assert body.inertia == pytest.approx(facts[link], rel=2e-3)
            assert tuple(joint.range) == ranges[i]
            assert tuple(motor.ctrlrange) == ranges[i]
            assert tuple(motor.forcerange) == (-facts["torque"][i], facts["torque"][i])
            assert motor.trnid[0] == joint.id


@BOTH
def test_legs_are_mirror_images(name: str) -> None:
    """The whole body's mass is spread alike on both sides, but for what the maker put aside."""
    robot = ROBOTS[name]
    model = model_of(robot)
    for front, rear in (("FL", "RL"), ("FR", "RR")):
        for link in ("thigh", "calf"):
            np.testing.assert_allclose(
                model.body(f"{front}_{link}").ipos, model.body(f"{rear}_{link}").ipos
            )
    for link, inertial in {"hip": robot.hip, "thigh": robot.thigh, "calf": robot.calf}.items():
        sign = -1 if inertial.handed else 1
        left, right = model.body(f"FL_{link}"), model.body(f"FR_{link}")
        np.testing.assert_allclose(left.ipos * (1, sign, 1), right.ipos)
        np.testing.assert_allclose(
            tensor(left) * np.outer((1, sign, 1), (1, sign, 1)), tensor(right), atol=1e-12
        )


def tensor(body: mujoco.MjsBody) -> np.ndarray:
    """Inertia [3, 3] of a compiled body in its own frame."""
    axes = np.zeros(9)
    mujoco.mju_quat2Mat(axes, body.iquat)
    axes = axes.reshape(3, 3)
    return axes @ np.diag(body.inertia) @ axes.T


@BOTH
def test_inertias_are_physical(name: str) -> None:
    model = model_of(ROBOTS[name])
    moments = np.sort(model.body_inertia[1:], axis=1)
    assert (moments > 0).all()
    assert (moments[:, 2] <= moments[:, 0] + moments[:, 1]).all()


@BOTH
def test_it_stands_at_home(name: str) -> None:
    """Held at its pose for 2 s the robot stands there: feet down, trunk level, at rest."""
    legged = Legged(ROBOTS[name], Plane())
    data = mujoco.MjData(legged.model)
    data.qpos[:] = [0, 0, TABLE[name]["height"], 1, 0, 0, 0, *legged.pose]
    data.ctrl[:] = legged.pose
    mujoco.mj_step(legged.model, data, round(2 / legged.timestep))
    assert data.qpos[2] == pytest.approx(TABLE[name]["height"], abs=0.04)
    assert data.sensor("upright").data[2] > 0.99
    assert np.abs(data.qvel).max() < 0.05
    feet = {legged.model.geom(leg).id for leg in LEGS}
    assert {*data.contact.geom2[: data.ncon]} == feet
    weight = sum(contact_force(legged.model, data, i)[0] for i in range(data.ncon))
    assert weight == pytest.approx(9.81 * TABLE[name]["mass"], rel=0.02)


def contact_force(model: mujoco.MjModel, data: mujoco.MjData, i: int) -> np.ndarray:
    """Force [6] of contact `i` in its own frame: the first is along the normal."""
    force = np.zeros(6)
    mujoco.mj_contactForce(model, data, i, force)
    return force


@BOTH
def test_sensors_are_named_after_what_they_measure(name: str) -> None:
    model = model_of(ROBOTS[name])
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    data.qpos[:] = rng.normal(size=model.nq)
    data.qvel[:] = rng.normal(size=model.nv)
    mujoco.mj_forward(model, data)
    for joint, angle, speed in zip(JOINTS, ANGLES, SPEEDS, strict=True):
        assert data.sensor(angle).data[0] == data.joint(joint).qpos[0]
        assert data.sensor(speed).data[0] == data.joint(joint).qvel[0]
    turn = data.site("imu").xmat.reshape(3, 3)
    np.testing.assert_allclose(data.sensor("up").data, turn.T @ [0, 0, 1])
    np.testing.assert_allclose(data.sensor("upright").data, turn @ [0, 0, 1])
    np.testing.assert_allclose(data.sensor("velocity").data, turn.T @ data.sensor("linvel").data)
    np.testing.assert_allclose(data.sensor("gyro").data, turn.T @ data.sensor("angvel").data)


def test_the_ground_is_where_physics_has_it() -> None:
    """The height that a task looks up is the one that a ray meets."""
    terrain = Steps()
    legged = Legged(GO1, terrain)
    data = mujoco.MjData(legged.model)
    mujoco.mj_forward(legged.model, data)
    rng = np.random.default_rng(0)
    at = rng.uniform(-1, 1, (300, 2)) * (terrain.half + 1)
    away, met = np.hypot(*at.T) > 1, np.zeros(300)  # not where the robot stands
    for i, (x, y) in enumerate(at):
        hit = np.full(1, -1, np.int32)
        met[i] = 5 - mujoco.mj_ray(
            legged.model, data, np.array([x, y, 5.0]), np.array([0, 0, -1.0]), None, 1, -1, hit
        )
    ours = np.asarray(terrain.height(at), float)
    np.testing.assert_allclose(ours[away], met[away], atol=1e-6)
    assert len({*np.round(ours[away], 3)}) == 6


def test_a_level_has_steps_of_its_height() -> None:
    terrain = Steps(highest=0.1, levels=6)
    for level in range(6):
        middle = np.asarray(terrain.middle(level))
        spots = middle + np.random.default_rng(level).uniform(-3, 3, (500, 2))
        heights = {*np.round(np.asarray(terrain.height(spots), float), 3)}
        assert {0.0, round(0.02 * level, 3)} <= heights
        assert max(heights) == pytest.approx(0.02 * level)
