"""What `python -m benchmarks family` judges in: a file of benchmarks/families, checked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.suite import toml
from envs.variant import Variant
from rl import manifest

FAMILIES = Path(__file__).parent / "families"
SCALES, DELAYS = Variant._fields[:3], Variant._fields[3:]
SPLITS = ("interpolation", "extrapolation")
KEYS = {"name": str, "version": int, "about": str, **dict.fromkeys(SPLITS, list)}


class Context(NamedTuple):
    split: str  # or "nominal"
    variant: Variant

    @property
    def label(self) -> str:
        told = zip(self.variant._asdict().items(), Variant(), strict=True)
        off = [f"{name.replace('_', ' ')} {x:g}" for (name, x), nominal in told if x != nominal]
        return ", ".join(off) or "nominal"


@dataclass(frozen=True)
class Family:
    name: str  # with its version
    about: str
    contexts: tuple[Context, ...]  # the nominal one first

    @property
    def hash(self) -> str:
        return manifest.identity({"contexts": [[c.split, *c.variant] for c in self.contexts]})

    @property
    def most(self) -> tuple[int, int]:
        """The longest of each delay, control steps."""
        action, observation = np.array([[*c.variant] for c in self.contexts])[:, -2:].max(0)
        return int(action), int(observation)

    def of(self, split: str) -> np.ndarray:
        """Whether each context [C] is of this split."""
        return np.array([context.split == split for context in self.contexts])


def read(name: str) -> Family:
    """A family by name, or of a .toml anywhere; ValueError says what is wrong with it."""
    path = Path(name) if name.endswith(".toml") else FAMILIES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(x.stem for x in FAMILIES.glob("*.toml")))
        raise ValueError(f"There is no family {name}: {known}, or a path of a .toml.")
    table = toml(path)
    if unknown := sorted(table.keys() - KEYS.keys()):
        raise ValueError(f"{path} has no setting {unknown[0]}; it has {', '.join(KEYS)}.")
    for key, kind in KEYS.items():
        if type(x := table.get(key)) is not kind or not x:
            raise ValueError(f"{path}: {key} is {x!r}; it takes a {kind.__name__}, and none empty.")
    if path.stem != (full := f"{table['name']}-v{table['version']}"):
        raise ValueError(f"{path} tells of {full}: name and version are those of the file.")
    contexts = [Context("nominal", Variant())]
    for split in SPLITS:
        for number, given in enumerate(table[split], 1):
            where = f"{path}: context {number} of {split}"
            contexts.append(Context(split, variant(given, where)))
            if contexts[-1].variant in [context.variant for context in contexts[:-1]]:
                raise ValueError(f"{where} is there already: {contexts[-1].label}.")
    return Family(full, table["about"], tuple(contexts))


def variant(given: Any, where: str) -> Variant:
    """The variant that a table describes; ValueError says what is wrong."""
    if not isinstance(given, dict):
        raise ValueError(f"{where} is {given!r}; it takes a table.")
    for key, x in given.items():
        if key not in Variant._fields:
            raise ValueError(f"{where} has no {key}; it has {', '.join(Variant._fields)}.")
        if key in SCALES and not (type(x) in (int, float) and 0 < x < float("inf")):
            raise ValueError(f"{where}: {key} is {x!r}; a factor is a finite number above 0.")
        if key in DELAYS and not (type(x) is int and x >= 0):
            raise ValueError(f"{where}: {key} is {x!r}; a delay is a whole number from 0 on.")
    return Variant(**{key: float(x) if key in SCALES else x for key, x in given.items()})
