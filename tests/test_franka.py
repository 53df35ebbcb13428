"""A Franka's driver: its structs, the flight that franky-sim answered to, and what it sets when.

The flight was recorded with `python -m tests.test_franka_sim tests/fixtures/franka-1.mcap.xz`: the
bridge, franky-control 2.0.0, and at the other end of its wire franky-sim 1.0.4.  The library itself
is stood in for where only the driver's own decisions are looked at.
"""

import lzma
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl import artefact
from rl.bridge import robots, states
from rl.bridge.drivers import franka_codec
from rl.bridge.drivers.franka_codec import Codec, Read
from rl.bridge.log import flight, replay
from rl.bridge.wire import Command
from tests.rig import go2

ROOT = Path(__file__).parents[1]
POLICIES = ROOT / "benchmarks" / "policies"
FOUND = artefact.read(POLICIES / "panda-reach" / "artefact-0.zip")
SPEC = FOUND.spec
CODEC = Codec(SPEC)
REST = np.array([motor.rest for motor in SPEC.actuators])
WELL = Read(
    5, 1.5, REST[:7], np.zeros(7), np.zeros(7), np.array([0.5, 0, 0.35, 0, 1, 0, 0]), 0.08, 0.0,
    0.08, 1.0, 0, franka_codec.IDLE, False, True,
)  # fmt: skip
numbers = st.floats(-10, 10)
sevens = st.lists(numbers, min_size=7, max_size=7).map(np.array)


@pytest.fixture(scope="module")
def flown(tmp_path_factory: pytest.TempPathFactory) -> flight.Flight:
    path = tmp_path_factory.mktemp("franka") / "a.mcap"
    path.write_bytes(
        lzma.decompress((Path(__file__).parent / "fixtures/franka-1.mcap.xz").read_bytes())
    )
    return flight.read(path)


def reads(found: flight.Flight) -> list[Read]:
    heard = [x.datagram for row in found.rows for x in row.heard if x.source == "robot"]
    return [x for x in map(franka_codec.unpack_read, heard) if x]


def model() -> tuple[mujoco.MjModel, mujoco.MjData]:
    made = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": FOUND.model})
    return made, mujoco.MjData(made)


def asked(targets: np.ndarray = REST, **more: Any) -> Command:
    gains = (np.array([getattr(motor, k) for motor in SPEC.actuators]) for k in ("kp", "kd"))
    return Command(7, targets, *gains, **({"damp": False, "asked": np.zeros(3)} | more))


@given(st.integers(0, 2**64 - 1), sevens, sevens, sevens, numbers, st.booleans())
def test_what_was_read_is_what_is_kept(
    seq: int, q: np.ndarray, dq: np.ndarray, flange: np.ndarray, width: float, flag: bool
) -> None:
    read = WELL._replace(seq=seq, q=q, dq=dq, flange=flange, width=width, broke=flag)
    got = franka_codec.unpack_read(franka_codec.pack_read(read))
    assert got is not None
    for mine, theirs in zip(read, got, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@given(st.binary(max_size=400))
def test_bytes_that_are_none_of_its_own_are_no_state(datagram: bytes) -> None:
    assert CODEC.state(datagram) is None
    whole = franka_codec.pack_read(WELL)
    assert CODEC.state(bytes([whole[0] ^ 1]) + whole[1:]) is None


def test_the_tool_is_where_the_model_has_it() -> None:
    made, data = model()
    rng = np.random.default_rng(0)
    for _ in range(20):
        data.qpos[:7] = rng.uniform(franka_codec.LOW, franka_codec.HIGH)
        mujoco.mj_forward(made, data)
        hand = data.body("hand")  # at the flange, but for an eighth of a turn
        turn, back = np.zeros(4), np.zeros(4)
        mujoco.mju_negQuat(back, np.array(franka_codec.TOOL_TURN))
        mujoco.mju_mulQuat(turn, hand.xquat, back)
        at, turn = franka_codec.tool(np.array([*hand.xpos, *turn]))
        np.testing.assert_allclose(at, data.sensor("tool_pos").data, atol=1e-9)
        np.testing.assert_allclose(turn, data.sensor("tool_quat").data, atol=1e-9)


def test_what_joints_have_besides_their_gains_is_the_models() -> None:
    made, _ = model()
    names = [made.joint(i).name for i in range(7)]
    assert tuple(names) == franka_codec.ARM
    np.testing.assert_array_equal(made.dof_damping[:7], franka_codec.DAMPING)
    low, high = made.jnt_range[:7].T
    assert (low < franka_codec.LOW).all()
    assert (high > franka_codec.HIGH).all()


@pytest.mark.parametrize("path", sorted(POLICIES.glob("panda-*/artefact-0.zip")), ids=str)
def test_it_stands_up_to_where_its_policy_starts(path: Path) -> None:
    found = artefact.read(path)
    made = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    rest = [motor.rest for motor in found.spec.actuators]
    np.testing.assert_allclose(rest[:7], made.key_qpos[0][:7], atol=1e-6)


def test_a_command_is_set_within_what_both_arms_can() -> None:
    told = franka_codec.unpack_set(CODEC.command(asked()))
    np.testing.assert_array_equal(told.targets, REST[:7])
    np.testing.assert_array_equal(told.stiffness, [1000, 1000, 750, 750, 300, 300, 300])
    np.testing.assert_array_equal(told.damping, [60, 60, 44, 44, 4, 4, 4])
    assert (told.width, told.force) == pytest.approx((0.08, 350 * 0.04))
    assert (told.damp, told.clear) == (False, False)
    far = franka_codec.unpack_set(CODEC.command(asked(REST + 9, damp=True, clear=True)))
    np.testing.assert_array_equal(far.targets, franka_codec.HIGH)
    assert (far.damp, far.clear) == (True, True)


def test_a_hand_that_stands_beside_where_it_was_told_is_there() -> None:
    def fingers(**what: float) -> list[float]:
        state = CODEC.state(franka_codec.pack_read(WELL._replace(**what)))
        assert state is not None
        return [float(state.readings[f"finger{i}_{x}"][0]) for i in (1, 2) for x in ("pos", "vel")]

    assert fingers(width=0.0784, speed=0.01) == pytest.approx([0.04, 0, 0.04, 0])
    assert fingers(width=0.04, speed=-0.1, told=0.0) == pytest.approx([0.02, -0.05] * 2)


@pytest.mark.parametrize(
    "what", [{"errors": 1 << 40}, {"mode": 4}, {"mode": 5}, {"broke": True}, {"hand": False}]
)
def test_what_is_wrong_with_it_is_a_motor_that_failed(what: dict[str, Any]) -> None:
    state = CODEC.state(franka_codec.pack_read(WELL._replace(**what)))
    assert state is not None
    assert state.failed
    well = CODEC.state(franka_codec.pack_read(WELL))
    assert well is not None
    assert not well.failed


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (go2(), "go2 moves FR_hip, .* a Franka arm has joint1, .* its hand finger1"),
        (artefact.read(POLICIES / "panda-pick-cube/artefact-0.zip").spec,
         "panda-pick-cube reads cube_pos, cube_quat, cube_linvel, cube_gyro, which no Franka"),
        (replace(SPEC, actuators=SPEC.actuators[:7]), "moves joint1, .*joint7; a Franka"),
    ],
)  # fmt: skip
def test_policies_that_need_what_it_has_not_are_refused(spec: Any, why: str) -> None:
    for refuses in (robots.check, robots.driver):
        with pytest.raises(ValueError, match=why):
            refuses(spec, "franka:192.0.2.1", "")


@pytest.mark.parametrize(
    ("robot", "sensors", "why"),
    [
        ("franka:192.0.2.1", "127.0.0.1:9880", "measures itself all that panda-reach reads"),
        ("127.0.0.1:9870", "127.0.0.1:9880", "--sensors is for a Franka"),
        ("127.0.0.1", "", "is no address"),
    ],
)
def test_what_nobody_needs_to_be_told_is_refused(robot: str, sensors: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        robots.check(SPEC, robot, sensors)


def test_without_the_library_it_is_said_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "franky", None)
    with pytest.raises(ValueError, match=r"pip install 'robotrl\[franka\]'"):
        robots.driver(SPEC, "franka:192.0.2.1", "").meet()


def test_the_flight_is_lived_through_again(flown: flight.Flight) -> None:
    codec = robots.codec(flown.about)
    told = replay.replay(flown, codec)
    assert (told.ticks, told.different) == (len(flown.rows), 0)
    row = next(row for row in flown.rows if row.state == states.ARMED)
    changed = [x._replace(told=x.told[:-1] + b"?") if x is row else x for x in flown.rows]
    assert replay.replay(flown._replace(rows=changed), codec).different == 1
    with pytest.raises(ValueError, match="speaks 'so101'"):
        robots.codec(replace(flown.about, codec="so101"))


def test_the_wires_own_kinematics_are_the_policys(flown: flight.Flight) -> None:
    made, data = model()
    still = [read for read in reads(flown) if np.abs(read.dq).max() < 0.02]
    assert len(still) > 30  # of others, that simulator says the pose of a step before
    for read in still:
        data.qpos[:7] = read.q
        mujoco.mj_forward(made, data)
        at, turn = franka_codec.tool(read.flange)
        np.testing.assert_allclose(at, data.sensor("tool_pos").data, atol=1e-4)
        np.testing.assert_allclose(turn, data.sensor("tool_quat").data, atol=1e-3)


def test_after_its_reflex_nothing_was_set_but_to_be_damped(flown: flight.Flight) -> None:
    found = [row.state for row in flown.rows]
    assert list(dict.fromkeys(found)) == [states.PASSIVE, states.READY, states.ARMED, states.FAULT]
    after = flown.rows[found.index(states.FAULT) :]
    assert all(franka_codec.unpack_set(row.told).damp for row in after)
    last = reads(flown)[-1]
    assert (last.mode, last.broke, last.errors.bit_count()) == (4, True, 1)
    assert all(read.success == 1.0 for read in reads(flown))
