"""Frames of a policy server: numbers come through them as they are, and damage never does."""

import contextlib
import json
from dataclasses import replace
from typing import Any

import msgpack
import numpy as np
import pytest

from rl import artefact
from rl.bridge.serve import frames
from rl.bridge.serve.facts import check, facts
from rl.bridge.serve.server import infer
from tests.serving import PATH, decoded, encoded, golden, packed

SHAPES = (), (0,), (3,), (2, 3), (1, 0, 2)


@pytest.mark.parametrize("code", "?bBhHiIqQefd")
@pytest.mark.parametrize("shape", SHAPES)
def test_arrays_come_through_either_way(code: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(code)
    for got in (
        frames.unpack(packed({"x": x}))["x"],
        msgpack.unpackb(frames.pack({"x": x}), object_hook=decoded)["x"],
    ):
        assert (got.dtype, got.shape) == (x.dtype, x.shape)
        np.testing.assert_array_equal(got, x)


def test_a_lone_number_and_what_is_none_of_numpys_come_through() -> None:
    for x in (np.float32(0.1), np.int8(-3), np.bool_(True)):
        got = frames.unpack(packed(x))
        assert (type(got), got) == (type(x), x)
    said = {"a": [1, 2.5, None, True, "b"], "c": {"d": b"e"}}
    assert frames.unpack(frames.pack(said)) == said


def test_rows_that_lie_apart_are_sent_in_order() -> None:
    x = np.arange(12.0).reshape(3, 4)[:, ::2].T
    np.testing.assert_array_equal(frames.unpack(frames.pack(x)), x)


@pytest.mark.parametrize("change", [
    {b"dtype": "|O"}, {b"dtype": ">f4"}, {b"dtype": "<c8"}, {b"dtype": "V4"}, {b"dtype": "<U1"},
    {b"dtype": b"<f4"}, {b"dtype": None}, {b"dtype": ["<f4"]}, {b"dtype": "<M8[s]"},
    {b"shape": [4]}, {b"shape": [2]}, {b"shape": [-3]}, {b"shape": [-1, -3]}, {b"shape": 3},
    {b"shape": ["3"]}, {b"shape": [True, 3]}, {b"shape": None}, {b"shape": [0, 2**64 - 1]},
    {b"shape": [2**63, 2**63]}, {b"shape": [1] * 100 + [3]}, {b"data": "123"}, {b"data": None},
    {b"data": bytes(11)}, {b"data": bytes(13)}, {b"__npgeneric__": True, b"shape": None},
])  # fmt: skip
def test_an_array_that_is_none_is_refused(change: dict[bytes, Any]) -> None:
    said = encoded(np.zeros(3, "<f4")) | change
    with pytest.raises(ValueError, match="cannot be read"):
        frames.unpack(msgpack.packb({"x": said}))


@pytest.mark.parametrize("data", [2.5, 300, "1", None, [1]])
def test_a_lone_number_that_is_none_is_refused(data: Any) -> None:
    said = encoded(np.int8(3)) | {b"data": data}
    if data == 2.5:
        assert frames.unpack(msgpack.packb(said)) == 2  # as numpy has it
        return
    with pytest.raises(ValueError, match="cannot be read"):
        frames.unpack(msgpack.packb(said))


@pytest.mark.parametrize("frame", [
    b"", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdd\x00\x00\xff\xff" * 1000,
    b"\x91" * 5000, b"\xd4\x00\x00", b"\xc7\xff\x05", b"\xd6\xff\x00\x00\x00\x00", b"\x00\x00",
    b"\x81\x91\x00\x00", b"\x81\x01\x02", b"\xa1\xff", b"text" * 9,
], ids=repr)  # fmt: skip
def test_bytes_that_are_no_message_are_refused(frame: bytes) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        frames.unpack(frame)


def test_two_thousand_frames_of_anything_are_answered_or_refused() -> None:
    """Noise, and observations that were damaged, cut short or put together from others."""
    found, rng = artefact.read(PATH), np.random.default_rng(0)
    policy, answered = artefact.deploy(found, "numpy"), 0
    whole = [packed(golden(found, t, reset=True)) for t in range(16)]
    for i in range(2000):
        frame = bytearray(whole[i % 16] if i % 4 else rng.bytes(rng.integers(400)))
        for _ in range(rng.integers(1, 8) * bool(i % 4)):
            frame[rng.integers(len(frame))] = rng.integers(256)
        cut = rng.integers(len(frame) + 1)
        frame = {2: frame[:cut], 3: frame[:cut] + whole[0][cut:]}.get(i % 5, frame)
        with contextlib.suppress(ValueError):
            answered += infer(policy, bytes(frame))["actions"].shape == (1, 12)
    assert 50 < answered < 1500
    again = infer(policy, whole[0])["actions"]
    np.testing.assert_allclose(again[0], found.golden.targets[0], atol=artefact.TOLERANCE)


def test_a_server_of_another_policy_is_told_of_in_words() -> None:
    found = artefact.read(PATH)
    ours = json.loads(json.dumps(facts(found, "jax")))
    check(found, ours, "ws://a:1")
    slow = replace(found, spec=replace(found.spec, control_dt=0.025))
    for theirs, why in (
        ([], "What serves at ws://a:1 is not robotrl, or of another version."),
        ({}, "is not robotrl"),
        (ours | {"server": "openpi"}, "is not robotrl"),
        (ours | {"schema": 2}, "is not robotrl"),
        (ours | {"artefact": "0" * 64}, "The server at ws://a:1 is of another artefact"),
        (facts(slow, "jax"), "is of another spec: its control_dt is 0.025, and not 0.02"),
        (ours | {"hash": "", "spec": {"x": b"y"}}, "sent a hello that cannot be read"),
        (ours | {"hash": "", "spec": {b"x": {1: 2}}}, "sent a hello that cannot be read"),
        (ours | {"hash": None}, "is of another spec"),
    ):
        with pytest.raises(ValueError, match=why):
            check(found, theirs, "ws://a:1")
