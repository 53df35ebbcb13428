"""The arms are the robots that their makers describe, and their kinematics are MuJoCo's."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from envs.manipulation import kinematics
from envs.manipulation.inverse import inverse
from envs.manipulation.panda import PANDA
from envs.manipulation.tabletop import ARMS
from rl.types import Array

# Published figures of the Panda, rounded: frame in its parent; kg; m; kg m^2 (xx yy zz xy xz yz).
PANDA_TABLE = {
    "link0": ((0, 0, 0), 0.6298, (-0.0410, -0.0001, 0.0500),
              (0.00315, 0.00388, 0.004285, 8.3e-7, 1.5e-4, 8.2e-6)),
    "link1": ((0, 0, 0.333), 4.9707, (0.00388, 0.00208, -0.0476),
              (0.70337, 0.70661, 0.009117, -1.39e-4, 0.006772, 0.019169)),
    "link2": ((0, 0, 0), 0.6469, (-0.0031, -0.0287, 0.0035),
              (0.007962, 0.02811, 0.025995, -0.003925, 0.010254, 7.04e-4)),
    "link3": ((0, -0.316, 0), 3.2286, (0.0275, 0.0393, -0.0665),
              (0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805)),
    "link4": ((0.0825, 0, 0), 3.5879, (-0.0532, 0.1044, 0.0275),
              (0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641)),
    "link5": ((-0.0825, 0.384, 0), 1.2259, (-0.0120, 0.0411, -0.0384),
              (0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 2.29e-4)),
    "link6": ((0, 0, 0), 1.6666, (0.0601, -0.0141, -0.0105),
              (0.001964, 0.004354, 0.005433, 1.09e-4, -0.001158, 3.41e-4)),
    "link7": ((0.088, 0, 0), 0.7355, (0.0105, -0.0043, 0.0616),
              (0.012516, 0.010027, 0.004815, -4.28e-4, -0.001196, -7.41e-4)),
    "hand": ((0, 0, 0.107), 0.73, (-0.01, 0, 0.03), (0.001, 0.0025, 0.0017, 0, 0, 0)),
    "finger1": ((0, 0, 0.0584), 0.015, (0, 0, 0), (2.375e-6, 2.375e-6, 7.5e-7, 0, 0, 0)),
    "finger2": ((0, 0, 0.0584), 0.015, (0, 0, 0), (2.375e-6, 2.375e-6, 7.5e-7, 0, 0, 0)),
}  # fmt: skip
PANDA_JOINTS = (  # rad; N m; rad/s
    (-2.8973, 2.8973, 87, 2.175), (-1.7628, 1.7628, 87, 2.175), (-2.8973, 2.8973, 87, 2.175),
    (-3.0718, -0.0698, 87, 2.175), (-2.8973, 2.8973, 12, 2.61), (-0.0175, 3.7525, 12, 2.61),
    (-2.8973, 2.8973, 12, 2.61),
)  # fmt: skip
EACH = pytest.mark.parametrize("name", ARMS)


def test_the_pandas_links_are_those_of_the_table() -> None:
    model = PANDA.spec().compile()
    assert model.body_mass.sum() == pytest.approx(17.452, abs=1e-3)
    for name, (at, mass, com, inertia) in PANDA_TABLE.items():
        body, axes = model.body(name), np.zeros(9)
        assert body.pos == pytest.approx(at)
        assert body.mass[0] == pytest.approx(mass, abs=6e-5)
        assert body.ipos == pytest.approx(com, abs=6e-5)
        mujoco.mju_quat2Mat(axes, body.iquat)
        axes = axes.reshape(3, 3)
        full = axes @ np.diag(body.inertia) @ axes.T
        np.testing.assert_allclose(full[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]], inertia, atol=6e-6)


def test_the_pandas_joints_are_those_of_the_table() -> None:
    model = PANDA.spec().compile()
    for i, (low, high, torque, speed) in enumerate(PANDA_JOINTS):
        name = f"joint{i + 1}"
        assert tuple(model.joint(name).range) == (low, high)
        assert tuple(model.actuator(name).ctrlrange) == (low, high)
        assert tuple(model.actuator(name).forcerange) == (-torque, torque)
        assert PANDA.motors[i].speed == speed
    for name in ("finger1", "finger2"):
        assert tuple(model.joint(name).range) == (0, 0.04)


@pytest.mark.parametrize(
    "angles",
    [
        (0, 0, 0, -0.0698, 0, 0, 0),
        (0, -0.7853, 0, -2.3561, 0, 1.5707, 0.7853),
        (1, 0.5, -0.7, -1.4, 0.9, 2.2, -2),
    ],
)
def test_the_panda_stands_as_its_makers_table_says(angles: tuple[float, ...]) -> None:
    """Of Denavit's and Hartenberg's parameters."""
    model = PANDA.spec().compile()
    data = mujoco.MjData(model)
    data.qpos[:7] = angles
    mujoco.mj_forward(model, data)
    place = np.eye(4)
    half = np.pi / 2
    table = zip(  # modified convention: a, d, alpha, theta
        (0, 0, 0, 0.0825, -0.0825, 0, 0.088), (0.333, 0, 0.316, 0, 0.384, 0, 0),
        (0, -half, half, half, -half, half, half), angles, strict=True,
    )  # fmt: skip
    for a, d, alpha, theta in table:
        ca, sa, ct, st = np.cos(alpha), np.sin(alpha), np.cos(theta), np.sin(theta)
        place = place @ np.array([
            [ct, -st, 0, a], [st * ca, ct * ca, -sa, -d * sa],
            [st * sa, ct * sa, ca, d * ca], [0, 0, 0, 1],
        ])  # fmt: skip
    np.testing.assert_allclose(data.body("link7").xpos, place[:3, 3], atol=1e-6)
    np.testing.assert_allclose(data.body("link7").xmat.reshape(3, 3), place[:3, :3], atol=1e-6)
    flange = place[:3, 3] + 0.107 * place[:3, 2]
    np.testing.assert_allclose(data.body("hand").xpos, flange, atol=1e-6)


@EACH
def test_kinematics_are_mujocos(name: str) -> None:
    arm = ARMS[name]
    model, rng = arm.spec().compile(), np.random.default_rng(0)
    data, run = mujoco.MjData(model), jax.jit(lambda q: kinematics.forward(arm, q))
    jacobian, tool = np.zeros((6, model.nv)), model.site("tool").id
    for _ in range(50):
        motors = rng.uniform(*arm.limits.T)
        data.qpos[:] = arm.everything(motors)
        mujoco.mj_forward(model, data)
        mujoco.mj_jacSite(model, data, jacobian[:3], jacobian[3:], tool)
        found = run(jnp.asarray(motors[: len(arm.joints)], jnp.float32))
        np.testing.assert_allclose(found.at, data.site_xpos[tool], atol=2e-6)
        np.testing.assert_allclose(found.turn.ravel(), data.site_xmat[tool], atol=2e-6)
        np.testing.assert_allclose(found.jacobian, jacobian[:, : len(arm.joints)], atol=2e-6)


def test_linear_equations_are_solved() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        half = rng.normal(size=(6, 6))
        matrix, right = half @ half.T + 0.1 * np.eye(6), rng.normal(size=6)
        found = kinematics.linear(jnp.asarray(matrix, jnp.float32), jnp.asarray(right, jnp.float32))
        np.testing.assert_allclose(matrix @ np.asarray(found, float), right, atol=1e-3)


def test_a_tool_follows_a_way_to_where_it_is_asked() -> None:
    """By small steps, as `control` takes them, and within the limits all the way."""
    rng, rest = np.random.default_rng(1), jnp.asarray(PANDA.home[:7], jnp.float32)
    low, high = PANDA.limits[:7].T
    first = kinematics.forward(PANDA, rest)
    yaw_0 = kinematics.yaw_of(first.turn)

    @jax.jit
    def follow(at: Array, yaw: Array) -> Array:
        def step(q: Array, share: Array) -> tuple[Array, Array]:
            turn = kinematics.downward(yaw_0 + share * (yaw - yaw_0))
            q = kinematics.nearer(PANDA, q, first.at + share * (at - first.at), turn, rest)
            return q, q

        return jax.lax.scan(step, rest, jnp.minimum(jnp.arange(1, 121) / 100, 1))[1]

    for _ in range(20):
        at, yaw = rng.uniform((0.35, -0.3, 0.02), (0.65, 0.3, 0.4)), rng.uniform(0.3, 2.8)
        q = follow(jnp.asarray(at, jnp.float32), jnp.float32(yaw))
        assert ((q >= low - 1e-6) & (q <= high + 1e-6)).all()
        found = kinematics.forward(PANDA, q[-1])
        np.testing.assert_allclose(found.at, at, atol=5e-4)
        np.testing.assert_allclose(found.turn, kinematics.downward(jnp.float32(yaw)), atol=2e-3)
        same, off = inverse(PANDA, at, yaw)  # by MuJoCo's jacobians, in float64
        assert off < 1e-4
        np.testing.assert_allclose(kinematics.forward(PANDA, jnp.asarray(same)).at, at, atol=1e-4)


def test_an_arm_in_no_gravity_of_its_own_stays_where_it_is() -> None:
    """Its controller bears its links: targets are reached, not sagged from."""
    model = PANDA.spec().compile()
    data = mujoco.MjData(model)
    data.qpos[:], data.ctrl[:] = PANDA.everything(PANDA.home), PANDA.home
    mujoco.mj_step(model, data, 1000)
    np.testing.assert_allclose(data.qpos, PANDA.everything(PANDA.home), atol=2e-3)


SO101_TABLE = {  # its makers' figures, rounded: kg; m; and the joint that carries it, rad
    "base": (0.147, (0.0137, -0.0001, 0.0335), None),
    "shoulder": (0.1000, (-0.0308, 0.0, -0.0253), (-1.9199, 1.9199)),
    "upper_arm": (0.103, (-0.0898, -0.0084, 0.0184), (-1.7453, 1.7453)),
    "lower_arm": (0.104, (-0.0981, 0.0032, 0.0183), (-1.69, 1.69)),
    "wrist": (0.079, (-0.0001, -0.0386, 0.0281), (-1.6581, 1.6581)),
    "gripper": (0.087, (0.0002, 0.0002, -0.0252), (-2.7438, 2.8412)),
    "jaw": (0.012, (-0.0016, -0.0300, 0.0193), (-0.1745, 1.7453)),
}
SO101_POSES = (  # joints; where its makers' model then has the wrist's joint and the jaw's, m
    ((0, 0, 0, 0, 0, 0), (0.23213, -0.01828, 0.23437), (0.31663, 0.01762, 0.25546)),
    ((0.5, -0.4, 0.3, 0.9, -0.7, 1.0), (0.15825, -0.08606, 0.24983), (0.23598, -0.10788, 0.20844)),
    ((-1, 0.6, -0.8, 1.2, 1.5, 0.2), (0.18834, 0.19902, 0.22559), (0.17163, 0.24775, 0.14571)),
)
STAND = 0.0024  # m above its table that its base's frame is


def test_the_so101s_links_and_joints_are_those_of_its_makers() -> None:
    model = ARMS["so101"].spec().compile()
    assert model.body_mass.sum() == pytest.approx(0.632, abs=1e-4)
    for name, (mass, com, limits) in SO101_TABLE.items():
        body = model.body(name)
        assert body.mass[0] == pytest.approx(mass, abs=6e-5)
        assert body.ipos == pytest.approx(com, abs=6e-5)
        if limits:
            assert model.jnt_range[body.jntadr[0]] == pytest.approx(limits, abs=6e-5)
    data = mujoco.MjData(model)
    for joints, wrist, jaw in SO101_POSES:
        data.qpos[:] = joints
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(data.body("wrist").xpos - (0, 0, STAND), wrist, atol=2e-5)
        np.testing.assert_allclose(data.body("jaw").xpos - (0, 0, STAND), jaw, atol=2e-5)
