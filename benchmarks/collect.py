"""What runs came to, read from their directories or from the records that were kept of them.

A record is a seed's run without its checkpoints and its like: a line of JSON, for results that are
committed where run directories are not.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from typeguard import CollectionCheckStrategy, TypeCheckError, check_type

from benchmarks import plan
from benchmarks.suite import Measure
from rl import manifest, runs

SCHEMA = 1  # of records
SPENT = ("compile", "train", "evaluate", "save")  # on what a run's manifest counts the seconds
EVERY = CollectionCheckStrategy.ALL_ITEMS
TWICE = "has another outcome here than in a record, or in a run, named before it: this one counts"


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
    took: dict[str, float] = field(default_factory=dict)  # s, of SPENT
    about: dict[str, Any] = field(default_factory=dict)  # commit, packages, machine, and the like
    config: dict[str, Any] = field(default_factory=dict)
    success: tuple[float, ...] = ()  # of the same episodes as `final`, where a task can be done
    success_curve: tuple[float, ...] = ()  # [K]

    @property
    def arm(self) -> plan.Arm:
        return self.task, self.agent

    def score(self, last: int) -> float:
        """The mean of the last evaluation, or of the last few; NaN if there were not so many."""
        if last == 1:
            return float(np.mean(self.final))
        return float(np.mean(self.curve[-last:])) if len(self.curve) >= last else float("nan")

    def by(self, what: Measure) -> "Result":
        """It, its curve and its end being of returns or of successes."""
        if what == "return":
            return self
        if not self.success:
            raise ValueError(f"{self.agent} on {self.task} tells no success to score it by.")
        return replace(self, final=self.success, curve=self.success_curve)


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
    return once(found)


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
    except ValueError as error:
        return Collected(left_out=[(out, str(error))])
    except (KeyError, TypeError, IndexError) as error:
        return Collected(left_out=[(out, f"cannot be read: {error!r}")])


def _seeds(out: Path, facts: dict[str, Any]) -> Iterator[Result]:
    rows, seeds = runs.read_rows(out / "evals.jsonl"), facts["seeds"]
    identity = facts.get("config_sha256") or manifest.identity(facts["config"])
    suite, task, agent = "", facts["env"], facts["algorithm"]
    if out.parent.name == identity[:10]:  # where a sweep has put it
        suite, task, agent = (folder.name for folder in reversed(out.parents[1:4]))
    told = (
        "git",
        "packages",
        "python",
        "machine",
        "settings",
        "started",
        "ended",
        "physics",
        "finetuned",
    )
    about = {name: facts[name] for name in told if name in facts}
    about["memory_gb"] = facts.get("peak_memory_gb")
    took = {on: facts.get(f"{on}_s", 0.0) for on in SPENT}
    none = [np.nan] * len(seeds)  # of an evaluation that was no number
    means = np.array([np.atleast_1d(row.get("eval_return", none)) for row in rows], float)
    means, finals = means.reshape(-1, len(seeds)), np.asarray(facts["eval_returns"], float)
    if not np.isfinite(finals := finals.reshape(len(seeds), -1)).all():
        raise ValueError("its last evaluation is no number")
    done = np.asarray(facts.get("eval_successes", []), float).reshape(len(seeds), -1)
    share = np.array([row["eval_success"] for row in rows if "eval_success" in row], float)
    share = share.reshape(-1, len(seeds))
    for i, seed in enumerate(seeds):
        yield Result(
            suite, task, agent, identity, seed, tuple(row["step"] for row in rows),
            tuple(row["wall_s"] for row in rows), tuple(means[:, i].tolist()),
            tuple(finals[i].tolist()), took, about, facts.get("config", {}),
            tuple(done[i].tolist()), tuple(share[:, i].tolist()),
        )  # fmt: skip


def records(path: Path) -> list[Result]:
    """The results in a file of records."""
    found = []
    try:
        lines = path.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no file of records: it is no text.") from error
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
            if row["schema"] > SCHEMA:
                raise ValueError("it was written by a newer version")
            found.append(_recorded(row))
        except (ValueError, KeyError, TypeError, TypeCheckError) as error:
            raise ValueError(f"Line {number} of {path} is no record: {error}.") from error
    return found


def _recorded(row: dict[str, Any]) -> Result:
    made = {}
    for name, kind in get_type_hints(Result).items():
        if name.startswith("success") and name not in row:
            continue  # of a task that is never done, or an old record
        value = tuple(row[name]) if isinstance(row[name], list) else row[name]
        made[name] = check_type(value, kind, collection_check_strategy=EVERY)
    result = Result(**made)
    if len(result.curve) != len(result.steps) or len(result.wall_s) not in (0, len(result.steps)):
        raise ValueError("its curve, steps and times are of unequal length")
    if not result.final:
        raise ValueError("it has no final return")
    return result


def write(path: Path, results: Sequence[Result], instead: bool = False) -> None:
    """Put results into a file of records, in order; `instead` of other configurations of theirs."""
    kept = {key(result): result for result in (records(path) if path.exists() else [])}
    now = {key(result)[:4] for result in results}
    kept = {k: result for k, result in kept.items() if not (instead and k[:4] in now)}
    kept |= {key(result): result for result in results}
    lines = [json.dumps({"schema": SCHEMA, **brief(kept[k])}) + "\n" for k in sorted(kept)]
    runs.write(path, "".join(lines).encode())


def key(result: Result) -> tuple[str, str, str, int, str]:
    """What there is one of."""
    return result.suite, result.task, result.agent, result.seed, result.identity


def once(found: Collected) -> Collected:
    """Each seed of a configuration a single time, however often it was found."""
    kept, others = dict[Any, Result](), list(found.left_out)
    for result in found.results:
        if (before := kept.get(key(result))) and not same(before, result):
            where = Path(result.suite, result.task, result.agent, result.identity[:10])
            others.append((where / f"seed_{result.seed}", TWICE))
        kept[key(result)] = result
    return Collected(list(kept.values()), others)


def same(one: Result, other: Result) -> bool:
    """Whether they tell of the same run; a record is rounded."""
    return len(one.final) == len(other.final) and np.allclose(one.final, other.final, rtol=1e-5)


def brief(result: Result) -> dict[str, Any]:
    """A result as a record has it: nothing of a machine but what it is."""
    told = asdict(result)
    about, packages = told["about"], told["about"].get("packages", {})
    told["about"] = {
        "git": about.get("git"), "started": about.get("started"), "machine": about.get("machine"),
        "memory_gb": about.get("memory_gb"),
        "packages": {name: packages[name] for name in ("jax", "mujoco") if name in packages},
        **{name: about[name] for name in ("finetuned",) if name in about},
    }  # fmt: skip
    told["config"] = {k: v for k, v in told["config"].items() if k not in ("out", "resume")}
    for name in ("curve", "final", "success", "success_curve"):
        told[name] = [float(f"{x:.7g}") for x in told[name]]
    return {k: v for k, v in told.items() if v or not k.startswith("success")}
