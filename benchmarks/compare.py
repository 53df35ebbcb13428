"""python -m benchmarks compare A B: how two sets of runs differ, and whether that is chance.

With --require it is the check of a change: its exit status tells whether curves have fallen.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from benchmarks import collect
from benchmarks.collect import Result
from benchmarks.scores import score
from benchmarks.tables import TIMES, Table, between, number
from rl import stats


@dataclass(frozen=True)
class Args:
    """Compare A with B: directories of runs or files of records, of all agents or PATH:AGENT."""

    a: tyro.conf.Positional[str]
    b: tyro.conf.Positional[str]
    last: int = 1  # evaluations that a score is the mean of
    alpha: float = 0.05  # chance of a false word on any agent, over all of them
    require: Literal["", "no-worse", "better"] = ""  # else the exit status is 1


def main(args: Args) -> None:
    if not 0 < args.alpha < 1 or args.last < 1:
        raise ValueError("--alpha takes a chance between 0 and 1, and --last at least 1.")
    sides = [side(args.a), side(args.b)]
    pairs = matched(*sides)
    words = []
    for one, other in pairs:
        tables, word = compared(sides[0][one], sides[1][other], args, len(pairs))
        print(f"\n## {one}: A against B" if one == other else f"\n## {one} against {other}")
        print("\n" + "\n\n".join(table.markdown() for table in tables))
        print(f"\n{one}: A is {word}")
        words.append(word)
    bad = {"no-worse": ["worse"], "better": ["worse", "not told apart", "the same"]}
    if failed := [word for word in words if word in bad.get(args.require, [])]:
        sys.exit(f"error: --require {args.require}: {len(failed)} of {len(words)} are not.")


def side(what: str) -> dict[str, list[Result]]:
    """The results of each agent there."""
    path, agent = (what, "") if Path(what).exists() else what.rpartition(":")[::2]
    if not path:
        raise ValueError(f"There is neither a directory nor a file {what}.")
    found = collect.collect([Path(path)])
    for where, why in found.left_out:
        print(f"left out {where}: {why}")
    agents: dict[str, list[Result]] = {}
    for result in found.results:
        agents.setdefault(result.agent, []).append(result)
    if agent:
        agents = {name: own for name, own in agents.items() if name == agent}
    if not agents:
        raise ValueError(f"Nothing that is done was found in {what}.")
    return agents


def matched(a: dict[str, list[Result]], b: dict[str, list[Result]]) -> list[tuple[str, str]]:
    """Agents of the same name, or the only ones."""
    if len(a) == len(b) == 1:
        return [(next(iter(a)), next(iter(b)))]
    if both := [name for name in a if name in b]:
        return [(name, name) for name in both]
    raise ValueError(
        f"A has {', '.join(a)}, B has {', '.join(b)}: name one of each, as PATH:AGENT."
    )


def compared(
    ours: Sequence[Result], theirs: Sequence[Result], args: Args, count: int
) -> tuple[list[Table], str]:
    """Tables of an agent on both sides, and A's word: better, worse, the same, not told apart."""
    a, b = (latest(own) for own in (ours, theirs))
    scores = [score(own, None, args.last) for own in (a, b)]
    tasks = [task for task in scores[0].tasks if task in scores[1].tasks]
    if not tasks:
        raise ValueError(
            f"There is no task in common: A has {', '.join(scores[0].tasks)}, "
            f"B has {', '.join(scores[1].tasks)}."
        )
    rows, verdicts = [], []
    for what, value in (("score", final(args.last)), ("curve", along)):
        both = [matrices(own, tasks, value) for own in (a, b)]
        for task, mine, their in zip(tasks, *both, strict=True):
            if not (mine.size and their.size):
                continue
            low, high = stats.bootstrap(gap, mine[:, None], their[:, None], times=TIMES)
            means = (number(mine.mean()), number(their.mean()))
            difference = f"{number(mine.mean() - their.mean())} {between(low, high)}"
            rows.append((task, what, *means, difference, f"{len(mine)}, {len(their)}"))
        verdicts.append(verdict(both[0], both[1], args.alpha / count / 2))
    note = (
        "Score: the last evaluation; curve: the mean of those on the way. 95% bootstrap intervals."
    )
    head = ("task", "of", "A", "B", "A - B", "seeds")
    return [Table("Difference", head, rows, note)], together(verdicts)


def latest(results: Sequence[Result]) -> list[Result]:
    """One result for each task and seed; what is left of their configuration is not compared."""
    return list({(r.task, r.seed): r for r in results}.values())


def final(last: int) -> Callable[[Result], float]:
    return lambda result: result.score(last)


def along(result: Result) -> float:
    return float(np.mean(result.curve)) if len(result.curve) > 1 else float("nan")


def matrices(
    results: Sequence[Result], tasks: Sequence[str], value: Callable[[Result], float]
) -> list[np.ndarray]:
    """Values of each task's runs [runs] in order of seeds, without those that have none."""
    ranked = sorted(results, key=lambda r: r.seed)
    found = [np.array([value(r) for r in ranked if r.task == task]) for task in tasks]
    return [row[np.isfinite(row)] for row in found]


def gap(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return ours.mean((-2, -1)) - theirs.mean((-2, -1))


def verdict(ours: list[np.ndarray], theirs: list[np.ndarray], alpha: float) -> str:
    """Of all tasks together, each in units of the spread of its runs on both sides."""
    both = [(a, b) for a, b in zip(ours, theirs, strict=True) if a.size and b.size]
    if not both:
        return ""
    if all(len(a) == len(b) and np.allclose(a, b, rtol=1e-5, atol=1e-3) for a, b in both):
        return "the same"
    least = [min(len(side[i]) for side in both) for i in (0, 1)]
    units = [np.std(np.concatenate(pair)) or 1.0 for pair in both]
    mine, their = (
        np.array([pair[i][: least[i]] / unit for pair, unit in zip(both, units, strict=True)]).T
        for i in (0, 1)
    )
    if stats.chance_of_difference(mine, their) > alpha:
        return "not told apart"
    return "better" if mine.mean() > their.mean() else "worse"


def together(verdicts: Sequence[str]) -> str:
    """One word of two: worse weighs most."""
    order = ("worse", "better", "not told apart", "the same")
    return next((word for word in order if word in verdicts), "not told apart")
