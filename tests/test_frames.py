"""Messages of actors and learners: whole as they were sent, and a word for why of anything else."""

import math
import random
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge.learn import frames
from rl.bridge.learn.frames import KINDS, RECORD, VERSION, Message

BOOT = bytes(range(16))
ONE_OF_EACH: list[Message] = [
    frames.Hello("arm-1", BOOT, bytes(8), {BOOT: 3, bytes(16): 0}, "hil-1f"),
    frames.Welcome({BOOT: 7, bytes(16): -1}),
    frames.data(BOOT, 5, [b"x", b"y" * 1000]),
    frames.Ack({BOOT: 7}),
    frames.Manifest(3, bytes(32), 1 << 20),
    frames.Pull(3, 65536),
    frames.Chunk(3, 65536, b"z" * 65536),
    frames.Refused("why \N{GREEK SMALL LETTER PI}"),
    frames.Ping(1.5),
    frames.Pong(1.5, -2.0, 1e300),
    frames.Stats({"episodes": 3, "return": 1.5, "task": "peg", "armed": True}),
    frames.Bye(),
    frames.Over("all is learned"),
]
WORDS = {"oversize", "format", "version", "kind", "fields", "crc"}


def packed(*words: Any) -> bytes:
    return msgpack.packb([*words])


def test_every_kind_comes_as_it_was_sent() -> None:
    assert [type(message) for message in ONE_OF_EACH] == [*KINDS]
    for message in ONE_OF_EACH:
        assert frames.decode(frames.encode(message)) == message
        assert frames.decode(memoryview(frames.encode(message))) == message


def test_what_is_largest_fits_and_what_is_larger_does_not() -> None:
    most = frames.data(BOOT, 0, [bytes(RECORD)])
    assert frames.decode(frames.encode(most)) == most
    assert frames.decode(frames.encode(frames.data(BOOT, 0, [bytes(RECORD + 1)]))) == "format"
    assert frames.decode(bytes(frames.FRAME + 1)) == "oversize"
    boots = {bytes([i]) * 16: i for i in range(frames.BOOTS)}
    hello = frames.Hello("a", BOOT, b"", boots, "r" * 64)
    assert frames.decode(frames.encode(hello)) == hello


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (b"", "format"), (b"\xc1", "format"), (b"\x91" * 2000, "format"), (b"\xc0", "format"),
        (packed(), "format"), (packed(VERSION), "format"), (packed("1", 1), "format"),
        (packed(VERSION, -1), "format"), (packed(True, 9), "format"), (packed(1.0, 9), "format"),
        (packed(VERSION, 9, 1.0) + b"\x01", "format"), (b"\xdd\xff\xff\xff\xff", "format"),
        (packed(VERSION, 9, msgpack.ExtType(1, b"x")), "format"),
        (packed(VERSION, 9, {1: 2}), "format"),
        (packed(VERSION, 9, msgpack.Timestamp(1)), "format"),
        (packed(VERSION + 1, 9, 1.0), "version"), (packed(0, "whatever"), "format"),
        (packed(VERSION, 13), "kind"), (packed(VERSION, 1 << 61), "kind"),
        (packed(VERSION, 8), "fields"), (packed(VERSION, 8, 1.0, 2.0), "fields"),
        (packed(VERSION, 8, 1), "fields"), (packed(VERSION, 8, math.nan), "fields"),
        (packed(VERSION, 8, math.inf), "fields"), (packed(VERSION, 1, {BOOT: -2}), "fields"),
        (packed(VERSION, 1, {BOOT: True}), "fields"), (packed(VERSION, 1, {BOOT[1:]: 2}), "fields"),
        (packed(VERSION, 1, {"a": 2}), "fields"), (packed(VERSION, 3, [BOOT]), "fields"),
        (packed(VERSION, 0, "Arm", BOOT, b"", {}, ""), "fields"),
        (packed(VERSION, 0, "../arm", BOOT, b"", {}, ""), "fields"),
        (packed(VERSION, 0, "arm\n", BOOT, b"", {}, ""), "fields"),
        (packed(VERSION, 0, "arm", BOOT, b"", {BOOT: -1}, ""), "fields"),
        (packed(VERSION, 0, "arm", BOOT, bytes(33), {}, ""), "fields"),
        (packed(VERSION, 0, "arm", BOOT, b"", {}, "r" * 65), "fields"),
        (packed(VERSION, 0, "arm", BOOT, b"", {}), "fields"),
        (packed(VERSION, 2, BOOT, 0, [], frames.crc(BOOT, 0, [])), "fields"),
        (packed(VERSION, 2, BOOT, 0, [b""], frames.crc(BOOT, 0, [b""])), "fields"),
        (packed(VERSION, 2, BOOT, 0, ["x"], 0), "fields"),
        (packed(VERSION, 2, BOOT, 0, [b"x"], 0), "crc"),
        (packed(VERSION, 4, 1, bytes(32), 1 << 40), "fields"),
        (packed(VERSION, 10, {"a": {"b": 1}}), "fields"),
        (packed(VERSION, 10, {"a": math.nan}), "fields"),
        (packed(VERSION, 10, {"a": "b" * 300}), "fields"),
        (packed(VERSION, 10, {b"a": 1}), "fields"),
    ],
)  # fmt: skip
def test_what_is_no_message_has_a_word(frame: bytes, why: str) -> None:
    assert frames.decode(frame) == why


def test_a_crc_says_which_records_they_are_and_where_each_ends() -> None:
    crc = frames.crc(BOOT, 1, [b"ab", b"c"])
    others = (BOOT, 2, [b"ab", b"c"]), (bytes(16), 1, [b"ab", b"c"]), (BOOT, 1, [b"a", b"bc"])
    assert crc not in [frames.crc(*other) for other in others]
    assert crc != frames.crc(BOOT, 1, [b"abc"])


@given(st.binary(max_size=400))
def test_no_bytes_raise(frame: bytes) -> None:
    found = frames.decode(frame)
    assert isinstance(found, KINDS) or found in WORDS


def test_damaged_frames_raise_nothing_and_damaged_records_are_never_taken() -> None:
    rng = random.Random(0)
    sent = [frames.encode(message) for message in ONE_OF_EACH]
    for _ in range(20_000):
        frame = bytearray(rng.choice(sent)[:2000])
        for _ in range(rng.randint(1, 4)):
            frame[rng.randrange(len(frame))] = rng.randrange(256)
        found = frames.decode(bytes(frame[: rng.choice([len(frame), rng.randrange(len(frame))])]))
        assert isinstance(found, KINDS) or found in WORDS
        assert not isinstance(found, frames.Data) or found == ONE_OF_EACH[2]
