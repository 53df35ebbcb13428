"""python -m benchmarks compare A B: how two sets of runs differ, and whether that is chance.

With --require it is the check of a change: its exit status tells whether curves have fallen.
"""

import math
import sys
from collections.abc import Callable, Collection, Sequence
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

BETTER, WORSE, SAME = "better", "worse", "the same"
OPEN, FEW = "not told apart", "of too few seeds to tell"


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
        print(f"\n## {one}: A against B" if one == other else f"\n## {one} against {other}")
        table, said = compared(sides[0][one], sides[1][other], args, len(pairs))
        print(f"\n{table.markdown()}\n\n{one}: A is {said}")
        words.append(said)
    needed = {"": words, "no-worse": [BETTER, SAME, OPEN], "better": [BETTER]}[args.require]
    if failed := [word for word in words if word not in needed]:
        count = f"{len(failed)} of {len(words)} agents"
        sys.exit(f"error: --require {args.require} does not hold for {count}")


def side(what: str) -> dict[str, list[Result]]:
    """The results of each agent there."""
    path, agent = (what, "") if Path(what).exists() else what.rpartition(":")[::2]
    if not path:
        raise ValueError(f"There is neither a directory nor a file {what}.")
    found = collect.collect([Path(path)])
    for where, why in found.left_out:
        print(f"left out {where}: {why}")
    agents: dict[str, list[Result]] = {}
    for (_, name), own in score(found.results, None).runs.items():
        agents.setdefault(name, []).extend(own)
    if agent:
        known = ", ".join(sorted({name.partition("@")[0] for name in agents}))
        agents = {name: own for name, own in agents.items() if name.partition("@")[0] == agent}
    if not agents:
        rest = f"; it has {known}" if agent and known else ""
        raise ValueError(f"Nothing that is done was found in {what}{rest}.")
    if several := [name for name in agents if "@" in name]:
        raise ValueError(
            f"{what} has {len(several)} configurations of {several[0].partition('@')[0]}: "
            "name the directory of one."
        )
    return agents


def matched(a: dict[str, list[Result]], b: dict[str, list[Result]]) -> list[tuple[str, str]]:
    """Agents of the same name, or the only ones."""
    if len(a) == len(b) == 1:
        return [(next(iter(a)), next(iter(b)))]
    if both := [name for name in a if name in b]:
        tell_left_out(a, b)
        return [(name, name) for name in both]
    raise ValueError(
        f"A has {', '.join(a)}, B has {', '.join(b)}: name one of each, as PATH:AGENT."
    )


def tell_left_out(a: Collection[str], b: Collection[str]) -> None:
    """Say which tasks or agents only one side has."""
    for side, own, other in (("A", a, b), ("B", b, a)):
        for name in sorted({*own} - {*other}):
            print(f"left out {name}: only {side} has it")


def compared(
    ours: Sequence[Result], theirs: Sequence[Result], args: Args, count: int
) -> tuple[Table, str]:
    """Every task's difference, and what is to be said of A in all."""
    known = [{r.task for r in own} for own in (ours, theirs)]
    if not (tasks := sorted(set.intersection(*known))):
        a, b = (", ".join(sorted(own)) for own in known)
        raise ValueError(f"There is no task in common: A has {a}, B has {b}.")
    tell_left_out(*known)
    rows, words = [], []
    alpha = args.alpha / count / 2 / (len(tasks) + 1 if len(tasks) > 1 else 1)
    for what, value in (("score", final(args.last)), ("curve", along)):
        both = [matrices(own, tasks, value) for own in (ours, theirs)]
        there = [(t, a, b) for t, a, b in zip(tasks, *both, strict=True) if a.size and b.size]
        if what == "score" and (few := sorted({*tasks} - {task for task, *_ in there})):
            least = f"--last {args.last} evaluations"
            raise ValueError(f"Runs of a side have fewer than {least} on {', '.join(few)}.")
        for task, mine, their in there:
            low, high = stats.bootstrap(gap, mine[:, None], their[:, None], times=TIMES)
            means = (number(mine.mean()), number(their.mean()))
            difference = f"{number(mine.mean() - their.mean())} {between(low, high)}"
            said = verdict([mine], [their], alpha)
            counts = f"{len(mine)}, {len(their)}"
            rows.append((task, what, *means, difference, counts, said))
            words.append(said)
        if len(there) > 1:
            mine, their = ([row[i] for row in there] for i in (1, 2))
            words.append(said := verdict(mine, their, alpha))
            rows.append(("all", what, "", "", "", "", said))
    note = (
        "Score: the last evaluation; curve: the mean of those on the way. 95% bootstrap intervals. "
        f"The chance that any word is false is {args.alpha:.0%} at the most (permutation tests)."
    )
    head = ("task", "of", "A", "B", "A - B", "seeds", "A is")
    return Table("Difference", head, rows, note), together(words)


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
    both = list(zip(ours, theirs, strict=True))
    if all(len(a) == len(b) and np.allclose(a, b, rtol=1e-5, atol=0) for a, b in both):
        return SAME
    least = [min(len(pair[i]) for pair in both) for i in (0, 1)]
    if 2 / math.comb(sum(least), least[0]) ** len(both) > alpha:
        return FEW
    units = [np.std(np.concatenate(pair)) or 1.0 for pair in both]
    mine, their = (
        np.array([pair[i][: least[i]] / unit for pair, unit in zip(both, units, strict=True)]).T
        for i in (0, 1)
    )
    if stats.chance_of_difference(mine, their) > alpha:
        return OPEN
    return BETTER if mine.mean() > their.mean() else WORSE


def together(words: Sequence[str]) -> str:
    """One word of several: worse weighs most; too few seeds only where they are for all."""
    return next((word for word in (WORSE, BETTER, OPEN, FEW) if word in words), SAME)
