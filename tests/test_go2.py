"""A Go2's wire: byte by byte as its makers' own program has it, and what is made of it.

tests/fixtures/go2-1.json was recorded from unitree_sdk2_python, of which we have no line: states
that it sent over DDS and what was in them, and commands of ours and what it read in them.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl import artefact
from rl.bridge import messages, states, wire
from rl.bridge.checks import Reason
from rl.bridge.drivers import go2 as driver
from rl.bridge.drivers import go2_wire as layout
from rl.bridge.drivers.go2 import Codec
from rl.bridge.drivers.go2_sim import Dog
from rl.bridge.drivers.go2_wire import LOW_CMD, LOW_STATE, MOTORS
from rl.bridge.limits import Limits
from rl.bridge.sim.simulator import Robot
from rl.bridge.wire import Command
from tests.rig import Rig, go2

ROOT = Path(__file__).parent
RECORD = json.loads((ROOT / "fixtures/go2-1.json").read_text())
WALKER = ROOT.parent / "benchmarks/policies/go2-joystick-flat/artefact-0.zip"
TURNED = replace(go2(), actuators=go2().actuators[::-1], sensors=go2().sensors[::-1])
EACH = pytest.mark.parametrize("spec", [go2(), TURNED], ids=["in order", "the other way round"])


def said(**fields: Any) -> bytes:
    """A state; fields of its motors go to the first twelve."""
    state = np.zeros(1, LOW_STATE)
    state["motor_state"]["temperature"] = 40
    state["imu_state"]["quaternion"] = 1, 0, 0, 0
    for name, value in fields.items():
        if name in (LOW_STATE.names or ()):
            state[name] = value
        else:
            state["motor_state"][name][0, :12] = value
    return layout.signed(state.tobytes()[:-4])


def told(datagram: bytes) -> Any:
    return np.frombuffer(datagram, LOW_CMD)[0]


def bitwise(body: bytes) -> int:
    """The checksum, bit by bit from the highest of each word."""
    crc = 0xFFFFFFFF
    for word in np.frombuffer(body, "<u4"):
        for bit in range(31, -1, -1):
            crc = (crc << 1 ^ (0x04C11DB7 if (crc >> 31) else 0)) & 0xFFFFFFFF
            crc ^= 0x04C11DB7 * (int(word) >> bit & 1)
    return crc


@given(st.binary(min_size=4, max_size=80).map(lambda x: x[: len(x) // 4 * 4]))
def test_the_checksum_is_the_one_bit_by_bit(body: bytes) -> None:
    assert layout.crc(body) == bitwise(body)


@pytest.mark.parametrize("record", RECORD["states"], ids=["before the wrap", "after it"])
@EACH
def test_a_state_of_the_makers_is_read(record: Any, spec: Any) -> None:
    message = bytes.fromhex(record["cdr"])
    datagram = layout.from_cdr(message)
    assert layout.to_cdr(datagram) == message
    assert int.from_bytes(datagram[-4:], "little") == layout.crc(datagram[:-4]) == record["crc"]
    state = Codec(spec).state(datagram)
    assert state is not None
    for i, name in enumerate(MOTORS):
        assert state.readings[f"{name}_pos"] == np.float32(record["q"][i])
        assert state.readings[f"{name}_vel"] == np.float32(record["dq"][i])
    np.testing.assert_array_equal(state.readings["gyro"], np.float32(record["gyroscope"]))
    np.testing.assert_array_equal(state.readings["orientation"], np.float32(record["quaternion"]))
    assert (state.heat, state.failed) == (max(record["temperature"][:12]), False)
    whole = np.frombuffer(datagram, LOW_STATE)[0]
    assert (whole["tick"], whole["bms_state"]["soc"]) == (record["tick"], record["soc"])
    assert whole["foot_force"].tolist() == record["foot_force"]


@pytest.mark.parametrize("record", RECORD["commands"], ids=["damped", "driven"])
@EACH
def test_the_makers_read_in_a_command_what_we_wrote(record: Any, spec: Any) -> None:
    order = [[motor.name for motor in go2().actuators].index(m.name) for m in spec.actuators]
    numbers = [np.array(record[name])[order] for name in ("targets", "kp", "kd")]
    datagram = Codec(spec).command(Command(0, *numbers, record["damp"], np.zeros(3)))
    assert layout.to_cdr(datagram) == bytes.fromhex(record["cdr"])
    assert layout.from_cdr(bytes.fromhex(record["cdr"])) == datagram
    read = record["read"]
    assert (read["head"], read["level"], read["mode"]) == ([0xFE, 0xEF], 0xFF, [1] * 20)
    driven = np.float32([*np.array(record["targets"]), *[layout.POS_STOP] * 8])
    stopped = np.full(20, np.float32(layout.POS_STOP))
    np.testing.assert_array_equal(np.float32(read["q"]), stopped if record["damp"] else driven)
    gains = np.zeros(12) if record["damp"] else np.array(record["kp"])
    np.testing.assert_array_equal(np.float32(read["kp"]), np.float32([*gains, *[0] * 8]))
    np.testing.assert_array_equal(np.float32(read["kd"]), np.float32([*record["kd"], *[0] * 8]))
    assert read["dq"] == [0] * 12 + [layout.VEL_STOP] * 8
    assert read["crc"] == layout.crc(datagram[:-4])


@given(st.integers(0, 1179), st.integers(1, 255))
def test_what_is_damaged_short_or_foreign_is_nothing(at: int, flip: int) -> None:
    datagram, codec = said(tick=7), Codec(go2())
    assert codec.state(datagram[:at] + bytes([datagram[at] ^ flip]) + datagram[at + 1 :]) is None
    for other in (b"", datagram[:at], datagram + b"\0", wire.encode(wire.hello(go2()))):
        assert codec.state(other) is None
    assert codec.state(datagram) is not None
    assert layout.from_cdr(layout.to_cdr(datagram)[:-1]) == b""
    assert layout.from_cdr(b"\x00\x00" + layout.to_cdr(datagram)[2:]) == b""


def test_a_checksum_that_nobody_filled_in_is_none() -> None:
    assert Codec(go2()).state(said(tick=7)[:-4] + bytes(4)) is not None


def test_states_are_counted_by_the_robots_clock() -> None:
    codec, found = Codec(go2()), []
    for tick in (2**32 - 4, 2**32 - 2, 2**32 - 2, 0, 3, 4, 10, 8, 12, 5_000, 20, 22):
        state = codec.state(said(tick=tick))
        assert state is not None
        found.append((state.seq, round(state.time * 1e3)))
    assert found == [
        (1, 0), (2, 2), (2, 2), (3, 4), (4, 7), (5, 8),  # a wrap, one twice, one a ms late
        (8, 14), (8, 14), (9, 16), (2503, 5004),  # two lost, one old, many lost
        (2504, 5004), (2505, 5006),  # switched on anew
    ]  # fmt: skip


def test_the_hottest_motor_counts_and_those_that_are_not_there_do_not() -> None:
    state = Codec(go2()).state(said(temperature=[*range(50, 61), 93]))
    assert state is not None
    assert state.heat == 93
    codec = Codec(go2())
    heats = [codec.state(said(tick=2, temperature=30))]
    assert heats[0] is not None
    assert heats[0].heat == 30


def test_a_motor_that_does_not_answer_the_robot_has_failed() -> None:
    codec, failed = Codec(go2()), []
    for i in range(200):
        lost = np.zeros(12, int)
        lost[4] = i // 60 + max(i - 100, 0)  # one now and then, and then each time
        state = codec.state(said(tick=2 * i, lost=lost))
        assert state is not None
        failed.append(state.failed)
    assert not any(failed[:105])
    assert all(failed[107:])


def test_a_robot_that_somebody_else_commands_has_failed_for_a_second() -> None:
    codec, failed = Codec(go2()), []
    for i in range(700):
        if i == 100:
            assert codec.state(driver.blank()) is None
        state = codec.state(said(tick=2 * i))
        assert state is not None
        failed.append(state.failed)
    assert failed == [100 <= i < 599 for i in range(700)]


def test_its_remote_stops_it() -> None:
    """With L2 (bit 5 of byte 2) and B (bit 1 of byte 3) alone."""
    for two, three, stops in ((0x20, 0x02, True), (0xFF, 0xFF, True), (0x20, 0xFD, False),
                              (0xDF, 0x02, False), (0, 0, False)):  # fmt: skip
        state = Codec(go2()).state(said(wireless_remote=[0, 0, two, three, *[0] * 36]))
        assert state is not None
        assert state.failed == stops


def test_a_policy_for_another_robot_is_refused() -> None:
    more = (*go2().sensors, replace(go2().sensors[-1], name="linvel", size=3))
    fewer = go2().actuators[:-1]
    for spec, why in (
        (replace(go2(), name="go1"), "one for go1"),
        (replace(go2(), sensors=more), "measures no 'linvel'"),
        (replace(go2(), actuators=fewer), "has the motors FR_hip"),
    ):
        with pytest.raises(ValueError, match=why):
            Codec(spec)


class Walk:
    """A core, a policy and a simulated Go2, tick by tick: all it takes but for clocks and wires."""

    def __init__(self) -> None:
        found = artefact.read(WALKER)
        self.policy = artefact.deploy(found, "numpy")
        self.rig = Rig(Limits(), 10, spec=found.spec)
        self.rig.core.codec = self.rig.core.ears.codec = Codec(found.spec)
        self.dog, self.now = Dog(Robot(found, layout.HZ)), 0.0

    def tick(self, event: str = "", foreign: bytes = b"") -> Any:
        rig, core = self.rig, self.rig.core
        rig.number += 1
        core.begin(rig.number * core.dt, 0.0)
        for datagram in (foreign, self.dog.state()):
            core.hear("robot", datagram)
        rig.operator(event, command=np.array([0.5, 0.0, 0.0]))
        if ask := messages.ask_of(rig.spec, wire.decode(core.sense())):
            if ask.reset:
                self.policy.reset()
            rig.policy(self.policy.step(ask.readings, ask.command)[None], ask.period)
        answer = core.act()
        self.dog.obey(answer.datagram)
        self.dog.step()
        return answer

    def walk(self) -> None:
        """To where it has walked for 3 s."""
        self.tick()
        self.tick(states.STAND)
        for _ in range(1800):
            self.tick()
        self.tick(states.ARM)
        for _ in range(1500):
            self.tick()


def test_a_simulated_go2_stands_up_and_walks_on_its_own_wire() -> None:
    walk = Walk()
    first = told(walk.tick().datagram)["motor_cmd"]
    assert (first["q"] == np.float32(layout.POS_STOP)).all()  # damped
    assert (first["kp"] == 0).all()
    assert first["kd"].tolist() == [Limits().damping] * 12 + [0] * 8
    walk.walk()
    assert walk.rig.core.state == states.ARMED, (walk.rig.core.refused, walk.rig.core.why)
    forward, _, up = walk.dog.data.qpos[:3]
    assert forward > 0.5
    assert up > 0.25
    assert walk.rig.core.ears.counts["robot: old"] == 0
    answer = walk.tick(foreign=driver.blank())  # somebody else
    assert (answer.state, answer.mask & Reason.MOTOR) == (states.FAULT, Reason.MOTOR)
    assert (told(answer.datagram)["motor_cmd"]["kp"] == 0).all()
