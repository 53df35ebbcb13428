"""What MJX must refuse, what it must not, and the table that says so."""

import subprocess
import sys
from dataclasses import replace

import gymnasium
import jax
import mujoco
import pytest

import envs
from benchmarks import backends
from envs.physics.mjx import MJX, unsupported
from envs.task import Camera, TaskSpec


def thing(*, geom="", joint="", option="", act="", sensor=""):
    """A ball on two slides above a floor, with what is under test."""
    return f"""<mujoco><option>{option}</option><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 0.1"><joint name="z" type="slide" axis="0 0 1" {joint}/>
      <joint name="x" type="slide" axis="1 0 0"/><geom size="0.1" {geom}/><site name="s"/>
      </body></worldbody><tendon>{act if "fixed" in act else ""}</tendon>
      <actuator><general name="a" joint="x" {"" if "fixed" in act else act}/></actuator>
      <sensor>{sensor}</sensor></mujoco>"""


def tendon(attributes):
    return thing(act=f'<fixed name="t" {attributes}><joint joint="x" coef="1"/></fixed>')


FEATURES = {
    "delay or history": thing(act='delay="0.01" nsample="8"'),
    "history of actuators or sensors": thing(
        sensor='<jointpos joint="x" delay="0.01" nsample="8"/>'
    ),
    "actuator armature": thing(act='armature="1"'),
    "actuator damping": thing(act='damping="2"'),
    "early actuator activation": thing(act='dyntype="integrator" actearly="true"'),
    "polynomial joint damping": thing(joint='damping="0 3"'),
    "polynomial joint stiffness": thing(joint='stiffness="0 30"'),
    "polynomial tendon damping": tendon('damping="0 3"'),
    "polynomial tendon stiffness": tendon('stiffness="0 3"'),
    "surface velocity": thing(geom='surfacevel="1 0 0"'),
    "contact adhesion": thing(geom='adhesion="10"'),
    "ellipsoid model of fluid": thing(geom='fluidshape="ellipsoid"'),
    "noslip": thing().replace("<option>", '<option noslip_iterations="3">'),
    "disabled actuator groups": thing().replace("<option>", '<option actuatorgroupdisable="2">'),
    "sleeping": thing(option='<flag sleep="enable"/>'),
    "springs without dampers": thing(option='<flag damper="disable"/>'),
    "dampers without springs": thing(option='<flag spring="disable"/>'),
    "discrete integrator": thing().replace("<option>", '<option integrator="discrete">'),
    "PGS": thing().replace("<option>", '<option solver="PGS">'),
    "IMPLICIT": thing().replace("<option>", '<option integrator="implicit">'),
}
SPEC = TaskSpec(actuators=("a",), low=(-1,), high=(1,), substeps=1, control_dt=0.002, horizon=1)


@pytest.mark.parametrize("feature", FEATURES)
def test_what_it_would_ignore_is_refused(feature):
    model = mujoco.MjModel.from_xml_string(FEATURES[feature])
    assert any(feature in said for said in unsupported(model, SPEC))
    with pytest.raises(ValueError, match=feature):
        MJX(model, SPEC)


def test_what_it_can_is_not_refused():
    for xml in (thing(), thing(geom='margin="0.1" gap="0.05"'), tendon('stiffness="3"')):
        assert unsupported(mujoco.MjModel.from_xml_string(xml), SPEC) == []


def test_readings_it_would_get_wrong_are_refused():
    accelerometer = '<accelerometer name="imu" site="s"/><jointpos name="p" joint="x"/>'
    felt = mujoco.MjModel.from_xml_string(thing(sensor=accelerometer))
    assert unsupported(felt, replace(SPEC, sensors=("imu", "p"))) == []
    felt.opt.integrator = mujoco.mjtIntegrator.mjINT_RK4
    assert "reads imu at" in unsupported(felt, replace(SPEC, sensors=("imu", "p")))[0]
    lagged = replace(SPEC, sensors=("p",), derived="lagged")
    assert "reads p at" in unsupported(felt, lagged)[0]
    free = thing(sensor=accelerometer).replace('<geom type="plane" size="1 1 1"/>', "")
    free = mujoco.MjModel.from_xml_string(free)
    assert "leaves imu at zero" in unsupported(free, replace(SPEC, sensors=("imu", "p")))[0]
    assert "no field efc_aref_" in unsupported(free, replace(SPEC, fields=("efc_aref_",)))[0]
    assert "pictures" in unsupported(free, replace(SPEC, cameras=(Camera("free"),)))[0]


def test_yielding_springs_are_not_in_this_mujoco():
    """MJX would ignore them too: when this fails, add them to what it ignores."""
    assert not any("yield" in name for name in dir(mujoco.MjModel))


def test_the_table_of_tasks_and_physics_is_current():
    assert backends.PAGE.read_text() == backends.page()


def test_importing_it_prints_nothing():
    told = subprocess.run(
        [sys.executable, "-c", "import envs.physics.mjx"], capture_output=True, check=True
    )
    assert told.stdout == b""


def test_an_accelerator_alone_cannot_call_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_cpu(platform: str) -> None:
        raise RuntimeError(f"Unknown backend {platform}")

    monkeypatch.setattr(jax, "devices", no_cpu)
    why = r"are called by way of the CPU: JAX_PLATFORMS=\w+,cpu\."
    with pytest.raises(ValueError, match=why):
        envs.make("Hopper-v5", physics="native")
    with pytest.raises(ValueError, match=why):
        envs.from_gymnasium(lambda: gymnasium.make("Pendulum-v1"), num_envs=1)
