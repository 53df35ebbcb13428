"""Recorded episodes as one file: steps as they were seen, facts about each episode, and a hash.

A dataset is an uncompressed .npz: arrays by their place in a transition ("obs/policy",
"next_obs/world/raw/cube_pos"), "episode/..." for numbers of each episode, and "facts" as JSON.
Nothing in it is ever unpickled.
"""

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from rl import runs
from rl.types import PyTree, Transition

SCHEMA = 1
EPISODE, FACTS, HASH = "episode/", "facts", "sha256"


class Dataset(NamedTuple):
    """S steps of E episodes, one after another."""

    steps: dict[str, np.ndarray]  # leaves of a Transition [S, ...], by their place in it
    episodes: dict[str, np.ndarray]  # numbers of each episode [E], of which "length" is one
    facts: dict[str, Any]  # where it comes from, as JSON

    @property
    def sha256(self) -> str:
        """Of all but the facts."""
        digest = hashlib.sha256()
        for name, x in sorted((self.steps | _prefixed(self.episodes)).items()):
            digest.update(f"{name} {x.dtype.str} {x.shape}\n".encode())
            digest.update(np.ascontiguousarray(x).data)
        return digest.hexdigest()


def named(tree: PyTree) -> dict[str, Any]:
    """Leaves by their place in a tree."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): x for path, x in leaves}


def write(path: Path, dataset: Dataset) -> str:
    """Write a file that is not there yet, whole or not at all; its hash."""
    if path.exists():
        raise ValueError(f"{path} is there already: name another file with --out, or delete it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    sha256, content = dataset.sha256, io.BytesIO()
    facts = {FACTS: np.array(json.dumps({"schema": SCHEMA} | dataset.facts | {HASH: sha256}))}
    arrays: dict[str, Any] = dataset.steps | _prefixed(dataset.episodes) | facts
    np.savez(content, **arrays)
    runs.write(path, content.getvalue())
    return sha256


def read(path: Path) -> Dataset:
    """The dataset in a file; ValueError says what is wrong with it."""
    if not path.is_file():
        raise ValueError(
            f"{path} is no dataset: there is no such file. python -m experiments.make_data "
            "writes one."
        )
    try:
        with path.open("rb") as whole, np.load(whole) as file:
            arrays = dict(file)
        facts = json.loads(arrays.pop(FACTS).item())
    except (ValueError, OSError, EOFError, KeyError, AttributeError, zipfile.BadZipFile):
        raise ValueError(
            f"{path} is damaged, or no dataset: make it again with python -m experiments.make_data."
        ) from None
    if facts.get("schema", 1) > SCHEMA:
        raise ValueError(f"{path} was written by a newer version of this package.")
    cut = len(EPISODE)
    episodes = {n[cut:]: x for n, x in arrays.items() if n.startswith(EPISODE)}
    steps = {n: x for n, x in arrays.items() if not n.startswith(EPISODE)}
    found = Dataset(steps, episodes, facts)
    if facts.get(HASH) != found.sha256:
        raise ValueError(
            f"{path} is damaged: it does not hold what its hash is of. Make it again."
        )
    _check(path, found)
    return found


def shaped(path: Path, dataset: Dataset, like: Transition) -> Transition:
    """Its steps as transitions, shaped as `like` (one step); what `like` lacks is left out."""

    def leaf(where: Any, want: Any) -> np.ndarray:
        name = jax.tree_util.keystr(where, simple=True, separator="/")
        x = dataset.steps.get(name)
        if x is None:
            raise ValueError(f"{path} has no {name}, which is needed: was it made of this task?")
        if x.shape[1:] != want.shape:
            raise ValueError(f"{path} has {name} of {x.shape[1:]}, and {want.shape} is needed.")
        return x

    return jax.tree_util.tree_map_with_path(leaf, like)


def _check(path: Path, found: Dataset) -> None:
    """Raise ValueError unless its numbers are those of whole episodes."""
    lengths = found.episodes.get("length", np.zeros(0, int))
    count = int(lengths.sum())
    starts = np.cumsum(lengths) - lengths
    for name, x in found.steps.items():
        if len(x) != count:
            raise ValueError(f"{path} has {len(x)} steps of {name}; its episodes have {count}.")
        if x.dtype.kind == "f" and not (well := np.isfinite(x).reshape(count, -1).all(1)).all():
            step = int(well.argmin())
            episode = int(np.searchsorted(starts, step, side="right")) - 1
            raise ValueError(
                f"{path} has a {name} that is no finite number, in step {step - starts[episode]} "
                f"of episode {episode}."
            )
    if not count:
        raise ValueError(f"{path} has no episodes.")


def _prefixed(episodes: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {EPISODE + name: x for name, x in episodes.items()}
