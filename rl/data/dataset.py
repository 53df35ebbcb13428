"""Recorded episodes: steps as they were seen, facts about each episode, and where they come from.

Arrays go by their place in a transition: "obs/policy", "obs/world/raw/cube_pos".
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from rl.types import PyTree

BLOCK = 1 << 16  # rows that are looked at together
ALIGNED = 64  # bytes, as XLA wants its arrays on a CPU
EPISODE = "episode/"  # before the names of what episodes have, beside those of steps
ROUNDING = 1e-5  # that an action may leave its range by
NONE = "none"  # what facts tell of "action" where none were recorded
UNSEEN = "unseen where terminated"  # and of "last_obs", where it is the observation before, again
FLAGS = "terminated", "truncated", "mask"
MEND = "python -m experiments.label labels such episodes"


class Dataset(NamedTuple):
    """S steps of E episodes, one after another.

    Of steps [S, ...]: "obs" or its parts, "action" [S, A] in [-1, 1], "reward", and three flags.
    "terminated": the world ended the episode there; "truncated": something else did; "mask": what
    comes after has a value (a goal may be reached and the episode go on).  Of episodes [E, ...]:
    "length", and "last_obs" or its parts, as seen after the last step.
    There is no "action" where facts say that it is "none".  docs/data.md has the facts.
    """

    steps: dict[str, np.ndarray]
    episodes: dict[str, np.ndarray]
    facts: dict[str, Any]  # where it comes from, as JSON

    @property
    def sha256(self) -> str:
        """Of all but the facts."""
        digest = hashlib.sha256()
        for name, x in sorted((self.steps | prefixed(self.episodes)).items()):
            digest.update(f"{name} {x.dtype.str} {x.shape}\n".encode())
            digest.update(np.ascontiguousarray(x).data)
        return digest.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of its arrays."""
        return sum(x.nbytes for x in (self.steps | self.episodes).values())

    @property
    def has_actions(self) -> bool:
        return "action" in self.steps

    @property
    def starts(self) -> np.ndarray:
        """The first step [E] of each episode."""
        return np.cumsum(self.episodes["length"]) - self.episodes["length"]

    @property
    def episode(self) -> np.ndarray:
        """The episode [S] of each step."""
        return np.repeat(np.arange(len(self.starts), dtype=np.int32), self.episodes["length"])

    def sums(self, name: str = "reward") -> np.ndarray:
        """Of a number of each step, the sum [E] over each episode."""
        return np.add.reduceat(self.steps[name].astype(np.float64), self.starts)

    def parts(self, name: str) -> dict[str, np.ndarray]:
        """The arrays of steps at `name`: itself, or what is below it."""
        return {n: x for n, x in self.steps.items() if n == name or n.startswith(f"{name}/")}

    def chosen(self, which: np.ndarray) -> "Dataset":
        """The episodes `which` (indices or [E] bool), in that order."""
        which = np.flatnonzero(which) if which.dtype == bool else which
        if not len(which):
            raise ValueError("No episode is chosen.")
        firsts, lengths = self.starts[which], self.episodes["length"][which]
        rows = np.concatenate([np.arange(a, a + b) for a, b in zip(firsts, lengths, strict=True)])
        return Dataset(
            {name: taken(x, rows) for name, x in self.steps.items()},
            {name: x[which] for name, x in self.episodes.items()},
            {name: x for name, x in self.facts.items() if name != "cut"},  # a count of episodes
        )


def taken(x: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """`x[rows]`, so aligned that a device need not copy it."""
    size = len(rows) * x[:1].nbytes
    space = np.empty(size + ALIGNED, np.uint8)
    first = -space.ctypes.data % ALIGNED
    out = space[first : first + size].view(x.dtype).reshape(len(rows), *x.shape[1:])
    for i in range(0, len(rows), BLOCK):  # of a file, which np.take would read whole
        out[i : i + BLOCK] = x[rows[i : i + BLOCK]]
    return out


def compact(
    steps: dict[str, np.ndarray], episodes: dict[str, np.ndarray], facts: dict[str, Any], where: str
) -> Dataset:
    """The dataset of steps that have a next observation each: all but the last of an episode are
    the observation after.  ValueError, of `where`, if they are not."""
    lengths = episodes["length"]
    ends = np.cumsum(lengths) - 1
    inner = np.setdiff1d(np.arange(ends[-1] + 1 if len(ends) else 0), ends)
    lasts = {}
    for name in [name for name in steps if name.split("/")[0] == "next_obs"]:
        own = name.replace("next_obs", "obs", 1)
        seen, after = steps[own], steps.pop(name)
        same = (after[inner] == seen[inner + 1]).reshape(len(inner), -1).all(1)
        if not same.all():
            step = int(inner[same.argmin()])
            episode = int(np.searchsorted(ends, step))
            raise ValueError(
                f"{where} has a {name} in step {step - (ends - lengths + 1)[episode]} of episode "
                f"{episode} that is not the observation of the step after."
            )
        lasts[f"last_{own}"] = after[ends]
    flags = {"mask": ~steps["terminated"]} | steps
    return Dataset(flags, episodes | lasts, facts)


def named(tree: PyTree) -> dict[str, Any]:
    """Leaves by their place in a tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def require_actions(where: str, data: Dataset) -> None:
    """Raise ValueError unless it has actions."""
    if not data.has_actions:
        raise ValueError(f"{where} has no actions, and they are needed: {MEND}.")


def fitted(where: str, data: Dataset, obs: PyTree, action_dim: int) -> Dataset:
    """It with just the parts of an observation that a task has, as `obs` (shapes and dtypes of one)
    and actions of so many numbers in [-1, 1]; ValueError where it has others."""
    steps = {n: x for n, x in data.steps.items() if n.split("/")[0] != "obs"}
    episodes = {n: x for n, x in data.episodes.items() if n.split("/")[0] != "last_obs"}
    for place, want in named(obs).items():
        name = f"obs/{place}" if place else "obs"
        own = name if name in data.steps or place else "obs/policy"
        x = data.steps.get(own)
        if x is None:
            there = ", ".join(data.parts("obs"))
            raise ValueError(f"{where} has no {name}, which the task has; it has {there}.")
        if x.shape[1:] != want.shape or x.dtype.kind != np.dtype(want.dtype).kind:
            raise ValueError(
                f"{where} has {own} of {x.shape[1:]} {x.dtype}; the task has {want.shape} "
                f"{want.dtype}: it is of another task, or of other settings of it."
            )
        steps[name], episodes[f"last_{name}"] = x, data.episodes[f"last_{own}"]
    require_actions(where, data)
    if data.steps["action"].shape[1:] != (action_dim,):
        found = data.steps["action"].shape[1:]
        raise ValueError(f"{where} has actions of {found}; the task takes ({action_dim},).")
    return Dataset(steps, episodes, data.facts)


def check(where: str, found: Dataset) -> None:
    """Raise ValueError unless its numbers are those of whole episodes."""
    lengths = found.episodes.get("length", np.zeros(0, int))
    count = int(lengths.sum())
    if not count or lengths.min() < 1:
        raise ValueError(f"{where} has no episodes, or an empty one.")
    for name, x in found.steps.items():
        if len(x) != count:
            raise ValueError(f"{where} has {len(x)} steps of {name}; its episodes have {count}.")
        if x.dtype.kind == "f" and (wrong := rows(unsound, x)).any():
            raise ValueError(f"{where} has {name} of no finite number, in {first(wrong, lengths)}.")
    for name, x in found.episodes.items():
        if len(x) != len(lengths):
            raise ValueError(f"{where} has {len(x)} of {name}; it has {len(lengths)} episodes.")
        if x.dtype.kind == "f" and (wrong := rows(unsound, x)).any():
            what = f"{name} of no finite number, of episode {wrong.argmax()}"
            raise ValueError(f"{where} has {what}.")
    for name in ("reward", *FLAGS):
        if (x := found.steps.get(name)) is None:
            raise ValueError(f"{where} has no {name}.")
        if name in FLAGS and (x.dtype != bool or x.ndim != 1):
            raise ValueError(f"{where} has {name} of {x.dtype}{list(x.shape)}; bool [S] belongs.")
    check_actions(where, found)
    if not (seen := found.parts("obs")):
        raise ValueError(f"{where} has no obs.")
    for name, x in seen.items():
        last = found.episodes.get(f"last_{name}", np.zeros(0, object))
        if (last.shape[1:], last.dtype) != (x.shape[1:], x.dtype):
            kinds = [f"{x.dtype}{list(x.shape[1:])}" if x.size else "none" for x in (x, last)]
            raise ValueError(f"{where} has {name} of {kinds[0]}, and {kinds[1]} of last_{name}.")
    over = found.steps["terminated"] | found.steps["truncated"]
    last = np.isin(np.arange(count), np.cumsum(lengths) - 1)
    if (wrong := over != last).any():
        how = "goes on after its end" if over[wrong.argmax()] else "has no end"
        raise ValueError(f"{where} has an episode that {how}, in {first(wrong, lengths)}.")


def check_actions(where: str, found: Dataset) -> None:
    """Raise ValueError unless they are there or denied, and in [-1, 1]."""
    if found.has_actions == (found.facts.get("action") == NONE):
        lacks = 'no action, and its facts do not say "action": "none"'
        how = "an action, and its facts deny it" if found.has_actions else lacks
        raise ValueError(f"{where} has {how}.")
    if found.has_actions:
        action = found.steps["action"]
        if action.ndim != 2 or action.dtype.kind != "f":
            raise ValueError(f"{where} has action of {action.dtype}{list(action.shape)}; [S, A].")
        if (wrong := rows(beyond, action)).any():
            most, at = action[wrong.argmax()], first(wrong, found.episodes["length"])
            what = f"an action of {most[np.abs(most).argmax()]:g}, in {at}"
            raise ValueError(f"{where} has {what}; they lie in [-1, 1].")


def first(wrong: np.ndarray, lengths: np.ndarray) -> str:
    """Where the first is of the steps that are wrong."""
    step, starts = int(wrong.argmax()), np.cumsum(lengths) - lengths
    episode = int(np.searchsorted(starts, step, side="right")) - 1
    return f"step {step - starts[episode]} of episode {episode}"


def rows(wrong: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """[len(x)] whether a row has what is wrong, some rows at a time."""
    blocks = [x[i : i + BLOCK] for i in range(0, len(x), BLOCK)]
    return np.concatenate([wrong(b).reshape(len(b), -1).any(1) for b in blocks])


def unsound(x: np.ndarray) -> np.ndarray:
    return ~np.isfinite(x)


def beyond(action: np.ndarray) -> np.ndarray:
    return np.abs(action) > 1 + ROUNDING


def prefixed(episodes: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {EPISODE + name: x for name, x in episodes.items()}
