"""Datagrams: what was sent is what is heard, and what is not ours is not heard at all."""

import json
import struct
import zlib
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rl.bridge import wire
from rl.bridge.greeting import check_hello
from rl.bridge.wire import BYE, COMMAND, HELLO, STATE, TOKEN, Command, Message, State
from rl.spec import Actuator, Channel, Sensor, Spec, from_facts

MOTORS = tuple(
    Actuator(name, "rad", -1, 1, 0, 30, 1, 5, 20, f"{name}_pos", "") for name in ("left", "right")
)
SENSORS = Sensor("left_pos", 1, "rad", "left"), Sensor("gyro", 3, "rad/s", "imu")
SPEC = Spec("arm", SENSORS, MOTORS, (Channel("haste", "1", -1, 1),), 0.02, 0.002, 60.0)
NOTHING = np.zeros(0, "<f4")


def messages(kinds: tuple[int, ...] = (STATE, COMMAND, BYE)) -> st.SearchStrategy[Message]:
    numbers = arrays("<f4", st.integers(0, 60), elements=st.floats(width=32))
    return st.builds(
        Message, st.sampled_from(kinds), st.integers(0, 255), st.binary(min_size=8, max_size=8),
        st.integers(0, 2**64 - 1), st.floats(allow_nan=False), numbers,
    )  # fmt: skip


def sealed(body: bytes) -> bytes:
    return body + struct.pack("<I", zlib.crc32(body))


def command(**fields: Any) -> Command:
    blank = Command(7, np.zeros(2), np.full(2, 30.0), np.ones(2), False, np.zeros(1))
    return blank._replace(**fields)


def heard(sent: Command, spec: Spec = SPEC) -> Command | None:
    message = wire.decode(wire.encode(wire.command_message(spec, sent, 0.5)))
    assert message is not None
    return wire.command_of(spec, message)


@given(messages())
def test_a_message_arrives_as_it_was(message: Message) -> None:
    got = wire.decode(wire.encode(message))
    assert got is not None
    assert got[:5] == message[:5]
    assert got.numbers.tobytes() == message.numbers.tobytes()


@given(messages((HELLO,)), st.text())
def test_a_greeting_arrives_as_it_was(message: Message, text: str) -> None:
    got = wire.decode(wire.encode(message._replace(numbers=NOTHING, text=text)))
    assert got is not None
    assert (got[:5], got.text, got.numbers.size) == (message[:5], text, 0)


@given(arrays("<f4", 4, elements=st.floats(width=32)), st.booleans(), st.booleans())
def test_a_state_arrives_as_it_was(numbers: np.ndarray, reset: bool, failed: bool) -> None:
    """Whatever it measured, NaN too: that is for the core to judge."""
    readings = {"left_pos": numbers[:1], "gyro": numbers[1:]}
    state = State(9, 1.25, readings, reset, heat=61.5, failed=failed)
    message = wire.decode(wire.encode(wire.state_message(SPEC, state)))
    got = message and wire.state_of(SPEC, message)
    assert got is not None
    assert (got.seq, got.time, got.reset) == (9, 1.25, reset)
    assert (got.waits, got.heat, got.failed) == (False, 61.5, failed)
    assert got.readings.keys() == state.readings.keys()
    for name, x in state.readings.items():
        np.testing.assert_array_equal(got.readings[name], x)


@given(arrays("<f4", 7, elements=st.floats(-1e9, 1e9, width=32)), st.booleans())
def test_a_command_arrives_as_it_was(numbers: np.ndarray, damp: bool) -> None:
    sent = command(targets=numbers[:2], kp=numbers[2:4], kd=numbers[4:6], damp=damp,
                   asked=numbers[6:])  # fmt: skip
    got = heard(sent)
    assert got is not None
    assert (got.seq, got.damp) == (7, damp)
    for name in ("targets", "kp", "kd", "asked"):
        np.testing.assert_array_equal(getattr(got, name), getattr(sent, name))


@pytest.mark.parametrize("field", ["targets", "kp", "kd", "asked"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_command_with_what_is_no_number_is_not_heard(field: str, bad: float) -> None:
    assert heard(command()) is not None
    numbers = getattr(command(), field).copy()
    numbers[-1] = bad
    assert heard(command(**{field: numbers})) is None


@given(messages((HELLO, STATE, COMMAND, BYE)), st.data())
def test_a_damaged_datagram_is_not_heard(message: Message, data: st.DataObject) -> None:
    whole = wire.encode(message._replace(text="word"))
    at = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    assert wire.decode(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]) is None
    assert wire.decode(whole[:at]) is None
    assert wire.decode(whole + whole[at:]) is None


def test_every_byte_of_a_command_counts() -> None:
    whole = wire.encode(wire.command_message(SPEC, command(), 0.0))
    for at in range(len(whole)):
        assert wire.decode(whole[:at]) is None
        for bit in range(8):
            damaged = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            assert wire.decode(damaged) is None


def head(magic: bytes = wire.MAGIC, version: int = wire.VERSION, kind: int = COMMAND) -> bytes:
    return wire.HEAD.pack(magic, version, kind, 0, SPEC.hash, 7, 0.0)


def test_another_protocol_is_not_heard() -> None:
    """Though its checksum is right."""
    assert wire.decode(sealed(head())) is not None
    for other in (head(magic=b"rrla"), head(version=1), head(version=3), head(kind=9)):
        assert wire.decode(sealed(other)) is None
    assert wire.decode(sealed(head() + b"123")) is None  # no whole number
    assert wire.decode(sealed(head() + bytes(wire.MOST))) is None


def test_a_message_of_another_spec_or_kind_is_not_taken() -> None:
    made = wire.command_message(SPEC, command(), 0.0)
    assert wire.command_of(SPEC, made) is not None
    assert wire.command_of(replace(SPEC, control_dt=0.01), made) is None
    assert wire.command_of(SPEC, made._replace(numbers=made.numbers[:-1])) is None
    assert wire.command_of(SPEC, made._replace(kind=STATE)) is None
    measured = {sensor.name: np.zeros(sensor.size, "<f4") for sensor in SENSORS}
    state = wire.state_message(SPEC, State(1, 0.0, measured, reset=False))
    assert wire.state_of(SPEC, state) is not None
    assert wire.state_of(replace(SPEC, name="leg"), state) is None
    assert wire.state_of(SPEC, state._replace(numbers=np.zeros(6, "<f4"))) is None
    assert wire.state_of(SPEC, state._replace(kind=COMMAND)) is None


CHANGES = [
    {"name": "leg"}, {"control_dt": 0.01}, {"physics_dt": 0.001}, {"max_tilt": 90.0},
    {"sensors": SENSORS[::-1]},
    {"actuators": MOTORS[::-1]}, {"command": ()}, {"actuators": (MOTORS[0],)},
    {"actuators": (MOTORS[0], replace(MOTORS[1], kp=31))},
    {"sensors": (SENSORS[0], replace(SENSORS[1], frame="trunk"))},
]  # fmt: skip


def test_whatever_changes_in_a_spec_changes_its_hash() -> None:
    others = [replace(SPEC, **change) for change in CHANGES]
    assert len({spec.hash for spec in (SPEC, *others)}) == 1 + len(CHANGES)
    again = from_facts(json.loads(json.dumps(asdict(SPEC))))
    assert (again, again.hash, len(again.hash)) == (SPEC, SPEC.hash, 8)


@given(st.binary(max_size=200))
def test_noise_is_not_heard(noise: bytes) -> None:
    assert wire.decode(noise) is None


@given(st.binary(min_size=wire.HEAD.size - 6, max_size=200), st.integers(0, 255))
def test_noise_in_our_envelope_does_no_harm(noise: bytes, kind: int) -> None:
    """Whatever is behind a right beginning and a right checksum."""
    message = wire.decode(sealed(wire.MAGIC + bytes([wire.VERSION, kind]) + noise))
    if message is not None:
        assert kind <= TOKEN
        assert wire.command_of(SPEC, message) is None
        assert wire.state_of(SPEC, message) is None


GREETINGS = {
    b"": "cannot be read", b"[]": "cannot be read", b"{}": "cannot be read", b"7": "cannot be read",
    b"[" * 50_000: "cannot be read", b'{"sensors": 1, "actuators": []}': "cannot be read",
    b'{"sensors": [{"name": 1}], "actuators": []}': "is named None, and not",
}  # fmt: skip


@pytest.mark.parametrize("text", GREETINGS, ids=lambda text: text[:30].decode())
def test_a_greeting_that_cannot_be_understood_is_refused_in_words(text: bytes) -> None:
    message = wire.decode(
        sealed(wire.HEAD.pack(wire.MAGIC, wire.VERSION, HELLO, 0, bytes(8), 0, 0) + text)
    )
    assert message is not None
    with pytest.raises(ValueError, match=GREETINGS[text]):
        check_hello(SPEC, message, "The robot")


def test_a_greeting_that_is_no_text_is_not_heard() -> None:
    for text in (b"\xff", b"\xc3(", b'{"name": "\x80"}'):
        assert wire.decode(sealed(head(kind=HELLO) + text)) is None


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
def test_another_robots_greeting_names_the_difference(change: dict[str, Any]) -> None:
    message = wire.decode(wire.encode(wire.hello(replace(SPEC, **change))))
    assert message is not None
    check_hello(replace(SPEC, **change), message, "The robot")
    what = next(iter(change)).removesuffix("s")
    with pytest.raises(ValueError, match=rf"^The robot .*{what}"):
        check_hello(SPEC, message, "The robot")
