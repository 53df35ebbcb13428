"""openpi's frames: msgpack, in which an array is a map of its dtype, its shape and its bytes.

As openpi-client 0.1.2 makes them: {b"__ndarray__": True, b"dtype": "<f4", b"shape": [2, 3],
b"data": ...}, and of a number of numpy {b"__npgeneric__": True, b"dtype": "<f4", b"data": 0.5}.
"""

import math
from typing import Any

import msgpack
import numpy as np

DTYPES = {np.dtype(code).str: np.dtype(code) for code in "?bBhHiIqQefd"}  # no objects among them
MOST_ITEMS = 4096  # of a list or a map: larger ones are arrays


def pack(message: Any) -> bytes:
    packed: Any = msgpack.packb(message, default=_of_array)
    return packed


def unpack(frame: bytes | str) -> Any:
    """What is in a frame; ValueError of what is none."""
    if isinstance(frame, str):
        raise ValueError("The frame is one of text, and takes msgpack in a binary one.")
    try:
        return msgpack.unpackb(
            frame, object_hook=_array_of, max_array_len=MOST_ITEMS, max_map_len=MOST_ITEMS,
            max_ext_len=0,
        )  # fmt: skip
    except Exception as error:  # whatever damaged bytes make of themselves
        raise ValueError(f"The frame cannot be read: {str(error).rstrip('.')}.") from error


def _of_array(x: Any) -> dict[bytes, Any]:
    if not isinstance(x, np.ndarray):
        raise TypeError(f"A frame has no place for a {type(x).__name__}.")
    return {b"__ndarray__": True, b"data": x.tobytes(), b"dtype": x.dtype.str, b"shape": x.shape}


def _array_of(found: dict[Any, Any]) -> Any:
    """The array or number that a map says; a map that says none as it is."""
    lone = b"__npgeneric__" in found
    if not lone and b"__ndarray__" not in found:
        return found
    name, data, shape = found.get(b"dtype"), found.get(b"data"), found.get(b"shape")
    dtype = DTYPES.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise ValueError(f"an array is of {name!r:.80}, and not of {', '.join(DTYPES)}")
    if lone and isinstance(data, int | float):
        return dtype.type(data)
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"the shape of an array is {shape!r:.80}")
    if not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} and {name} has other bytes than that takes")
    return np.frombuffer(data, dtype).reshape(shape)
