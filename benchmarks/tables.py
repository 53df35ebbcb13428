"""The tables of a report, as Markdown, LaTeX and HTML."""

import html
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.collect import Result
from benchmarks.scores import Scores
from benchmarks.stop import verdicts
from benchmarks.suite import Suite
from rl import manifest, stats
from rl.adastop import AdaStop, Pair

AGGREGATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "IQM": stats.iqm, "mean": stats.mean, "median": stats.median,
    "optimality gap": stats.optimality_gap,
}  # fmt: skip
TIMES = 5_000  # bootstrap samples
LONG = 40  # rows, of a table that is folded up


class Table(NamedTuple):
    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    note: str = ""

    def markdown(self) -> str:
        cells = [self.head, ("---",) * len(self.head), *self.rows]
        lines = ["| " + " | ".join(x.replace("|", "\\|") for x in row) + " |" for row in cells]
        return "\n".join([f"### {self.title}", "", *lines, *(["", self.note] if self.note else [])])

    def latex(self) -> str:
        def line(row: Sequence[str]) -> str:
            return " & ".join(map(_tex, row)) + r" \\"

        align = "".join("l" if text else "r" for text in self._texts())
        body = [line(self.head), r"\midrule", *map(line, self.rows)]
        return "\n".join([
            r"\begin{table}", r"\centering", rf"\caption{{{_tex(self.title)}}}",
            rf"\begin{{tabular}}{{{align}}}", r"\toprule", *body, r"\bottomrule",
            r"\end{tabular}", *([rf"\par\smallskip {_tex(self.note)}"] if self.note else []),
            r"\end{table}",
        ])  # fmt: skip

    def page(self) -> str:
        marks = [" class=text" if text else "" for text in self._texts()]

        def line(row: Sequence[str], cell: str) -> str:
            cells = zip(row, marks, strict=True)
            return f"<tr>{''.join(f'<{cell}{m}>{html.escape(x)}</{cell}>' for x, m in cells)}</tr>"

        body = "\n".join(line(row, "td") for row in self.rows)
        note = f"<p class=note>{html.escape(self.note)}</p>" if self.note else ""
        head, title = line(self.head, "th"), html.escape(self.title)
        table = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
        shown = f"<h3>{title}</h3><div class=wide>{table}</div>{note}"
        if len(self.rows) <= LONG:
            return shown
        said = f"{title}: {len(self.rows)} lines"
        return f"<details><summary>{said}</summary>{shown}</details>"

    def _texts(self) -> list[bool]:
        """Whether each column is one of words."""
        columns = zip(*self.rows, strict=True)
        return [i == 0 or any(x[:1].isalpha() for x in own) for i, own in enumerate(columns)]


SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "<": "$<$", ">": "$>$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(SPECIAL.get(letter, letter) for letter in text)


def number(x: float) -> str:
    """A return or a score, short."""
    if not np.isfinite(x):
        return "-"
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}"


def between(low: float, high: float) -> str:
    return f"[{number(low)}, {number(high)}]"


def returns(scores: Scores) -> Table:
    """Mean return of each agent on each task, with its interval and number of seeds."""
    rows = []
    for task in scores.tasks:
        cells = []
        for agent in scores.agents:
            found = scores.returns(task, agent)
            if not len(found):
                cells.append("-")
                continue
            low, high = stats.interval_of_mean(found[:, None])[:, 0]
            cells.append(f"{number(found.mean())} {between(low, high)} ({len(found)})")
        rows.append((task, *cells))
    what = "last evaluation" if scores.last == 1 else f"mean of the last {scores.last} evaluations"
    note = f"Mean of the {what} over seeds, 95% bootstrap interval, and number of seeds."
    if any(1 < len(runs) < 4 for runs in scores.runs.values()):
        note += (
            " Of three seeds or two that interval is from the least to the most, and too narrow."
        )
    return Table(scores.what.capitalize(), ("task", *scores.agents), rows, note)


def aggregates(scores: Scores) -> Table:
    """IQM and the like of each agent over the tasks that all have."""
    tasks, rows = scores.common(scores.agents), []
    for agent in scores.agents:
        found = scores.normalised(agent, tasks)
        if not found.size:
            continue
        cells = []
        for statistic in AGGREGATES.values():
            low, high = stats.bootstrap(statistic, found, times=TIMES)
            cells.append(f"{statistic(found):.2f} [{low:.2f}, {high:.2f}]")
        rows.append((agent, scores.span(agent), str(len(found)), *cells))
    unit = (
        "the ranges of the suite"
        if scores.ranged
        else f"the least and greatest {scores.what} of a run"
    )
    note = (
        f"Over {', '.join(tasks)}, in units of {unit}, with stratified 95% bootstrap intervals; of "
        "each task as many seeds as of the one that has fewest."
    )
    return Table("Over all tasks", ("agent", "steps", "seeds", *AGGREGATES), rows, note)


def comparisons(scores: Scores, pairs: Sequence[Pair]) -> Table:
    """How pairs of agents differ over their tasks."""
    rows = []
    for one, other in pairs:
        tasks = scores.common((one, other))
        ours, theirs = (scores.normalised(agent, tasks) for agent in (one, other))
        if not tasks or not ours.size or not theirs.size:
            continue
        gap, *ends = difference(ours, theirs)
        chance = stats.probability_of_improvement(ours, theirs)
        low, high = stats.bootstrap(stats.probability_of_improvement, ours, theirs, times=TIMES)
        rows.append((
            one, other, str(len(tasks)), f"{gap:+.2f} [{ends[0]:+.2f}, {ends[1]:+.2f}]",
            f"{chance:.2f} [{low:.2f}, {high:.2f}]",
        ))  # fmt: skip
    note = (
        "Difference of IQMs, and the chance that a run of the first scores above one of the "
        "second, with stratified 95% bootstrap intervals."
    )
    head = ("agent", "against", "tasks", "difference of IQM", "probability of improvement")
    return Table("Comparisons", head, rows, note)


def decisions(scores: Scores, pairs: Sequence[Pair], adastop: AdaStop) -> Table:
    """What AdaStop decides of each task, and after how many seeds."""
    rows = []
    for task in scores.tasks:
        returns = {agent: scores.returns(task, agent).tolist() for agent in scores.agents}
        there = [pair for pair in pairs if all(returns.get(agent) for agent in pair)]
        found = verdicts(adastop, returns, there, len(scores.tasks))
        for pair, (said, seeds) in found.items():
            rows.append((task, *pair, said, str(seeds) if seeds else "too few"))
    note = (
        f"AdaStop looks at the means after every {adastop.group} seeds, {adastop.groups} times at "
        f"the most; the chance that any decision in this table is false is {adastop.alpha:.0%} at "
        "the most."
    )
    return Table("Decisions", ("task", "agent", "against", "is", "seeds"), rows, note)


def difference(ours: np.ndarray, theirs: np.ndarray) -> tuple[float, float, float]:
    """Of the IQMs, and its interval."""

    def gap(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
        return stats.iqm(ours) - stats.iqm(theirs)

    low, high = stats.bootstrap(gap, ours, theirs, times=TIMES)
    return float(gap(ours, theirs)), float(low), float(high)


def missing(scores: Scores, suite: Suite) -> Table:
    """Seeds that a suite asks for and that have not been run."""
    rows = []
    for task in suite.tasks:
        for name, agent in suite.agents.items():
            there = len(scores.runs.get((task, name), ()))
            if there < suite.seeds and not agent.published:
                rows.append((task, name, str(there), str(suite.seeds)))
    return Table("Not there yet", ("task", "agent", "seeds", "of"), rows)


def runtimes(scores: Scores) -> Table:
    """What runs took, medians over the seeds."""
    rows = []
    for (task, agent), runs in scores.runs.items():
        if not any(sum(run.took.values()) for run in runs):
            continue
        took = {on: [run.took.get(on, np.nan) for run in runs] for on in ("compile", "train")}
        rate = [x.steps[-1] / x.took["train"] for x in runs if x.steps and x.took.get("train")]
        memory = [run.about.get("memory_gb") or np.nan for run in runs]
        cells = [*took.values(), rate, memory]
        rows.append((task, agent, *(number(float(np.median(x))) if x else "-" for x in cells)))
    head = ("task", "agent", "compile s", "train s", "steps/s", "memory GB")
    return Table("Time", head, rows, "Medians over seeds, as the runs were made, others beside.")


def provenance(scores: Scores) -> Table:
    """Where runs come from: a line for each combination of commit, machine and versions."""
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for agent, result in [(arm[1], run) for arm, own in scores.runs.items() for run in own]:
        if scores.is_published(agent):
            continue
        git, machine = result.about.get("git") or {}, result.about.get("machine") or {}
        commit = (git.get("commit") or "unknown")[:10] + (" changed" if git.get("dirty") else "")
        where = f"{machine['cpu']} x {machine.get('usable_cores', '?')}" if machine else "unknown"
        packages = result.about.get("packages") or {}
        versions = ", ".join(f"{x} {packages[x]}" for x in ("jax", "mujoco") if x in packages)
        kinds.setdefault((agent, commit, where, versions), []).append(result)
    rows = [(*kind, str(len(own))) for kind, own in sorted(kinds.items())]
    return Table("Provenance", ("agent", "commit", "machine", "versions", "runs"), rows)


def configurations(scores: Scores) -> Table:
    """The settings in which agents differ; of a run of each on one task."""
    first: dict[str, dict[str, Any]] = {}
    for (_, agent), own in scores.runs.items():
        if own[0].config:
            first.setdefault(agent, dict(manifest.flat(own[0].config)))
    names = sorted({name for config in first.values() for name in config})
    own = {"env", *manifest.HOST}
    rows = []
    for name in names:
        values = [str(config.get(name, "-")) for config in first.values()]
        if len(set(values)) > 1 and name.split(".")[0] not in own:
            rows.append((name, *values))
    return Table("Configurations that differ", ("setting", *first), rows)
