"""Records of numbers, texts and arrays by name, as bytes that make nothing else when they are read.

msgpack, an array as its extension 1: dtype, shape, and the numbers, little-endian.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgpack
import numpy as np

from rl.bridge.learn.frames import RECORD

ARRAY = 1
DTYPES = "b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"
COUNT = 256  # of what has a name, in a map
DEPTH = 4  # of maps within maps
AXES = 8
TEXT = 1024  # characters


def pack(values: Mapping[str, Any]) -> bytes:
    """A record of what `unpack` gives back; ValueError of what it would not take."""
    if (bad := _misfit(values, "The record")) is not None:
        raise ValueError(
            f"{bad} cannot be recorded: numbers, texts up to {TEXT} characters, arrays of "
            f"{', '.join(DTYPES)} and maps of these by name can, {COUNT} to a map, {DEPTH} deep."
        )
    record = msgpack.packb(values, default=_told)
    if len(record) > RECORD:
        raise ValueError(f"The record has {len(record)} bytes: it takes {RECORD} at most.")
    return record


def unpack(record: bytes) -> dict[str, Any] | None:
    """What was packed, its arrays not to be written to; None of anything else."""
    if len(record) > RECORD:
        return None
    try:
        values = msgpack.unpackb(record, ext_hook=_array, strict_map_key=True, max_map_len=COUNT,
                                 max_str_len=4 * TEXT, max_array_len=0)  # fmt: skip
    except ValueError:
        return None
    return values if type(values) is dict and _misfit(values, "") is None else None


def _misfit(value: Any, name: str, depth: int = DEPTH) -> str | None:
    """The name of what cannot be recorded, in what is called so; None if all can."""
    if isinstance(value, Mapping):
        if not depth or len(value) > COUNT or not all(map(_word, value)):
            return name
        inside = (_misfit(x, key, depth - 1) for key, x in value.items())
        return next((bad for bad in inside if bad is not None), None)
    if isinstance(value, np.ndarray | np.generic):
        fits = value.dtype.str[1:] in DTYPES and value.ndim <= AXES
    elif isinstance(value, int):
        fits = -(1 << 63) <= value < 1 << 64
    else:
        fits = isinstance(value, float) or _word(value)
    return None if fits else name


def _word(value: Any) -> bool:
    return type(value) is str and len(value) <= TEXT


def _told(value: Any) -> Any:
    """What msgpack does not know by itself."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    kind = value.dtype.str[1:]
    parts = [kind, list(value.shape), value.astype(f"<{kind}").tobytes()]
    return msgpack.ExtType(ARRAY, msgpack.packb(parts))


def _array(code: int, data: bytes) -> np.ndarray:
    """ValueError of what is no array of ours."""
    parts = msgpack.unpackb(data, max_array_len=AXES)
    if code != ARRAY or type(parts) is not list or len(parts) != 3:
        raise ValueError("no array")
    kind, shape, numbers = parts
    if kind not in DTYPES or type(shape) is not list or type(numbers) is not bytes:
        raise ValueError("no array")
    if not all(type(n) is int and 0 <= n <= RECORD for n in shape):
        raise ValueError("no shape")
    dtype = np.dtype(f"<{kind}")
    if math.prod(shape) * dtype.itemsize != len(numbers):
        raise ValueError("another number of bytes")
    if kind == "b1" and numbers.strip(b"\0\1"):
        raise ValueError("neither true nor false")
    return np.frombuffer(numbers, dtype).reshape(shape)
