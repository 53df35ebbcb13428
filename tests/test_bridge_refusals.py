"""A robot and a policy that are not for each other are told of it in words, and nothing moves."""

from dataclasses import replace
from pathlib import Path

import pytest

from rl import artefact
from rl.bridge import wire
from tests.test_bridge import bridge, ended
from tests.test_lockstep import PATH


def swapped(found: artefact.Artefact, what: str) -> artefact.Artefact:
    """The same artefact of a robot whose joints stand in another order, or are named otherwise."""
    spec = found.spec
    sensors, motors = list(spec.sensors), list(spec.actuators)
    if what == "order":
        motors[0], motors[3] = motors[3], motors[0]
    elif what == "sensor":
        sensors[5] = replace(sensors[5], name="elbow")
    elif what == "gain":
        motors[2] = replace(motors[2], kp=99.0)
    made = replace(spec, sensors=tuple(sensors), actuators=tuple(motors))
    return replace(found, spec=made)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("order", "The bridge has 'FL_hip' as its actuator 0, and not 'FR_hip'"),
        ("sensor", "The model has no sensor 'elbow'"),
        ("gain", "The bridge is of another spec: of its actuators the kp of FR_calf is 99.0"),
    ],
)
def test_another_robots_policy_is_refused(what: str, why: str, tmp_path: Path) -> None:
    other, address = tmp_path / "other.zip", wire.free_address()
    swapped(artefact.read(PATH), what).write(other)
    sim = bridge("sim", other if what == "sensor" else PATH, "--address", address)
    run = bridge("run", PATH if what == "sensor" else other, "--robot", address)
    code, said = ended(sim)
    assert ended(run)[0] == 1
    assert code == 1
    assert said.strip().splitlines()[-1].startswith("error: ")
    assert why in said
