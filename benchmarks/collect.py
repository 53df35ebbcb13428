"""What runs came to, read from their directories or from the records that were kept of them.

A record is a seed's run without its checkpoints and its like: a line of JSON, for results that are
committed where run directories are not.
"""

import json
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import plan
from rl import runs

SCHEMA = 1  # of records


@dataclass(frozen=True)
class Result:
    """A seed of a run that is done."""

    suite: str
    task: str
    agent: str
    identity: str  # hash of its configuration
    seed: int
    steps: tuple[int, ...]  # environment steps at each evaluation on the way [K]
    wall_s: tuple[float, ...]  # [K]
    curve: tuple[float, ...]  # mean return of each evaluation [K]
    final: tuple[float, ...]  # returns of the episodes after the end
    took: dict[str, float] = field(default_factory=dict)  # s of compile, train, evaluate, save
    about: dict[str, Any] = field(default_factory=dict)  # commit, packages, machine, and the like
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def arm(self) -> plan.Arm:
        return self.task, self.agent

    def score(self, last: int) -> float:
        """The mean of the last evaluation, or of the last few; NaN if there were not so many."""
        if last == 1:
            return float(np.mean(self.final))
        return float(np.mean(self.curve[-last:])) if len(self.curve) >= last else float("nan")


@dataclass
class Collected:
    results: list[Result] = field(default_factory=list)
    left_out: list[tuple[Path, str]] = field(default_factory=list)  # and why


def collect(paths: Iterable[Path]) -> Collected:
    """All that is done below these directories, or in these files of records."""
    found = Collected()
    for path in paths:
        if path.is_file():
            found.results += records(path)
        elif path.is_dir():
            with ThreadPoolExecutor() as pool:
                for part in pool.map(read, sorted(directories(path))):
                    found.results += part.results
                    found.left_out += part.left_out
        else:
            raise ValueError(f"There is neither a directory nor a file {path}.")
    return found


def directories(path: Path) -> Iterator[Path]:
    """Every directory below that looks like a run, whole or not."""
    for folder, below, files in os.walk(path):
        if {"manifest.json", "lock", *runs.ROWS} & set(files):
            below.clear()
            yield Path(folder)


def read(out: Path) -> Collected:
    """The seeds of the run in a directory, or why it is left out."""
    state, why = plan.found(out)
    if state != "done":
        said = {"new": "has not begun", "begun": f"is not done: {why}", "damaged": why}
        return Collected(left_out=[(out, said[state])])
    try:
        return Collected(list(_seeds(out, runs.read_manifest(out))))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        return Collected(left_out=[(out, f"cannot be read: {error!r}")])


def _seeds(out: Path, facts: dict[str, Any]) -> Iterator[Result]:
    rows, seeds = runs.read_rows(out / "evals.jsonl"), facts["seeds"]
    identity = facts.get("config_sha256", "")
    suite, task, agent = "", facts["env"], facts["algorithm"]
    if identity and out.parent.name == identity[:10]:  # where a sweep has put it
        suite, task, agent = (folder.name for folder in reversed(out.parents[1:4]))
    told = ("git", "packages", "python", "machine", "settings", "started", "ended", "physics")
    about = {name: facts[name] for name in told if name in facts}
    about["memory_gb"] = facts.get("peak_memory_gb")
    took = {on: facts.get(f"{on}_s", 0.0) for on in ("compile", "train", "evaluate", "save")}
    means = np.array([np.atleast_1d(row["eval_return"]) for row in rows]).reshape(-1, len(seeds))
    finals = np.asarray(facts["eval_returns"], float).reshape(len(seeds), -1)
    for i, seed in enumerate(seeds):
        yield Result(
            suite, task, agent, identity, seed, tuple(row["step"] for row in rows),
            tuple(row["wall_s"] for row in rows), tuple(means[:, i].tolist()),
            tuple(finals[i].tolist()), took, about, facts.get("config", {}),
        )  # fmt: skip


def records(path: Path) -> list[Result]:
    """The results in a file of records."""
    found, known = [], {f.name for f in fields(Result)}
    for number, row in enumerate(runs.read_rows(path), 1):
        try:
            if row.pop("schema") > SCHEMA:
                raise ValueError(f"Line {number} of {path} was written by a newer version.")
            made: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
            made = {name: value for name, value in made.items() if name in known}
            found.append(Result(**made))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"Line {number} of {path} is no record: {error!r}.") from error
    return found


def write(path: Path, results: Iterable[Result]) -> None:
    """Put results into a file of records in the place of those of the same runs, in order."""
    kept = {key(result): result for result in (records(path) if path.exists() else [])}
    kept |= {key(result): result for result in results}
    lines = [json.dumps({"schema": SCHEMA, **brief(kept[k])}) + "\n" for k in sorted(kept)]
    runs.write(path, "".join(lines).encode())


def key(result: Result) -> tuple[str, str, str, int, str]:
    """What a record is the only one of: a suite has one configuration of an agent at a time."""
    identity = "" if result.suite else result.identity
    return result.suite, result.task, result.agent, result.seed, identity


def brief(result: Result) -> dict[str, Any]:
    """A result as a record has it: nothing of a machine but what it is."""
    told = asdict(result)
    about, packages = told["about"], told["about"].get("packages", {})
    told["about"] = {
        "git": about.get("git"), "started": about.get("started"), "machine": about.get("machine"),
        "packages": {name: packages[name] for name in ("jax", "mujoco") if name in packages},
    }  # fmt: skip
    told["config"] = {k: v for k, v in told["config"].items() if k not in ("out", "resume")}
    told["curve"] = [round(x, 3) for x in told["curve"]]
    told["final"] = [round(x, 3) for x in told["final"]]
    return told
