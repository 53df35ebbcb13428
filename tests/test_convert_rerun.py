"""A recording has the numbers of its flight, and draws the robot where its sensors say it was."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest

from rl import artefact
from rl.bridge import robots, states, wire
from rl.bridge.log import convert, flight, moments, rerun_out
from rl.bridge.log.convert import Convert
from rl.bridge.log.poses import Body
from rl.bridge.sim.simulator import Robot
from tests import flights
from tests.flights import Flown, eventful
from tests.rig import go2

POLICIES = Path(__file__).parent.parent / "benchmarks/policies"


@pytest.fixture(scope="module")
def rig() -> Flown:
    return eventful()


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory, rig: Flown) -> Path:
    return flights.write(tmp_path_factory.mktemp("flight") / "a.mcap", rig)


def moved(name: str) -> tuple[artefact.Artefact, Robot]:
    """A simulated robot that has been moved about."""
    found = artefact.read(POLICIES / name / "artefact-0.zip")
    robot, rng = Robot(found, 500.0), np.random.default_rng(0)
    robot.reset(*robot.home())
    for _ in range(50):
        robot.data.ctrl[robot.servos] += rng.normal(0, 0.02, len(robot.servos))
        robot.step(10)
    return found, robot


@pytest.mark.parametrize("name", ["panda-push-t", "panda-pick-cube"])
def test_an_arm_and_its_things_are_where_they_were(name: str) -> None:
    found, robot = moved(name)
    body = Body(found)
    pose = body.pose(robot.readings())
    assert body.known.all()
    np.testing.assert_allclose(pose.position, robot.data.xpos, atol=1e-6)
    same = np.abs((pose.quat * robot.data.xquat).sum(1))  # a quaternion and its negative are one
    np.testing.assert_allclose(same, 1, atol=1e-6)


def test_a_walker_stands_on_the_ground_as_it_was_turned() -> None:
    found, robot = moved("go2-joystick-flat")
    robot.data.qpos[3:7] = 0.8, 0.1, -0.2, 0.5
    mujoco.mj_forward(robot.model, robot.data)
    body = Body(found)
    pose, real = body.pose(robot.readings()), robot.data
    np.testing.assert_allclose(np.abs((pose.quat * real.xquat).sum(1)), 1, atol=1e-6)
    off = pose.position[1:] - real.xpos[1:]  # nobody measured where it was
    np.testing.assert_allclose(off - off[0], 0, atol=1e-6)
    np.testing.assert_allclose(pose.position[1, :2], 0, atol=1e-9)
    balls = [g for g in range(robot.model.ngeom) if robot.model.geom_bodyid[g]]
    low = [real.geom_xpos[g, 2] - robot.model.geom_rbound[g] for g in balls]
    assert off[0, 2] <= -min(low) + 1e-6
    assert abs(lowest(robot) + off[0, 2]) < 1e-6


def lowest(robot: Robot) -> float:
    """m, of the corners of the boxes around its geoms."""
    model, data, found = robot.model, robot.data, []
    for geom in np.flatnonzero(model.geom_bodyid):
        centre, half = np.split(model.geom_aabb[geom], 2)
        corners = centre + half * np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T
        turn = data.geom_xmat[geom].reshape(3, 3)
        found.append((data.geom_xpos[geom] + corners @ turn.T)[:, 2].min())
    return min(found)


def test_a_thing_that_nobody_measures_is_not_drawn() -> None:
    found, _ = moved("panda-pick-cube")
    sensors = tuple(s for s in found.spec.sensors if not s.name.startswith("cube"))
    body = Body(replace(found, spec=replace(found.spec, sensors=sensors)))
    names = [body.model.body(i).name for i in np.flatnonzero(~body.known)]
    assert names == ["cube"]


def test_series_are_the_log_s(log: Path, rig: Flown) -> None:
    found = flight.read(log)
    codec = robots.codec(found.about)
    made = rerun_out.series(go2(), [*moments.moments(found.about.setup, codec, found.rows)])
    said = [[x.datagram for x in row.heard if x.source == "robot"][-1] for row in rig.rows]
    seen = np.stack([wire.decode(x).numbers for x in said])
    for i, motor in enumerate(go2().actuators):
        joint = f"joints/{motor.name}"
        np.testing.assert_array_equal(made[f"{joint}/measured"][1], seen[:, i])
        for stage, name in enumerate(("after_position", "after_pace", "told")):
            ticks, numbers = made[f"{joint}/{name}"]
            want = [(t, row.stages[stage, i]) for t, row in enumerate(rig.rows) if row.stages.size]
            assert [*zip(ticks.tolist(), numbers.tolist(), strict=True)] == want
        moving = [t for t, row in enumerate(rig.rows) if row.state in states.MOVING]
        assert made[f"{joint}/wished"][0].tolist() == moving
    np.testing.assert_array_equal(made["sensors/orientation/1"][1], seen[:, 28])
    assert made["policy/answered_ms"][1].tolist() == [1.0] * 36


def test_words_are_told_where_they_change(log: Path, rig: Flown) -> None:
    found = flight.read(log)
    codec = robots.codec(found.about)
    told = rerun_out.texts([*moments.moments(found.about.setup, codec, found.rows)])
    assert told["pilot"][1] == ["stand", "arm", "take", "give", "wait", "stand", "arm"]
    ticks, words = told["state"]
    assert [rig.rows[t].state for t in ticks] == words
    assert (words[0], words[-1], len(words)) == ("passive", "fault", 9)
    assert told["reasons"][1] == ["nothing", "it leans too far"]


def test_a_recording_is_read_by_rerun_as_it_was_written(log: Path, tmp_path: Path) -> None:
    pytest.importorskip("rerun")
    from rerun.chunk import RrdReader  # pyright: ignore[reportMissingImports]

    robot = artefact.read(POLICIES / "go2-joystick-flat/artefact-0.zip")
    found = flight.read(log)
    rerun_out.write(path := tmp_path / "a.rrd", found, robot)
    assert {x.name for x in tmp_path.iterdir()} == {"a.rrd"}
    read: dict[str, dict[str, Any]] = {}
    for chunk in RrdReader(path).stream():
        batch = chunk.to_record_batch()
        told = read.setdefault(str(chunk.entity_path).lstrip("/"), {})
        for name in batch.schema.names:
            told[name] = told.get(name, []) + batch.column(name).to_pylist()
    lived = [*moments.moments(found.about.setup, robots.codec(found.about), found.rows)]
    for entity, (ticks, numbers) in rerun_out.series(go2(), lived).items():
        assert read[entity]["tick"] == ticks.tolist()
        assert np.ravel(read[entity]["Scalars:scalars"]).tolist() == numbers.tolist()
    bodies = {name.split("/")[1] for name in read if name.startswith("robot/")}
    names = [Body(robot).model.body(i).name for i in range(14)]
    assert bodies == {*names}
    quats = np.array(read[f"robot/{names[1]}"]["Transform3D:quaternion"])
    np.testing.assert_allclose(np.abs(quats[0].ravel()), [0, 0, 0, 1], atol=1e-6)


def test_without_rerun_it_says_what_is_needed(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "rerun", None)
    with pytest.raises(ValueError, match="pip install 'robotrl\\[rerun\\]'"):
        convert.convert(Convert((log,), tmp_path / "a.rrd"))


def test_what_has_no_recording_is_refused(log: Path, tmp_path: Path) -> None:
    arm = POLICIES / "panda-reach/artefact-0.zip"
    for args, why in (
        (Convert((log, log), tmp_path / "a.rrd"), "of one flight"),
        (Convert((log,), tmp_path / "a.rrd", artefact=arm), "is not of the robot of"),
        (Convert((log,), tmp_path / "a.rrd", artefact=log), "is no good artefact"),
    ):
        with pytest.raises(ValueError, match=why):
            convert.convert(args)
    assert not any(tmp_path.iterdir())
