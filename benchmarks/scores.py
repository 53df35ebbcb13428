"""Scores of runs as matrices: by task, agent and seed, in units that tasks share."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path

import numpy as np

from benchmarks.collect import Collected, Result, collect
from benchmarks.plan import Arm
from benchmarks.suite import Measure, Suite, pairs_of, published, resolve, steps_of
from rl import manifest


@dataclass(frozen=True)
class Scores:
    """What a report or a comparison is made of."""

    tasks: tuple[str, ...]
    agents: tuple[str, ...]
    runs: dict[Arm, tuple[Result, ...]]  # in order of seeds
    ranges: dict[str, tuple[float, float]]  # returns that score 0 and 1
    ranged: bool  # whether the suite gives all ranges; else they are the least and greatest return
    last: int  # evaluations that a score is the mean of
    what: Measure = "return"  # and what of their episodes

    def returns(self, task: str, agent: str) -> np.ndarray:
        """Of each seed [runs]; none where nothing was run."""
        return np.array([result.score(self.last) for result in self.runs.get((task, agent), ())])

    def all(self) -> Iterator[Result]:
        return chain.from_iterable(self.runs.values())

    def normalised(self, agent: str, tasks: Sequence[str]) -> np.ndarray:
        """[runs, tasks], with as many runs of each task as there are of all."""
        found = [self.scaled(task, self.returns(task, agent)) for task in tasks]
        least = min(map(len, found), default=0)
        return np.array([row[:least] for row in found]).T.reshape(least, len(tasks))

    def scaled(self, task: str, returns: np.ndarray) -> np.ndarray:
        low, high = self.ranges[task]
        return (returns - low) / (high - low)

    def common(self, agents: Iterable[str]) -> tuple[str, ...]:
        """The tasks that all of these have runs of."""
        agents = tuple(agents)
        return tuple(t for t in self.tasks if all(self.runs.get((t, agent)) for agent in agents))

    def is_published(self, agent: str) -> bool:
        """Whether others ran it: all that is known of it is its returns."""
        own = [r for (_, name), found in self.runs.items() if name == agent for r in found]
        return not any(run.about or run.config or run.took for run in own)

    def steps(self, agent: str) -> int:
        """Environment steps of its longest runs."""
        return max(self._ends(agent), default=0)

    def span(self, agent: str) -> str:
        """Environment steps of its runs, where tasks differ in them from the least to the most."""
        ends = sorted({*self._ends(agent)} or {0})
        return " to ".join(f"{end:,}" for end in {ends[0]: 0, ends[-1]: 0})

    def _ends(self, agent: str) -> list[int]:
        runs = [r for (_, name), found in self.runs.items() if name == agent for r in found]
        return [run.steps[-1] for run in runs if run.steps]


def gathered(suite: Suite, where: Path, records: Sequence[Path] = ()) -> Collected:
    """What is done of a suite as it is now; a run rather than a record of the same seed."""
    folder = where / suite.name
    return current(suite, collect([*records, *([folder] if folder.exists() else [])]), folder)


def current(suite: Suite, found: Collected, folder: Path = Path()) -> Collected:
    """Without what is not of a suite as it is now; `folder` is named where its runs are."""
    learn = [name for name, agent in suite.agents.items() if not agent.published]
    now = {arm: resolve(suite, arm[1], arm[0])[2] for arm in product(suite.tasks, learn)}
    kept: dict[tuple[Arm, int], Result] = {}
    others = set(found.left_out)
    for result in found.results:
        if result.arm in now and result.identity in (now[result.arm], ""):  # "": an old record
            kept[result.arm, result.seed] = result
        else:
            path = folder / result.task / result.agent / result.identity[:10]
            others.add((path, "is of another configuration than the suite has now"))
    return Collected(list(kept.values()), sorted(others))


def score(results: Iterable[Result], suite: Suite | None, last: int = 1) -> Scores:
    """Results by task and agent, those of a suite in its order and with its ranges."""
    runs: dict[Arm, list[Result]] = {}
    if suite:
        for result in results:
            what = suite.tasks[result.task].score or suite.score
            runs.setdefault(result.arm, []).append(result.by(what))
    else:
        runs = _apart(list(results))
    tasks, agents = (tuple(dict.fromkeys(arm[i] for arm in sorted(runs))) for i in (0, 1))
    ranges: dict[str, tuple[float, float]] = {}
    if suite:
        last = suite.last
        tasks = tuple(name for name in suite.tasks if name in tasks)
        rivals = {x for pair in pairs_of(suite) for x in pair if {*pair} & {*agents}}
        known = [name for name, about in suite.agents.items() if about.published and name in rivals]
        runs |= {arm: _published(suite, *arm) for arm in product(tasks, known)}
        agents = tuple(name for name in suite.agents if name in (*agents, *known))
        ranges = {name: task.range for name, task in suite.tasks.items() if task.range}
    order = [arm for arm in product(tasks, agents) if runs.get(arm)]
    ranked = {arm: tuple(sorted(runs[arm], key=lambda r: r.seed)) for arm in order}
    what = suite.score if suite else "return"
    made = Scores(tasks, agents, ranked, {}, all(task in ranges for task in tasks), last, what)
    return replace(made, ranges={task: ranges.get(task) or _spread(made, task) for task in tasks})


def _apart(results: Sequence[Result]) -> dict[Arm, list[Result]]:
    """Results by task and agent, agents with several settings on a task being several agents."""
    settings = {result.identity: _setting(result) for result in results}
    kinds: dict[Arm, set[str]] = {}
    for result in results:
        kinds.setdefault(result.arm, set()).add(result.identity)
    several = {agent for (_, agent), own in kinds.items() if len(own) > 1}
    runs: dict[Arm, list[Result]] = {}
    for result in results:
        name, mine = result.agent, settings[result.identity]
        if name in several:  # by what is not the task's, so that it has one name on every task
            alike = [x for x in kinds[result.arm] if settings[x] == mine]
            name += f"@{(mine if len(alike) == 1 else result.identity)[:6]}"
        runs.setdefault((result.task, name), []).append(result)
    return runs


def _setting(result: Result) -> str:
    """The hash of a configuration but for its task."""
    own = {k: v for k, v in result.config.items() if k not in ("env", "env_name")}
    return manifest.identity(own)


def _published(suite: Suite, task: str, name: str) -> list[Result]:
    agent = suite.agents[name]
    steps = steps_of(suite, agent, task)
    returns = published(agent.published, steps, task, suite.name)
    return [
        Result(suite.name, task, name, "", i, (steps,), (), (x,), (x,))
        for i, x in enumerate(returns)
    ]


def _spread(scores: Scores, task: str) -> tuple[float, float]:
    """The least and the greatest return of all runs of a task."""
    found = [x for agent in scores.agents for x in scores.returns(task, agent)]
    low, high = float(np.min(found)), float(np.max(found))
    return (low, high) if low < high else (low - 1, high)
