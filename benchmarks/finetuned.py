"""python -m benchmarks finetuned: what methods make of the same bases, as a table and a picture.

Of the records of a suite whose runs have judged their base from the starts that they are judged by.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from benchmarks import collect, figures
from benchmarks import suite as suites
from benchmarks.collect import Collected, Result
from benchmarks.process import ROOT
from benchmarks.scores import Scores, current, score
from rl import stats

RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Args:
    """Say what came of each base, and draw it."""

    suite: str = "finetune"
    level: float = 0.7  # of success, until which minutes are counted
    records: Path | None = None  # of its runs; none: benchmarks/results/SUITE.jsonl
    out: Path = ROOT / "docs" / "finetune.png"


def main(args: Args) -> None:
    if not 0 < args.level <= 1:
        raise ValueError(f"--level is {args.level}; it takes a share above 0, at most 1.")
    suite, path = suites.read(args.suite), args.records or RESULTS / f"{args.suite}.jsonl"
    if not path.is_file():
        raise ValueError(f"{path} is no file: --records names the records of a suite's runs.")
    every = collect.records(path)
    found = current(suite, Collected([x for x in every if x.about.get("finetuned")])).results
    if not found:
        raise ValueError(
            f"{path} has no run that judged its base, as those of experiments.finetune do, of the "
            f"suite {suite.name} as it is now."
        )
    if left := len(every) - len(found):
        print(f"left out: {left} of {len(every)} runs, of other configurations than the suite's")
    scores = score(found, suite)
    print("\n".join(table(scores, args.level)))
    figure(scores).savefig(args.out, dpi=100)
    print(args.out)


def runs_of(scores: Scores, task: str) -> Iterator[tuple[str, tuple[Result, ...]]]:
    """Each agent that has runs on a task, and these."""
    for agent in scores.agents:
        if runs := scores.runs.get((task, agent)):
            yield agent, runs


def base_of(runs: tuple[Result, ...]) -> float:
    """What the base of runs came to, by what they are scored."""
    told = runs[0].about["finetuned"]["base"]
    return told["success"] if runs[0].success else told["return"]


def reached(run: Result, level: float) -> float:
    """Minutes until a run's curve, straight between evaluations, came to this; inf: it did not."""
    over = np.flatnonzero(np.array(run.curve) >= level)
    if not len(over):
        return np.inf
    part = slice(max(over[0] - 1, 0), over[0] + 1)
    return float(np.interp(level, run.curve[part], run.wall_s[part])) / 60


def table(scores: Scores, level: float) -> list[str]:
    """A line for each method on each task, as Markdown; half of the runs came to the level before
    the minutes that are told."""
    to = f"to {level:.0%}"
    lines = [f"| task | method | steps | minutes | {to} | base | after | change, 95% interval |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for task in scores.tasks:
        for agent, runs in runs_of(scores, task):
            ends = np.array([[np.mean(run.final)] for run in runs])
            low, high = stats.interval_of_mean(ends)[:, 0]
            base, minutes = base_of(runs), np.mean([sum(run.took.values()) for run in runs]) / 60
            unit = 100 if runs[0].success else 1
            before, after, *change = unit * np.array(
                [base, ends.mean(), ends.mean() - base, low - base, high - base]
            )
            more, least, most = (f"{x:+,.0f}" for x in change)
            when = np.median([reached(run, level) for run in runs]) if unit == 100 else np.inf
            until = f"{when:.1f}" if when < np.inf else "-"
            sure = f"[{least}, {most}]" if len(ends) > 1 else "(one seed)"
            lines.append(
                f"| {task} | {agent} | {runs[0].steps[-1]:,} | {minutes:.0f} | {until} "
                f"| {before:,.0f} | {after:,.0f} | {more} {sure} |"
            )
    return lines


def figure(scores: Scores) -> Figure:
    """A panel for each task: what episodes came to against minutes, the mean over seeds and its 95%
    interval, a seed that is done keeping its last; the base as a line."""
    whole, axes = figures.panels(len(scores.tasks), 4.2, 3.2)
    colours = figures.colours(scores)
    for ax, task in zip(axes, scores.tasks, strict=False):
        for agent, runs in runs_of(scores, task):
            at, curves = figures.aligned(runs, lambda run: run.wall_s, hold=True)
            if not len(at):
                continue
            low, high = stats.interval_of_mean(curves)
            ax.plot(at / 60, curves.mean(0), color=colours[agent], label=agent)
            ax.fill_between(at / 60, low, high, color=colours[agent], alpha=0.15, lw=0)
            ax.axhline(base_of(runs), color="k", lw=0.8, ls=":")
            ax.set_ylabel("success" if runs[0].success else "return")
        ax.set(title=task, xlabel="minutes")
        if scores.ranges[task][1] == 1:
            ax.set_ylim(0, 1)
    figures.legend(whole, axes)
    return whole
