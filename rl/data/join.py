"""Datasets of one task as one, which remembers what came from where."""

from typing import Any

import numpy as np

from rl import manifest, resources
from rl.data import dataset
from rl.data.canonical import Refused
from rl.data.dataset import Dataset

PART = "part"  # of an episode: the number of the dataset that it came from
COMMON = "task", "env", "control_dt", "action_low", "action_high", "reward"


def joined(named: dict[str, Dataset], episodes: tuple[int, ...] = ()) -> Dataset:
    """All episodes of each, or so many of its first; what only some tell of episodes is left out.

    Refused unless they are of one task and see, do and tell the same of a step.
    """
    if episodes and len(episodes) != len(named):
        raise Refused(
            f"--episodes tells {len(episodes)} of {len(named)} datasets how many to take."
        )
    counts = zip(named.items(), episodes or [0] * len(named), strict=True)
    parts = {name: first(name, data, count) for (name, data), count in counts}
    (name, one), *others = parts.items()
    size = sum(data.size for data in parts.values())
    resources.require(size, ", ".join(named), "--episodes joins some of the episodes of each")
    for other, data in others:
        same(name, one, other, data)
    hashes: dict[str, str] = {}
    for name, data in parts.items():
        if (twin := hashes.setdefault(data.sha256, name)) != name:
            raise Refused(f"{twin} and {name} cannot be joined: they hold the same episodes.")
    kept = set.intersection(*(set(data.episodes) for data in parts.values())) - {PART}
    facts: dict[str, Any] = {n: one.facts[n] for n in COMMON if n in one.facts}
    if not one.has_actions:
        facts["action"] = dataset.NONE
    if any(data.facts.get("last_obs") == dataset.UNSEEN for data in parts.values()):
        facts["last_obs"] = dataset.UNSEEN
    facts["parts"] = [
        told(data.facts) | {"episodes": len(part.starts)}
        for data, part in zip(named.values(), parts.values(), strict=True)
    ]
    return Dataset(
        {n: np.concatenate([data.steps[n] for data in parts.values()]) for n in one.steps},
        {n: np.concatenate([data.episodes[n] for data in parts.values()]) for n in sorted(kept)}
        | {PART: np.repeat(np.arange(len(parts)), [len(data.starts) for data in parts.values()])},
        facts,
    )


def told(facts: dict[str, Any]) -> dict[str, Any]:
    """What a dataset says of itself, and of no file's form."""
    return {name: x for name, x in facts.items() if name != "schema"}


def first(name: str, data: Dataset, episodes: int) -> Dataset:
    """So many of its first episodes; 0: all."""
    if not 0 <= episodes <= len(data.starts):
        raise Refused(
            f"--episodes has {episodes} of {name}, which has {len(data.starts)}; 0 is all."
        )
    return data.chosen(np.arange(episodes)) if episodes else data


def same(name: str, one: Dataset, other: str, data: Dataset) -> None:
    """Raise Refused unless both are of one task and their steps are alike."""
    for fact in COMMON:
        if (mine := one.facts.get(fact)) != (theirs := data.facts.get(fact)):
            what = manifest.difference(fact, mine, theirs)
            raise Refused(f"{name} and {other} cannot be joined: {what}.")
    if one.has_actions != data.has_actions:
        without, has = (other, name) if one.has_actions else (name, other)
        raise Refused(
            f"{without} has no actions, and {has} has some: {dataset.MEND}, and what it writes can "
            "be joined."
        )
    for n in sorted(one.steps.keys() | data.steps.keys()):
        there = [x.steps.get(n) for x in (one, data)]
        told = ["none" if x is None else f"{x.dtype}{list(x.shape[1:])}" for x in there]
        if told[0] != told[1]:
            raise Refused(
                f"{name} has {n} {told[0]}, and {other} {told[1]}: they cannot be joined."
            )
