"""What the readers of others' formats share: flags, bounds, and the row an episode ends with."""

import hashlib
import io
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rl.data import dataset
from rl.data.dataset import Dataset

Limits = tuple[ArrayLike, ArrayLike]  # of actions: what -1 and what 1 stands for
ROUNDING = 1e-5  # of the range of an action


class Refused(ValueError):
    """What is wrong with a file, in a sentence of ours."""


class Ends(NamedTuple):
    """How episodes [E] end; one that ends neither way was cut off."""

    terminated: np.ndarray
    truncated: np.ndarray


def needs(what: str, package: str) -> Refused:
    return Refused(f"reading {what} needs {package}: pip install 'robotrl[data]'")


@contextmanager
def damage(path: Path, what: str) -> Iterator[None]:
    """Whatever a library makes of a damaged file, as a sentence."""
    try:
        yield
    except Refused:
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise Refused(
            f"{path} is damaged, or no {what}: {text}. Get it again from where it came from."
        ) from error


@contextmanager
def hdf5(path: Path, what: str) -> Iterator[Any]:
    """An HDF5 file, open."""
    try:
        import h5py
    except ImportError:
        raise needs(what, "h5py") from None
    with damage(path, f"HDF5 of {what}"), h5py.File(path, "r") as file:
        yield file


def stored(item: Any) -> np.ndarray:
    """All of an array of an open HDF5 file.

    HDF5 itself reads zeros where a part of it is lost, and numbers of any kind that is described.
    """
    from h5py import h5t

    if item.dtype.kind in "fiub" and not item.id.get_type().equal(h5t.py_create(item.dtype)):
        raise Refused(f"{item.file.filename} has {item.name} in a kind of numbers of its own.")
    if getattr(item, "chunks", None):
        plain = not item.id.get_create_plist().get_nfilters()
        size = np.prod(item.chunks, dtype=int) * item.dtype.itemsize
        for at in product(*map(range, [0] * item.ndim, item.shape, item.chunks)):
            part = item.id.get_chunk_info_by_coord(at)
            if part.byte_offset is None or part.filter_mask or (plain and part.size != size):
                raise Refused(f"{item.file.filename} has lost a part of {item.name}, at {at}.")
    return np.asarray(item[()])


def parsed(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in a file."""
    if not path.is_file():
        raise Refused(f"{path} is not there, and {what} needs it: is the data set whole?")
    with damage(path, f"JSON of {what}"):
        found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict):
        raise Refused(f"{path} is damaged, or no JSON of {what}: it holds no facts.")
    return found


def hashed(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """The sha256 of files, by their path below `root`."""
    found = {}
    for path in files:
        with path.open("rb") as file:
            found[path.relative_to(root).as_posix()] = hashlib.file_digest(
                file, "sha256"
            ).hexdigest()
    return found


def narrowed(x: np.ndarray) -> np.ndarray:
    """Doubles as floats, all else as it is; what is too large for a float becomes infinite."""
    with np.errstate(over="ignore"):
        return x.astype(np.float32) if x.dtype == np.float64 else x


def column(where: str, name: str, x: np.ndarray, count: int) -> np.ndarray:
    """Numbers [count] of steps, which a format may have as [count, 1]."""
    if x.shape not in ((count,), (count, 1)) or x.dtype.kind not in "fiub":
        raise Refused(f"{where} has {name} of {x.dtype}{list(x.shape)}; numbers [{count}] belong.")
    return x.reshape(count)


def flag(where: str, name: str, x: np.ndarray, count: int) -> np.ndarray:
    """[count] bool of a flag, which a format may have as numbers."""
    x = column(where, name, x, count)
    if (wrong := (x != 0) & (x != 1)).any():
        row = int(wrong.argmax())
        raise Refused(f"{where} has a {name} of {x[row]} in row {row}; it takes 0 or 1.")
    return x.astype(bool)


def matrix(where: str, name: str, x: np.ndarray, count: int) -> np.ndarray:
    """What each of `count` rows has of a field, as vectors at least."""
    if len(x.shape) < 2 or len(x) != count or x.dtype.kind not in "fiub":
        raise Refused(f"{where} has {name} of {x.dtype}{list(x.shape)}; [{count}, size] belongs.")
    return narrowed(x)


def decoded(pictures: Iterable[bytes]) -> np.ndarray:
    """Encoded pictures as numbers [count, height, width, ...]."""
    from PIL import Image

    return np.stack([np.asarray(Image.open(io.BytesIO(one))) for one in pictures])


def rescaled(where: str, action: np.ndarray, lengths: np.ndarray, limits: Limits) -> np.ndarray:
    """Actions [S, A] of episodes of `lengths`, from `limits` to [-1, 1]."""
    action = action.reshape(len(action), -1)
    try:
        low, high = (np.broadcast_to(np.asarray(x, np.float64), action.shape[1:]) for x in limits)
    except ValueError:
        raise Refused(
            f"{where} has actions of {action.shape[1]} numbers; their limits are of another size."
        ) from None
    if not (np.isfinite(low) & np.isfinite(high) & (low <= high)).all():
        raise Refused(
            f"{where} has actions from {low.tolist()} to {high.tolist()}, which cannot be rescaled "
            "to [-1, 1]: give their limits, --low and --high, the lower first."
        )
    slack = ROUNDING * (high - low)
    if (wrong := (action < low - slack) | (action > high + slack)).any():
        step, axis = np.unravel_index(wrong.argmax(), wrong.shape)
        episode = int(np.searchsorted(np.cumsum(lengths), step, side="right"))
        raise Refused(
            f"{where} has an action of {action[step, axis]:g} in axis {axis}, step "
            f"{step - lengths[:episode].sum()} of episode {episode}; it goes from {low[axis]:g} to "
            f"{high[axis]:g}: give the limits that are meant, --low and --high."
        )
    action = np.clip(action, low, high)
    if (low == -1).all() and (high == 1).all():
        return action.astype(np.float32)  # to the bit
    size = np.where(high > low, high - low, np.inf)  # what cannot move is in the middle
    return np.where(high > low, 2 * (action - low) / size - 1, 0).astype(np.float32)


def bounds(limits: Limits, size: int) -> dict[str, list[float]]:
    """Limits as facts."""
    low, high = (np.broadcast_to(np.asarray(x, np.float64), size).tolist() for x in limits)
    return {"action_low": low, "action_high": high}


def gathered(
    where: str, rows: dict[str, np.ndarray], lengths: np.ndarray, ends: Ends, keeps: np.ndarray,
    limits: Limits, facts: dict[str, Any],
) -> Dataset:  # fmt: skip
    """The dataset of `rows` [R] of episodes one after another, of which each has `lengths` rows.

    The last row of an episode tells what was seen after it; where `keeps` [E] it is a step too, and
    stands for what nobody saw after it.
    """
    last = np.cumsum(lengths) - 1
    kept = np.ones(len(rows["action"]), bool)
    kept[last[~keeps]] = False
    long = lengths - ~keeps
    alive = long > 0  # one row that is no step is no episode
    if not alive.any():
        raise Refused(
            f"{where} has no episodes, or of one row each: there is nothing to learn from."
        )
    lasts = {
        f"last_{n}": narrowed(x[last[alive]]) for n, x in rows.items() if n.split("/")[0] == "obs"
    }
    long, over = long[alive], Ends(*(x[alive] for x in ends))
    steps = {n: narrowed(x[kept]) if n.split("/")[0] == "obs" else x[kept] for n, x in rows.items()}
    steps["action"] = rescaled(where, steps["action"], long, limits)
    facts = bounds(limits, steps["action"].shape[1]) | facts
    if cut := int((~over.terminated & ~over.truncated).sum()):
        facts["cut"] = cut  # episodes
    if (keeps & alive).any():
        facts["last_obs"] = dataset.UNSEEN
    if len(alive) > len(long):
        facts["dropped_episodes"] = len(alive) - len(long)
    return finished(where, steps, {"length": long.astype(np.int64)} | lasts, over, facts)


def finished(
    where: str, steps: dict[str, np.ndarray], episodes: dict[str, np.ndarray], ends: Ends,
    facts: dict[str, Any],
) -> Dataset:  # fmt: skip
    """The dataset, checked, with the flags of how its episodes end and the reward, if any."""
    count, last = len(steps["action"]), np.cumsum(episodes["length"]) - 1
    flags = {name: np.zeros(count, bool) for name in ("terminated", "truncated")}
    flags["terminated"][last] = ends.terminated
    flags["truncated"][last] = ends.truncated | ~ends.terminated
    flags["mask"] = steps.get("mask", ~flags["terminated"])
    if "reward" not in steps:
        facts["reward"] = "none"
    reward = narrowed(steps.get("reward", np.zeros(count))).astype(np.float32)
    found = Dataset(steps | flags | {"reward": reward}, episodes, facts)
    dataset.check(where, found)
    return found
