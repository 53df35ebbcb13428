"""Records of arrays by name: as they were to the last bit, and of bytes that are none nothing."""

import random
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge.learn import arrays
from rl.bridge.learn.frames import RECORD

RECORDED: dict[str, Any] = {
    "reward": 0.5, "action": np.linspace(-1, 1, 7, dtype=np.float32), "source": "human",
    "image": np.arange(24, dtype=np.uint8).reshape(2, 4, 3), "done": True, "none": np.zeros((0, 3)),
    "obs": {"q": np.arange(6.0), "deep": {"flag": np.array([True, False]), "half": np.half(0.5)}},
    "scalar": np.array(3, np.int64), "seq": 2**63,
}  # fmt: skip


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return a == b


def test_a_record_comes_back_to_the_last_bit() -> None:
    assert same(RECORDED, arrays.unpack(arrays.pack(RECORDED)))


def test_arrays_of_any_layout_come_as_little_endian_rows() -> None:
    big = np.arange(6, dtype=">i4").reshape(2, 3).T
    found = arrays.unpack(arrays.pack({"x": big}))
    assert found
    assert (found["x"] == big).all()
    assert found["x"].dtype == "<i4"
    assert not found["x"].flags.writeable


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"x": None}, "x"), ({"x": [1]}, "x"), ({"x": b"bytes"}, "x"), ({"x": 1 << 64}, "x"),
        ({"x": np.array(["a"])}, "x"), ({"x": np.array([None])}, "x"), ({1: 2}, "The record"),
        ({"x": np.zeros(2, "c8")}, "x"), ({"x": "y" * 1025}, "x"),
        ({"a": {"b": {"c": {"d": {}}}}}, "d"),
        ({str(i): i for i in range(257)}, "The record"), ({"t": np.zeros((1,) * 9)}, "t"),
        ({"d": np.zeros(1, "M8[s]")}, "d"), ({"": {"": object()}}, ""),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_named(value: dict[Any, Any], what: str) -> None:
    with pytest.raises(ValueError, match=f"^{what} cannot be recorded"):
        arrays.pack(value)


def test_a_record_that_is_too_large_is_refused() -> None:
    with pytest.raises(ValueError, match=f"it takes {RECORD} at most"):
        arrays.pack({"x": np.zeros(RECORD, np.uint8)})


def array(kind: Any, shape: Any, numbers: Any) -> bytes:
    parts = msgpack.packb([kind, shape, numbers])
    return msgpack.packb({"x": msgpack.ExtType(1, parts)})


@pytest.mark.parametrize(
    "record",
    [
        b"", b"\xc0", b"\x90", b"\x91\x01", b"\x81\xa1x\xc0", b"\x81\xa1x\x90", b"\x81\x01\x01",
        array("O", [1], bytes(8)), array("f4", [2], bytes(4)), array("f4", [-1], b""),
        array("f4", 1, bytes(4)), array("f4", [1], [1.0]), array("f4", [True], bytes(4)),
        array("V4", [1], bytes(4)), array(["f4"], [1], bytes(4)), array("f4", [0, 1 << 40], b""),
        array("b1", [2], b"\x01\x02"), array("f4", [1] * 9, bytes(4)), array("f4", [1.0], bytes(4)),
        msgpack.packb({"x": msgpack.ExtType(2, b"x")}), bytes(RECORD + 1),
        msgpack.packb({"x": msgpack.Timestamp(1)}), array("f4", [0] * 8, b"x"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_none(record: bytes) -> None:
    assert arrays.unpack(record) is None


def test_damaged_records_raise_nothing() -> None:
    rng, whole = random.Random(1), arrays.pack(RECORDED)
    for _ in range(20_000):
        record = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            record[rng.randrange(len(record))] = rng.randrange(256)
        found = arrays.unpack(
            bytes(record[: rng.choice([len(record), rng.randrange(len(record))])])
        )
        assert found is None or arrays.pack(found)


@given(st.binary(max_size=400))
def test_no_bytes_raise(record: bytes) -> None:
    arrays.unpack(record)
