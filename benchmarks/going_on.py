"""Tables of agents that go on from what another run learned: how far they fall, and how soon they
score as high as others."""

from collections.abc import Sequence

import numpy as np

from benchmarks.collect import Result
from benchmarks.scores import Scores
from benchmarks.tables import Table, number
from rl import stats
from rl.adastop import Pair


def going_on(scores: Scores, task: str, agent: str) -> tuple[Result, ...]:
    """The runs of an agent that started from another's, and were judged on their way."""
    runs = scores.runs.get((task, agent), ())
    return tuple(run for run in runs if run.config.get("start_from") and len(run.curve) > 1)


def falls(scores: Scores) -> Table:
    """The least that agents come to after their start."""
    rows = []
    for task, agent in scores.runs:
        if not (runs := going_on(scores, task, agent)):
            continue
        curves = np.array([run.curve for run in runs])
        scaled = 100 * scores.scaled(task, curves)
        change = (scaled - scaled[:, :1])[:, 1:]
        worst = change.mean(0).argmin()
        low, high = stats.interval_of_mean(change.mean(1)[:, None])
        rows.append((
            task, agent, number(curves[:, 0].mean()),
            f"{change.mean():+.1f} [{low[0]:+.1f}, {high[0]:+.1f}]",
            f"{change[:, worst].mean():+.1f}", f"{runs[0].steps[1 + worst]:,}",
            f"{change.min():+.1f}",
        ))  # fmt: skip
    note = (
        "In hundredths of the range, against the evaluation before anything was learned: the mean "
        "of all evaluations after it, with its 95% bootstrap interval over seeds; the lowest of "
        "them in the mean over seeds, and where; the lowest of any seed. The lowest of many is "
        "below 0 by chance too."
    )
    head = ("task", "agent", "began with", "mean after", "lowest", "at step", "of any seed")
    return Table("Falls", head, rows, note)


def reached(scores: Scores, pairs: Sequence[Pair]) -> Table:
    """Steps until agents score as high as those they are compared with do in the end."""
    rows = []
    for task in scores.tasks:
        for one, other in pairs:
            runs, theirs = going_on(scores, task, one), scores.returns(task, other)
            if not runs or not len(theirs):
                continue
            goal = theirs.mean()
            found = sorted(x for run in runs if (x := _first(run, goal)) is not None)
            ends = f"{found[0]:,} to {found[-1]:,}" if found else "-"
            rows.append((
                task, one, other, number(goal), f"{scores.runs[task, other][0].steps[-1]:,}",
                f"{len(found)} of {len(runs)}", ends,
            ))  # fmt: skip
    head = ("task", "agent", "as", "its score", "after", "seeds that reach it", "at step")
    note = "Steps, as runs count them, at the first evaluation that is as high: least and most."
    return Table("As high as others", head, rows, note)


def _first(run: Result, goal: float) -> int | None:
    """Steps at the first evaluation of a run that is as high as `goal`."""
    return next((s for s, x in zip(run.steps, run.curve, strict=True) if x >= goal), None)
