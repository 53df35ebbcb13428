"""What Minari says of the numbers in its data sets: Gymnasium's spaces as JSON."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.data import canonical
from rl.data.canonical import Refused

NUMBERS = "Box", "Discrete", "MultiDiscrete", "MultiBinary"  # spaces that are


class Part(NamedTuple):
    """One array of an observation."""

    name: str
    path: tuple[str, ...]  # within the file
    space: dict[str, Any]
    encoded: bool  # a picture, as JPEG

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one observation."""
        return shape_of(self.space)


def shape_of(space: dict[str, Any]) -> tuple[int, ...]:
    """Of one sample."""
    if space["type"] == "MultiDiscrete":
        return np.shape(space["nvec"])
    sizes: Any = {"Discrete": [], "MultiBinary": space.get("n"), "Box": space.get("shape")}
    return tuple(int(n) for n in np.atleast_1d(sizes[space["type"]]))


def check(space: dict[str, Any]) -> None:
    """Raise some error unless it is a space."""
    below = space.get("subspaces", [])
    for inner in below.values() if isinstance(below, dict) else below:
        check(inner)
    if space["type"] in NUMBERS:
        shape_of(space)
    if space["type"] == "Box":
        kinds(space)
        for name in ("low", "high"):
            np.broadcast_to(np.asarray(space[name], np.float64), shape_of(space))


def parts(
    root: Path, space: dict[str, Any], form: str, about: dict[str, Any]
) -> tuple[list[Part], list[str]]:
    """The arrays of an observation, and the names of those that are not numbers."""
    found: list[Part] = []
    texts: list[str] = []

    def walk(name: str, path: tuple[str, ...], space: dict[str, Any]) -> None:
        inner = space.get("subspaces")
        if isinstance(inner, dict):
            for key, below in inner.items():
                walk(f"{name}/{key}", (*path, key), below)
        elif isinstance(inner, list):
            for i, below in enumerate(inner):
                walk(f"{name}/{i}", (*path, f"_index_{i}" if form == "hdf5" else str(i)), below)
        elif space["type"] in NUMBERS:
            jpeg = bool(about.get("jpeg_encoding", True)) and _is_picture(space)
            found.append(Part(name, path, space, jpeg))
        else:
            texts.append(name)

    with canonical.damage(root / "metadata.json", "observation_space of Minari"):
        walk("obs", (), space)
    if not found:
        raise Refused(f"{root} has no observations that are numbers.")
    return found, texts


def _is_picture(space: dict[str, Any]) -> bool:
    """As Minari has it."""
    shape = space.get("shape", [])
    return (
        space["type"] == "Box" and space["dtype"] == "uint8"
        and len(shape) in (2, 3) and min(shape[:2]) >= 32
        and not np.any(space["low"]) and bool((np.asarray(space["high"]) == 255).all())
    )  # fmt: skip


def kinds(space: dict[str, Any]) -> str:
    """Of numpy's dtypes, which a space's numbers may have."""
    return np.dtype(space["dtype"]).kind if space["type"] == "Box" else "biu"


def space_of(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The space of an observation's arrays [S, ...] by their place."""
    if "obs" in arrays:
        return _leaf(arrays["obs"])
    root: dict[str, Any] = {"type": "Dict", "subspaces": {}}
    for name, x in arrays.items():
        *above, last = name.split("/")[1:]
        inner = root
        for key in above:
            inner = inner["subspaces"].setdefault(key, {"type": "Dict", "subspaces": {}})
        inner["subspaces"][last] = _leaf(x)
    return root


def _leaf(x: np.ndarray) -> dict[str, Any]:
    if x.dtype == bool:
        return {"type": "MultiBinary", "n": [*x.shape[1:]]}
    low, high = -np.inf, np.inf
    if x.dtype.kind in "iu":
        low, high = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    return box(x.shape[1:], low, high, str(x.dtype))


def box(shape: tuple[int, ...], low: float, high: float, dtype: str) -> dict[str, Any]:
    ends = {name: np.full(shape, x).tolist() for name, x in (("low", low), ("high", high))}
    return {"type": "Box", "dtype": dtype, "shape": [*shape]} | ends
