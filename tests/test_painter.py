"""A robot is drawn as it is measured: poses against a simulated robot that knows its own."""

from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from rl import artefact
from rl.bridge.page.painter import Body
from rl.bridge.sim.simulator import Robot

POLICIES = Path(__file__).parent.parent / "benchmarks" / "policies"


def robot(name: str) -> tuple[Robot, Body]:
    found = artefact.read(POLICIES / name / "artefact-0.zip")
    made = Robot(found, 1 / found.spec.control_dt)
    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    return made, Body(model, found.spec)


def shaken(made: Robot, seed: int) -> np.ndarray:
    """It is put somewhere, in any pose: its qpos."""
    rng, qpos = np.random.default_rng(seed), made.home()[0]
    qpos += rng.uniform(-0.3, 0.3, qpos.shape)
    mujoco.mj_normalizeQuat(made.model, qpos)
    made.reset(qpos, np.zeros(made.model.nv))
    return qpos


def depth(model: Any, data: Any) -> float:
    """How far its lowest point is above the ground, by MuJoCo's own collisions."""
    model.geom_margin[:] = 10.0
    model.geom_contype[:] = model.geom_conaffinity[:] = 1
    mujoco.mj_collision(model, data)
    ground = model.geom("ground").id
    return min(x.dist for x in data.contact[: data.ncon] if ground in x.geom)


@pytest.mark.parametrize("seed", range(5))
def test_a_walker_stands_on_the_ground_as_it_leans(seed: int) -> None:
    made, drawn = robot("go2-joystick-flat")
    qpos = shaken(made, seed)
    data = drawn.pose(made.readings())
    np.testing.assert_allclose(data.qpos[7:], qpos[7:], atol=1e-6)
    turn = data.qpos[3:7] * np.sign(data.qpos[3] * qpos[3])
    np.testing.assert_allclose(turn, qpos[3:7], atol=1e-6)
    assert data.qpos[:2].tolist() == [0, 0]
    assert depth(drawn.model, data) == pytest.approx(0, abs=1e-6)


def test_an_arm_has_its_things_and_both_fingers() -> None:
    made, drawn = robot("panda-peg-insertion")
    qpos = shaken(made, 0)
    model = made.model
    one, other = (model.joint(f"finger{i}").qposadr[0] for i in (1, 2))
    peg = int(model.joint("peg").qposadr[0])
    data = drawn.pose(made.readings())
    arm = [int(model.joint(f"joint{i}").qposadr[0]) for i in range(1, 8)]
    np.testing.assert_allclose(data.qpos[[*arm, one]], qpos[[*arm, one]], atol=1e-6)
    assert data.qpos[other] == data.qpos[one]
    np.testing.assert_allclose(data.qpos[peg : peg + 3], qpos[peg : peg + 3], atol=1e-6)


@pytest.mark.parametrize("kind", ["sphere", "capsule", "cylinder", "ellipsoid", "box", "mesh"])
def test_the_lowest_point_of_each_shape(kind: str) -> None:
    corners = "0 0 0  .1 0 0  0 .2 0  0 0 .3  .1 .2 .1"
    shape = 'mesh="m"' if kind == "mesh" else 'size="0.1 0.2 0.15"'
    model = mujoco.MjModel.from_xml_string(f"""
      <mujoco><asset><mesh name="m" vertex="{corners}"/></asset><worldbody>
        <geom name="ground" type="plane" size="1 1 1"/>
        <body><freejoint/><geom name="it" type="{kind}" {shape}/></body>
      </worldbody></mujoco>""")
    spec: Any = type("Spec", (), {"actuators": ()})
    drawn, data = Body(model, spec), mujoco.MjData(model)
    rng, geom = np.random.default_rng(0), model.geom("it").id
    for _ in range(20):
        data.qpos[:] = rng.normal(size=7)
        mujoco.mj_normalizeQuat(model, data.qpos)
        mujoco.mj_forward(model, data)
        drawn.data = data
        lowest = drawn.lowest(geom)
        if kind == "mesh":  # of which its box is known
            assert lowest <= depth(model, data) + 1e-6
        else:
            assert lowest == pytest.approx(depth(model, data), abs=1e-6)
