"""What a plan of faults does to a robot, to datagrams, and what is said of an episode with one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import fault_flight
from benchmarks.fault_pilot import DOES, SAYS
from benchmarks.fault_plan import CASES, GOES, Case
from benchmarks.process import ROOT
from rl import artefact
from rl.bridge import messages, wire
from rl.bridge.messages import Operator, Plan
from rl.bridge.sim.body import KINDS, Hardware
from rl.bridge.sim.faults import BODY, FRAMES, LIES, Fault, Ills, Spoiler
from rl.bridge.sim.sim import Sim, sim
from rl.bridge.sim.simulator import Robot
from rl.bridge.wire import Command, State
from tests.rig import body, go2, of

PATH = ROOT / "benchmarks" / "policies" / "go2-joystick-flat" / "artefact-0.zip"
SINCE, UNTIL = 1.0, 2.0


def robot(hardware: Hardware = Hardware(), seed: int = 0) -> Robot:
    made = Robot(artefact.read(PATH), 500.0, hardware, seed)
    made.reset(*made.home())
    return made


def trot(made: Robot, ticks: int, pull: float = 0.3) -> list[dict[str, np.ndarray]]:
    """Targets that swing about its rest: what it said meanwhile."""
    said = []
    for t in range(ticks):
        targets = of("rest") + pull * np.sin(0.05 * t + np.arange(12))
        made.command(Command(t, targets, of("kp"), of("kd"), False, np.zeros(3)))
        made.step(1)
        said.append(made.readings())
    return said


def joints(said: dict[str, np.ndarray], what: str = "position") -> np.ndarray:
    return np.array([said[getattr(motor, what)][0] for motor in go2().actuators])


def test_a_body_that_is_as_its_model_moves_as_it() -> None:
    plain, full = robot(), robot()
    full.plain = False
    for one, other in zip(trot(plain, 200), trot(full, 200), strict=True):
        np.testing.assert_allclose(joints(other), joints(one), atol=1e-6)


def test_an_encoder_is_off_by_no_more_than_its_kind_is() -> None:
    kind = KINDS["worn"]
    worn = robot(kind, seed=3)
    most = kind.quantum / 2 + kind.bias + kind.backlash / 2 + 1e-6
    for _ in range(100):
        said = trot(worn, 1)[0]
        off = joints(said) - worn.data.qpos[worn.body.qpos]
        assert (np.abs(off) <= most).all()
        np.testing.assert_allclose(np.round(joints(said) / kind.quantum) * kind.quantum,
                                   joints(said), atol=1e-6)  # fmt: skip
    assert np.ptp(off) > kind.bias / 2  # each has its own


def test_a_motor_gives_no_more_than_its_speed_and_heat_leave_it() -> None:
    made = robot(Hardware(top=0.2, heats=4000.0, weak=0.1))
    heats = []
    for t in range(400):
        speeds = made.data.qvel[made.body.dofs].copy()
        trot(made, 1, pull=1.0 + 0.2 * t)
        force, top = made.data.actuator_force[made.servos], made.body.top
        left = np.clip((top - np.sign(force) * speeds) / (0.3 * top), 0, 1)
        assert (np.abs(force) <= of("torque") * left + 1e-6).all()
        heats.append(made.body.heat)
    assert heats[0] < 40 < 80 < max(heats) < 110


def test_a_seed_is_one_robot_and_another_seed_another() -> None:
    first, again, other = (trot(robot(KINDS["worn"], seed), 50)[-1] for seed in (1, 1, 2))
    np.testing.assert_array_equal(joints(first), joints(again))
    assert not np.array_equal(joints(first), joints(other))


@pytest.mark.parametrize("kind", BODY)
def test_a_body_has_what_befalls_it_while_it_does(kind: str) -> None:
    made, at = robot(), 4
    made.plain = False
    ills = Ills([Fault(kind, SINCE, UNTIL, 0.9, at)], made.body)
    moved, forces = {}, {}
    for name, now in (("before", 0.5), ("during", 1.5), ("after", 2.5)):
        ills.befall(now)
        trot(made, 30)
        ways = [joints(said)[at] for said in trot(made, 100)]
        moved[name] = np.ptp(ways)
        forces[name] = np.abs(made.data.actuator_force[made.servos]).max()
    if kind == "joint stuck":
        assert moved["during"] < 0.2 * moved["before"]
    elif kind == "motor limp":
        ills.befall(1.5)
        trot(made, 1)
        assert made.data.actuator_force[made.servos[at]] == 0
    else:
        assert forces["during"] <= 0.1 * of("torque").max() + 1e-6 < forces["before"]
    assert moved["after"] > 0.3 * moved["before"]


@pytest.mark.parametrize("kind", LIES)
def test_a_lie_changes_what_is_said_while_it_lasts(kind: str) -> None:
    ills = Ills([Fault(kind, SINCE, UNTIL, 0.5, 4)], robot().body)
    told = [State(100 + i, t, body(of("rest") + 0.1 * i, quat=(1, 0.1 * i, 0, 0)), False)
            for i, t in enumerate((0.5, 1.0, 1.5, 2.5))]  # fmt: skip
    said = [ills.said(state.time, state) for state in told]
    assert same(said[0], told[0])
    assert same(said[3], told[3])
    assert not same(said[2], told[2])
    position = go2().actuators[4].position
    true, lie = (x[2].readings[position][0] for x in (told, said))
    want = {"encoder frozen": told[1].readings[position][0], "encoder jumps": true + 0.5,
            "encoder flipped": -true, "encoder creeps": true + 0.25}  # fmt: skip
    if kind in want:
        assert lie == pytest.approx(want[kind], abs=1e-6)


def same(one: State, other: State) -> bool:
    equal = all(np.array_equal(one.readings[k], other.readings[k]) for k in one.readings)
    return equal and one._replace(readings={}) == other._replace(readings={})


def plan(first: int) -> bytes:
    targets = 0.01 * first + np.arange(12.0)[None]
    return wire.encode(messages.plan_message(go2(), Plan(first, targets), 0.0))


def spoilt(kind: str, size: float) -> list[list[bytes]]:
    """What is sent at each of 40 times, 0.05 s apart."""
    spoiler = Spoiler([Fault(kind, SINCE - 1e-3, UNTIL - 1e-3, size)], np.random.default_rng(0))
    return [spoiler.through(0.05 * t, plan(t)) for t in range(60)]


@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_spoilt_while_the_fault_lasts_alone(kind: str) -> None:
    sent = spoilt(kind, 2.0 if kind in ("flood", "of another question", "of the future") else 0.3)
    assert sent[:20] == [[plan(t)] for t in range(20)]
    assert sent[50:] == [[plan(t)] for t in range(50, 60)]
    assert sent[20:40] != [[plan(t)] for t in range(20, 40)]


@pytest.mark.parametrize("kind", ["flipped", "short", "long", "another version's"])
def test_no_message_comes_of_spoilt_frames(kind: str) -> None:
    bad = [x for row in spoilt(kind, 1.0)[20:40] for x in row]
    assert bad
    assert not any(wire.decode(x) for x in bad)


NUMBERS = {
    "says nan": lambda x: np.isnan(x).all(), "says inf": lambda x: np.isinf(x).all(),
    "huge": lambda x: (np.abs(x) > 1e29).all(), "one too few": lambda x: x.size == 11,
    "thrown": lambda x: x.size == 12 and np.isfinite(x).all(),
}  # fmt: skip


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_are_spoilt_and_the_frame_is_whole(kind: str) -> None:
    for row in spoilt(kind, 1.0)[20:40]:
        message = wire.decode(row[0])
        assert message is not None
        assert NUMBERS[kind](message.numbers)


def test_who_is_spoken_to_in_vain_still_hears_the_event() -> None:
    word = Operator(1, 2, 3, True, np.zeros(3), np.zeros(12))
    datagram = wire.encode(messages.operator_message(go2(), word, 0.0))
    spoiler = Spoiler([Fault("says nan", 0, 9)], np.random.default_rng(0))
    message = wire.decode(spoiler.through(1.0, datagram)[0])
    assert message is not None
    assert [*message.numbers[:2]] == [2, 3]
    assert np.isnan(message.numbers[2:]).all()


def test_old_frames_are_from_before_it_began() -> None:
    for row in spoilt("old alone", 1.0)[20:40]:
        assert wire.decode(row[0]).seq < 20


def test_late_frames_come_later() -> None:
    times = {wire.decode(x).seq: t for t, row in enumerate(spoilt("late", 0.1)) for x in row}
    assert [times[t] - t for t in range(20, 38)] == [2] * 18


def test_the_plan_knows_all_faults_and_nothing_else() -> None:
    known = {*BODY, *LIES, *FRAMES, *SAYS, *DOES}
    assert {case.kind for case in CASES} == known
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.long
def test_episodes_are_judged_by_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also against a plan that is wrong: what does not end as it says is told."""
    by_name = {case.name: case for case in CASES}
    names = "policy: says nan", "pilot: stop", "robot: motor failed", "robot: twice"
    cases: list[Case] = [by_name[name] for name in names]
    cases += [case._replace(ends=GOES) for case in cases[:3]]
    flown = fault_flight.fly(fault_flight.Plan(PATH, cases, 1.2, 250.0, 0))
    assert [x.late for x in flown] == [False] * 4 + [True] * 3, flown
    assert [bool(x.broken) for x in flown] == [False] * 4 + [True] * 3, flown
    assert [x.end for x in flown[1:4]] == ["fault", "fault", "armed"]
    assert {x.robot for x in flown} == {"go2-joystick-flat"}


def test_a_robot_with_faults_is_simulated_from_a_file(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "plan.json").write_text("[1]")
    with pytest.raises(ValueError, match="no plan of faults"):
        sim(Sim(PATH, address=wire.free_address(), faults=tmp_path / "plan.json", wait=0.1))
