"""What looks wrong with a dataset, each thing a sentence: none of it need be."""

import hashlib
from collections.abc import Iterator

import numpy as np

from rl.data.dataset import BLOCK, Dataset

SATURATED = 0.999  # of an action's bound
MOSTLY = 0.9  # share of steps
HARDLY = 0.02  # of the range of an action
FAR = 100  # times the range of the middle 98 % of a column
AGAIN = 0.01  # share of steps that are the one before, all over


def found(data: Dataset) -> Iterator[str]:
    """Sentences on observations, actions, rewards and episodes, in that order."""
    for name, x in data.parts("obs").items():
        if x.size:
            yield from _of_observations(name, x)
    if data.has_actions:
        yield from _of_actions(data.steps["action"])
    if data.facts.get("reward") == "none":
        yield "The format has no rewards: all are zero."
    elif not np.any(data.steps["reward"]):
        yield "All rewards are zero."
    yield from _of_episodes(data)


def extremes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The least and most of each column of [S, size]; of all there is, where it has no columns."""
    size = x.shape[1] if x.ndim == 2 else 1
    blocks = [x[i : i + BLOCK].reshape(-1, size) for i in range(0, len(x), BLOCK)]
    low, high = (np.stack([f(b, axis=0) for b in blocks]) for f in (np.min, np.max))
    return low.min(0), high.max(0)


def sample(x: np.ndarray) -> np.ndarray:
    """Rows of it, evenly spaced: enough for a histogram or a quantile."""
    return x[:: -(-len(x) // BLOCK)]


def _of_observations(name: str, x: np.ndarray) -> Iterator[str]:
    low, high = extremes(x)
    if len(x) > 1 and (same := np.flatnonzero(low == high)).size:
        yield f"{name} never changes in {_columns(same, x)}."
    if x.ndim == 2 and x.dtype.kind == "f":
        least, middle, most = np.quantile(sample(x).astype(np.float64), [0.01, 0.5, 0.99], axis=0)
        spread = most - least
        far = np.maximum(high - middle, middle - low) > FAR * spread
        if (wild := np.flatnonzero(far & (spread > 0))).size:
            worst = wild[0]
            yield (
                f"{name} has outliers in {_columns(wild, x)}: column {worst} goes from "
                f"{low[worst]:g} to {high[worst]:g}, nearly always from {least[worst]:g} to "
                f"{most[worst]:g}."
            )


def _of_actions(action: np.ndarray) -> Iterator[str]:
    low, high = extremes(action)
    if not np.any(low) and not np.any(high):
        yield "All actions are zero."
        return
    if (still := np.flatnonzero(high - low < HARDLY * 2)).size:
        yield f"Actions hardly use {_columns(still, action)}: are the limits those that are meant?"
    hard = np.mean(np.abs(action) >= SATURATED, axis=0)
    if (full := np.flatnonzero((hard > MOSTLY) & (high - low >= HARDLY * 2))).size:
        yield f"Actions are at a bound most of the time in {_columns(full, action)}."


def _of_episodes(data: Dataset) -> Iterator[str]:
    lengths, starts = data.episodes["length"], data.starts
    arrays = [*data.parts("obs").values(), *data.parts("action").values()]
    seen: dict[bytes, int] = {}
    twice = []
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        digest = hashlib.sha256()
        for x in arrays:
            digest.update(np.ascontiguousarray(x[start : start + length]).data)
        if seen.setdefault(digest.digest(), number) != number:
            twice.append((seen[digest.digest()], number))
    if twice:
        yield f"{len(twice)} episodes are there twice: {twice[0][1]} is {twice[0][0]} again."
    if cut := data.facts.get("cut"):
        yield f"{cut} of {len(lengths)} episodes end without a flag: they count as truncated."
    if data.steps["mask"].all() and len(np.unique(lengths)) > 1:
        yield (
            f"Nothing ever terminates, and episodes last from {lengths.min()} to {lengths.max()} "
            "steps: were terminations lost?"
        )
    if (share := _repeated(arrays, starts)) >= AGAIN:
        too = ", action and all" if data.has_actions else ""
        yield f"{share:.1%} of the steps are the same as the one before{too}."


def _repeated(arrays: list[np.ndarray], starts: np.ndarray) -> float:
    """The share of steps that are the one before in all of `arrays`."""
    count = len(arrays[0])
    same = np.ones(count, bool)
    same[starts] = False
    for x in arrays:
        for i in range(1, count, BLOCK):
            rows = slice(i, min(i + BLOCK, count))
            before = slice(i - 1, rows.stop - 1)
            same[rows] &= (x[rows] == x[before]).reshape(rows.stop - i, -1).all(1)
    return float(same.mean())


def _columns(which: np.ndarray, x: np.ndarray) -> str:
    if x.ndim != 2:
        return "all of it"
    some = ", ".join(map(str, which[:8])) + (", ..." if len(which) > 8 else "")
    return f"column {some}" if len(which) == 1 else f"{len(which)} of {x.shape[1]} columns: {some}"
