"""The runs of a suite, and how far each is: all that is known of it is in its directory."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks.machine import held
from benchmarks.suite import Suite, resolve, steps_of
from rl import manifest, runs

Arm = tuple[str, str]  # a task and an agent
# new: to begin; begun: to go on with; held: another process makes it; damaged: to be looked at
State = Literal["new", "begun", "held", "done", "damaged"]


class Unit(NamedTuple):
    """A run to make: one configuration, and some seeds in one program."""

    task: str
    agent: str
    seeds: tuple[int, ...]
    steps: int
    out: Path  # runs/SUITE/TASK/AGENT/HASH/seed_N
    program: str  # a module of ours, or a peer's script
    words: tuple[str, ...]  # of its command line, less what host and seeds decide
    identity: str  # hash of its resolved configuration

    @property
    def claim(self) -> Path:
        """The file that is locked while the run is made."""
        return self.out.with_name(f"{self.out.name}.claim")

    @property
    def log(self) -> Path:
        """What its process says."""
        return self.out.with_name(f"{self.out.name}.log")

    @property
    def arm(self) -> Arm:
        return self.task, self.agent

    @property
    def is_foreign(self) -> bool:
        return self.program.endswith(".py")

    @property
    def name(self) -> str:
        return f"{self.task} {self.agent} {self.out.name}"


def units(suite: Suite, wanted: Mapping[Arm, Iterable[int]], where: Path) -> list[Unit]:
    """The runs that these seeds of each task and agent are, in the order of seeds."""
    found = [unit for arm, seeds in wanted.items() for unit in _units(suite, arm, seeds, where)]
    return sorted(found, key=lambda unit: unit.seeds[0])


def _units(suite: Suite, arm: Arm, seeds: Iterable[int], where: Path) -> list[Unit]:
    """A run that is there already keeps its directory and its seeds; the rest go in groups."""
    task, name = arm
    agent, (program, words, identity) = suite.agents[name], resolve(suite, name, task)
    folder = where / suite.name / task / name / identity[:10]

    def unit(out: Path, seeds: Sequence[int]) -> Unit:
        steps = steps_of(suite, agent, task)
        return Unit(task, name, tuple(seeds), steps, out, program, words, identity)

    there, wanted = begun(folder), sorted(seeds)
    covered = {seed for own in there.values() for seed in own}
    rest = [seed for seed in wanted if seed not in covered]
    each = 1 if agent.script else suite.group
    found = [unit(out, own) for out, own in there.items() if {*own} & {*wanted}]
    for part in (rest[i : i + each] for i in range(0, len(rest), each)):
        called = f"seed_{part[0]}" if len(part) == 1 else f"seeds_{part[0]}-{part[-1]}"
        found.append(unit(folder / called, part))
    return found


def begun(folder: Path) -> dict[Path, tuple[int, ...]]:
    """The runs in a folder and the seeds of each, less those whose manifests cannot be read."""
    found = {}
    for path in sorted(folder.glob("*/manifest.json")):
        try:
            found[path.parent] = tuple(runs.read_manifest(path.parent)["seeds"])
        except (ValueError, KeyError, TypeError, OSError):
            continue
    return found


def facts_of(out: Path) -> dict[str, Any]:
    """A run's manifest, or nothing."""
    try:
        return runs.read_manifest(out)
    except (ValueError, OSError):
        return {}


def look(unit: Unit) -> tuple[State, str]:
    """How far a run is, and what more there is to say of it."""
    return ("held", "another process makes it") if held(unit.claim) else found(unit.out)


def found(out: Path) -> tuple[State, str]:
    """The same of a run's directory that no other process has claimed."""
    if not (out / "manifest.json").exists():
        rest = sorted(path.name for path in out.glob("*") if not _passing(path))
        return ("damaged", f"{out} has {rest[0]} and no manifest.json.") if rest else ("new", "")
    try:
        facts = runs.read_manifest(out)
        check(out, facts)
    except (ValueError, OSError) as error:
        return "damaged", str(error)
    except (TypeError, AttributeError, KeyError) as error:  # no facts of a run, or edited
        return "damaged", f"{out / 'manifest.json'} is damaged: {error!r}."
    return ("done" if runs.finished(facts) else "begun"), str(facts.get("status"))


def check(out: Path, facts: dict[str, Any]) -> None:
    """Raise ValueError unless a run is as it was written; older schemas have no seal."""
    if facts.get("schema", 0) < 3:
        return
    if facts.get("config_sha256") != manifest.identity(facts.get("config", {})):
        raise ValueError(f"{out / 'manifest.json'} has another configuration than it began with.")
    if runs.finished(facts) and facts["seal"] != runs.seal(out, facts):
        raise ValueError(f"{out} was changed after its end: its seal does not fit.")


def clear(out: Path) -> None:
    """Remove what a run that was killed before its first manifest has left."""
    for path in out.glob("*"):
        if _passing(path):
            path.unlink()


def _passing(path: Path) -> bool:
    return path.name == "lock" or path.name.endswith(".partial")
