"""Rows of arrays that may lie in a file, a block at a time."""

import numpy as np

BLOCK = 1 << 16  # rows that are looked at together
ALIGNED = 64  # bytes, as XLA wants its arrays on a CPU


def taken(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`x[rows]`, so aligned that a device need not copy it."""
    size = len(rows) * x[:1].nbytes
    space = np.empty(size + ALIGNED, np.uint8)
    first = -space.ctypes.data % ALIGNED
    out = space[first : first + size].view(x.dtype).reshape(len(rows), *x.shape[1:])
    for i in range(0, len(rows), BLOCK):  # of a file, which np.take would read whole
        out[i : i + BLOCK] = x[rows[i : i + BLOCK]]
    return out


def unsound(x: np.ndarray) -> np.ndarray:
    """[len(x)] whether a row has what is no finite number."""
    blocks = [x[i : i + BLOCK] for i in range(0, len(x), BLOCK)]
    return np.concatenate([~np.isfinite(b).reshape(len(b), -1).all(1) for b in blocks])
