"""The figures of a report; every band is a 95% bootstrap interval over seeds."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from benchmarks.collect import SPENT, Result
from benchmarks.scores import Scores
from benchmarks.tables import AGGREGATES, number
from rl import stats
from rl.adastop import Pair

POINTS = 60  # of a curve, at most
TIMES = 1_000  # bootstrap samples of a curve's point
COLUMNS = 4  # of panels, at most


def colours(scores: Scores) -> dict[str, Any]:
    """One for each agent, the same in all figures."""
    table = colormaps["tab10" if len(scores.agents) <= 10 else "tab20"]
    return {agent: table(i % table.N) for i, agent in enumerate(scores.agents)}


def budgets(scores: Scores) -> dict[int, list[str]]:
    """Agents that have curves, by their environment steps."""
    found: dict[int, list[str]] = {}
    judged = {arm[1] for arm, own in scores.runs.items() if any(len(r.curve) > 1 for r in own)}
    for agent in scores.agents:
        if agent in judged:
            found.setdefault(_about(scores.steps(agent)), []).append(agent)
    return dict(sorted(found.items()))


def without_curves(scores: Scores, steps: int) -> list[str]:
    """Agents of that many steps that are known by their ends alone."""
    shown = {agent for own in budgets(scores).values() for agent in own}
    return [x for x in scores.agents if x not in shown and _about(scores.steps(x)) == steps]


def _about(steps: int) -> int:
    """To two digits: runs end with whole phases."""
    return int(float(f"{steps:.1e}"))


def panels(count: int, width: float = 3.1, height: float = 2.6) -> tuple[Figure, list[Any]]:
    columns = min(count, COLUMNS)
    rows = -(-count // columns)
    figure = Figure(figsize=(max(width * columns, 4.5), height * rows + 0.4), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for extra in axes[count:]:
        extra.set_visible(False)
    for ax in axes[:count]:
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
        ax.xaxis.get_offset_text().set_fontsize(8)
        ax.use_sticky_edges = False  # a bar that ends at an axis looks cut off
    return figure, list(axes[:count])


def aligned(
    runs: Sequence[Result], along: Callable[[Result], Sequence[float]], *, hold: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Points [P] and returns [runs, P], interpolated where runs were judged at others.

    As far as all runs have been or, with `hold`, as far as any, the others keeping their last.
    """
    runs = [run for run in runs if len(run.curve) > 1 and len(along(run)) == len(run.curve)]
    if not runs:
        return np.array([]), np.array([])
    own = [np.asarray(along(run), float) for run in runs]
    first, end = max(x[0] for x in own), (max if hold else min)(x[-1] for x in own)
    if end <= first:
        return np.array([]), np.array([])
    same = all(len(x) == len(own[0]) and np.array_equal(x, own[0]) for x in own)
    at = own[0] if same and len(own[0]) <= POINTS else np.linspace(first, end, POINTS)
    return at, np.array([np.interp(at, x, run.curve) for x, run in zip(own, runs, strict=True)])


def curves(scores: Scores, agents: Sequence[str], wall: bool) -> Figure:
    """Mean return on each task against environment steps, or against minutes."""
    figure, axes = panels(len(scores.tasks))
    colour = colours(scores)
    for ax, task in zip(axes, scores.tasks, strict=True):
        for agent in agents:
            along = (lambda run: run.wall_s) if wall else (lambda run: run.steps)
            at, returns = aligned(scores.runs.get((task, agent), ()), along, hold=wall)
            if not len(at):
                continue
            low, high = stats.bootstrap(lambda x: x.mean(1), returns, times=TIMES)
            at = at / 60 if wall else at
            ax.plot(at, returns.mean(0), color=colour[agent], label=agent)
            ax.fill_between(at, low, high, color=colour[agent], alpha=0.2, linewidth=0)
        ax.set_title(task, fontsize=9)
        ax.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4))
    figure.supxlabel("minutes" if wall else "environment steps", fontsize=9)
    figure.supylabel(scores.what, fontsize=9)
    legend(figure, axes)
    return figure


def legend(figure: Figure, axes: Sequence[Any]) -> None:
    """One of all panels, above them."""
    named = {}
    for ax in axes:
        named |= dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    if named:
        widest = 0.5 + 0.07 * max(map(len, named))  # inches of an entry, about
        columns = max(min(len(named), 6, int(figure.get_figwidth() / widest)), 1)
        figure.legend(
            named.values(), named.keys(), loc="outside upper center", ncols=columns, fontsize=8,
            frameon=False,
        )  # fmt: skip


def intervals(scores: Scores) -> Figure:
    """Each agent's aggregates over the tasks that all have."""
    tasks = scores.common(scores.agents)
    agents = [agent for agent in scores.agents if scores.normalised(agent, tasks).size]
    figure, axes = panels(len(AGGREGATES), height=0.6 + 0.28 * len(agents))
    for ax, (name, statistic) in zip(axes, AGGREGATES.items(), strict=True):
        for i, agent in enumerate(reversed(agents)):
            found = scores.normalised(agent, tasks)
            low, high = stats.bootstrap(statistic, found, times=TIMES)
            ax.barh(i, high - low, left=low, height=0.6, color=colours(scores)[agent], alpha=0.5)
            ax.plot([statistic(found)] * 2, [i - 0.3, i + 0.3], color="k", lw=1.5)
        ax.set_title(name, fontsize=9)
        ax.set_yticks(range(len(agents)), reversed(agents) if ax is axes[0] else [])
    figure.supxlabel(f"normalised {scores.what}", fontsize=9)
    return figure


def profiles(scores: Scores) -> Figure:
    """Share of runs that score above each level."""
    figure, axes = panels(1, 5.5, 3.2)
    tasks = scores.common(scores.agents)
    for agent in scores.agents:
        found = scores.normalised(agent, tasks)
        if not found.size:
            continue
        levels = np.linspace(min(0, found.min()), max(1, found.max()), 60)

        def profile(x: np.ndarray, levels: np.ndarray = levels) -> np.ndarray:
            return stats.performance_profile(x, levels)

        low, high = stats.bootstrap(profile, found, times=TIMES)
        axes[0].plot(levels, profile(found), color=colours(scores)[agent], label=agent)
        axes[0].fill_between(levels, low, high, color=colours(scores)[agent], alpha=0.2, lw=0)
    axes[0].set_xlabel(f"normalised {scores.what} above", fontsize=9)
    axes[0].set_ylabel("share of runs", fontsize=9)
    legend(figure, axes)
    return figure


def improvement(scores: Scores, pairs: Sequence[Pair]) -> Figure:
    """The chance that a run of the first of a pair scores above one of the second."""
    figure, axes = panels(1, 6.0, 0.8 + 0.3 * len(pairs))
    for i, (one, other) in enumerate(reversed(pairs)):
        tasks = scores.common((one, other))
        both = [scores.normalised(agent, tasks) for agent in (one, other)]
        if not all(found.size for found in both):
            continue
        low, high = stats.bootstrap(stats.probability_of_improvement, *both, times=TIMES)
        axes[0].barh(i, high - low, left=low, height=0.6, color=colours(scores)[one], alpha=0.5)
        middle = stats.probability_of_improvement(*both)
        axes[0].plot([middle] * 2, [i - 0.3, i + 0.3], color="k", lw=1.5)
    axes[0].axvline(0.5, color="k", ls=":", lw=1)
    axes[0].set_xlim(0, 1)
    names = [f"{one} > {other}" for one, other in reversed(pairs)]
    axes[0].set_yticks(range(len(pairs)), names, fontsize=8)
    axes[0].margins(y=0.02)
    axes[0].set_xlabel("probability of improvement", fontsize=9)
    return figure


def efficiency(scores: Scores, agents: Sequence[str]) -> Figure:
    """IQM over the tasks against environment steps."""
    figure, axes = panels(1, 5.5, 3.2)
    for agent in agents:
        tasks = scores.common([agent])
        found = [aligned(scores.runs[task, agent], lambda run: run.steps) for task in tasks]
        found = [(at, returns) for at, returns in found if len(at)]
        if len(found) < len(tasks) or not found:
            continue
        first, end = max(at[0] for at, _ in found), min(at[-1] for at, _ in found)
        if end <= first:
            continue
        least = min(len(returns) for _, returns in found)
        steps = np.linspace(first, end, min(POINTS, max(len(at) for at, _ in found)))
        each = [
            [scores.scaled(task, np.interp(steps, at, row)) for row in returns[:least]]
            for task, (at, returns) in zip(tasks, found, strict=True)
        ]
        matrix = np.moveaxis(np.array(each), 0, 1)  # [runs, tasks, P]
        low, high = stats.bootstrap(stats.sample_efficiency, matrix, times=TIMES // 2)
        middle = stats.sample_efficiency(matrix)
        axes[0].plot(steps, middle, color=colours(scores)[agent], label=agent)
        axes[0].fill_between(steps, low, high, color=colours(scores)[agent], alpha=0.2, lw=0)
    axes[0].set_xlabel("environment steps", fontsize=9)
    axes[0].set_ylabel(f"IQM of normalised {scores.what}", fontsize=9)
    legend(figure, axes)
    return figure


def runtimes(scores: Scores) -> Figure:
    """Minutes of a run, median over seeds, by what they went to."""
    figure, axes = panels(1, 6.5, 0.8 + 0.2 * len(scores.runs))
    timed = {arm: own for arm, own in scores.runs.items() if any(sum(r.took.values()) for r in own)}
    names = [f"{task} {agent}" for task, agent in timed]
    left = np.zeros(len(timed))
    for on in SPENT:
        took = [np.median([run.took.get(on, 0) for run in own]) / 60 for own in timed.values()]
        axes[0].barh(names, took, left=left, label=on)
        left += took
    for i, x in enumerate(left):
        axes[0].text(x, i, f" {number(x)}", va="center", fontsize=7)
    axes[0].invert_yaxis()
    axes[0].margins(y=0.02)
    axes[0].set_xlabel("minutes", fontsize=9)
    legend(figure, axes)
    return figure


def learned(tasks: dict[str, list[Result]], counted: str = "environment steps") -> Figure:
    """The means of curves against steps on each task, with the 95% bootstrap interval of seeds."""
    columns = min(len(tasks), COLUMNS)
    rows = -(-len(tasks) // columns)
    whole = Figure(figsize=(1 + 2.8 * columns, 2.8 * rows), layout="constrained")
    grid = whole.subplots(rows, columns, squeeze=False).ravel()
    for axes, (task, seeds) in zip(grid, tasks.items(), strict=False):
        steps, curves = np.array(seeds[0].steps) / 1e3, np.array([x.curve for x in seeds])
        low, high = stats.interval_of_mean(curves)
        axes.plot(steps, curves.mean(0))
        axes.fill_between(steps, low, high, alpha=0.2)
        axes.set(title=task, xlabel=f"thousand {counted}", ylabel="return")
        if seeds[0].success:
            axes.set(ylabel="success", ylim=(0, 1))
        axes.grid(alpha=0.3)
    for axes in grid[len(tasks) :]:
        axes.remove()
    return whole
