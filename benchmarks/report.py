"""python -m benchmarks report SUITE|DIRS: tables, figures and a page, of run directories alone."""

import base64
import html
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated

import matplotlib as mpl
import numpy as np
import tyro
from matplotlib.figure import Figure

from benchmarks import collect, exports, figures, going_on, suite, tables
from benchmarks.collect import Collected
from benchmarks.scores import Scores, gathered, score
from benchmarks.suite import Suite, pairs_of
from benchmarks.tables import Table
from rl import manifest
from rl.adastop import AdaStop, Pair

MADE = '<meta name=generator content="python -m benchmarks report">'
STYLE = """
:root { color-scheme: light dark; --line: #8884; --dim: #777; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
h1 { margin-bottom: 0; } h2 { margin-top: 2em; border-bottom: 1px solid var(--line); }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: .25em .8em .25em 0; text-align: right; border-bottom: 1px solid var(--line); }
th { vertical-align: bottom; } th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; } .note { color: var(--dim); font-size: 13px; }
figure { margin: 1em 0; }
figure svg, figure img { max-width: 100%; height: auto; background: #fff; }
td { white-space: nowrap; } summary { cursor: pointer; margin: 1em 0; font-weight: bold; }
.text { text-align: left; }
figcaption { color: var(--dim); font-size: 13px; } li { margin: .2em 0; }
"""


@dataclass(frozen=True)
class Args:
    """Report on a suite, or on any directories of runs and files of records."""

    what: Annotated[tuple[str, ...], tyro.conf.Positional]  # a suite, or directories and .jsonl
    runs: Path = Path("runs")  # where a suite's are
    out: Path | None = None  # a folder; runs/SUITE/report, or ./report
    last: int = 1  # evaluations that a score is the mean of, where no suite says it
    export: tuple[str, ...] = ()  # openrlbenchmark, unifloral: also in their layouts
    records: Path | None = None  # also put the results into this file of records


def main(args: Args) -> None:
    if not args.what:
        raise ValueError(f"Report on what? A suite ({', '.join(suite.names())}), or directories.")
    if args.last < 1:
        raise ValueError(f"--last is {args.last}; it needs at least 1.")
    if unknown := set(args.export) - exports.LAYOUTS.keys():
        raise ValueError(f"--export {unknown.pop()}: it takes {' and '.join(exports.LAYOUTS)}.")
    named, found = gather(args)
    found = judged(found, named.last if named else args.last)
    for path, why in found.left_out:
        print(f"left out {path}: {why}")
    if not found.results:
        mend = f" Begin with python -m benchmarks run {named.name}." if named else ""
        raise ValueError(f"Nothing that is done was found of {', '.join(args.what)}.{mend}")
    scores = score(found.results, named, args.last)
    out = folder(args.out or (args.runs / named.name / "report" if named else Path("report")))
    pairs = pairs_of(named) if named else list(combinations(scores.agents, 2))
    pairs = [pair for pair in pairs if scores.common(pair)]
    results, making = contents(scores, named, pairs)
    drawn = dict(drawings(scores, pairs))
    title = f"Suite {named.name}" if named else f"Report on {', '.join(args.what)}"
    about = named.about if named else ""
    # The page first, for it marks the folder as a report's.
    (out / "index.html").write_text(page(title, about, results, making, drawn, found))
    every = [*results, *making]
    (out / "tables.md").write_text("\n\n".join(table.markdown() for table in every) + "\n")
    (out / "tables.tex").write_text("\n\n".join(table.latex() for table in every) + "\n")
    for kind in ("curves", "time", "efficiency"):  # of budgets that are there no longer
        for path in out.glob(f"{kind}-[0-9]*.png"):
            path.unlink()
    for name, (figure, _) in drawn.items():
        figure.savefig(out / f"{name}.png", dpi=110)
    exports.csv(out, scores)
    for layout in args.export:
        exports.LAYOUTS[layout](out / layout, scores)
    if args.records:
        collect.write(args.records, found.results, instead=bool(named))
    print("\n\n".join(brief(table) for table in results))
    print(f"\npage     {out / 'index.html'}")


def gather(args: Args) -> tuple[Suite | None, Collected]:
    """The results that are asked for, and the suite if it is one."""
    first, *rest = args.what
    is_path = Path(first).exists() or "/" in first
    if rest or first.endswith(".jsonl") or (is_path and not first.endswith(".toml")):
        return None, collect.collect(map(Path, args.what))
    named = suite.read(first)
    kept = suite.HERE / "results" / f"{named.name}.jsonl"
    return named, gathered(named, args.runs, [kept] if kept.exists() else [])


def folder(out: Path) -> Path:
    """Where a report goes: a folder that is new, empty or an earlier report's."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file; a report needs a folder.")
    page = out / "index.html"
    if out.is_dir() and any(out.iterdir()) and not (page.exists() and MADE in page.read_text()):
        raise ValueError(f"{out} has files that are no report's: give --out a folder of its own.")
    out.mkdir(parents=True, exist_ok=True)
    return out


def brief(table: Table) -> str:
    """A table on a terminal, or where it is."""
    if len(table.rows) <= tables.LONG:
        return table.markdown()
    return f"### {table.title}\n\n{len(table.rows)} lines: on the page, and in tables.md"


def judged(found: Collected, last: int) -> Collected:
    """The runs that have a score, the others being left out."""
    kept, others = [], list(found.left_out)
    for result in found.results:
        if np.isfinite(result.score(last)):
            kept.append(result)
        else:
            where = Path(result.task, result.agent, f"seed_{result.seed}")
            others.append((where, f"has no score: of its last {last} evaluations one is missing"))
    return Collected(kept, others)


def contents(
    scores: Scores, named: Suite | None, pairs: Sequence[Pair]
) -> tuple[list[Table], list[Table]]:
    """What came of it and how it was made: every table that has something to say."""
    results = [
        tables.returns(scores), tables.aggregates(scores), tables.comparisons(scores, pairs),
        tables.decisions(scores, pairs, named.adastop if named else AdaStop()),
        going_on.falls(scores), going_on.reached(scores, pairs),
        *([tables.missing(scores, named)] if named else []),
    ]  # fmt: skip
    making = [tables.runtimes(scores), tables.provenance(scores), tables.configurations(scores)]
    return [table for table in results if table.rows], [table for table in making if table.rows]


def drawings(scores: Scores, pairs: Sequence[Pair]) -> Iterator[tuple[str, tuple[Figure, str]]]:
    """Every figure by its file's name, and what it shows."""
    for steps, agents in figures.budgets(scores).items():
        about = f"of {steps:,} environment steps, with 95% bootstrap intervals"
        if without := figures.without_curves(scores, steps):
            about += f"; of {', '.join(without)} no curve is known"
        name = f"{steps:g}".replace("+", "")
        yield (
            f"curves-{name}",
            (figures.curves(scores, agents, False), f"Mean {scores.what} {about}"),
        )
        timed = {arm[1] for arm, own in scores.runs.items() if any(run.wall_s for run in own)}
        if timed & {*agents}:
            drawn, untimed = figures.curves(scores, agents, True), sorted({*agents} - timed)
            more = f"; of {', '.join(untimed)} no times are known" if untimed else ""
            yield f"time-{name}", (drawn, f"The same against wall time, {about}{more}")
        drawn = figures.efficiency(scores, agents)
        yield f"efficiency-{name}", (drawn, f"Sample efficiency: IQM over the tasks {about}")
    yield "intervals", (figures.intervals(scores), "Aggregates over all tasks")
    yield "profiles", (figures.profiles(scores), "Performance profiles")
    if pairs:
        yield "improvement", (figures.improvement(scores, pairs), "Probability of improvement")
    if any(run.took for run in scores.all()):
        yield "runtime", (figures.runtimes(scores), "What a run takes, medians over seeds")


def page(
    title: str,
    about: str,
    results: Sequence[Table],
    making: Sequence[Table],
    drawn: dict[str, tuple[Figure, str]],
    found: Collected,
) -> str:
    """All of it as one page that needs nothing else."""
    pictures = "\n".join(
        f"<figure>{vector(figure)}<figcaption>{html.escape(said)}</figcaption></figure>"
        for figure, said in drawn.values()
    )
    left = "".join(f"<li>{html.escape(f'{path}: {why}')}</li>" for path, why in found.left_out)
    left = f"<h2>Left out</h2><ul>{left}</ul>" if left else ""
    first, last = ("".join(table.page() for table in own) for own in (results, making))
    return f"""<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">
{MADE}
<title>{html.escape(title)}</title><style>{STYLE}</style>
<h1>{html.escape(title)}</h1><p>{html.escape(about)}</p>
<p class=note>{len(found.results)} runs, {manifest.now()}. Scores are last or averaged-last
evaluations, never the best.</p>
<h2>Results</h2>{first}<h2>Figures</h2>{pictures}
<h2>How it was made</h2>{last}{left}
</html>
"""


def vector(figure: Figure) -> str:
    """A figure as SVG, or as a picture where that is smaller."""
    drawing, picture = io.StringIO(), io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "none", "font.family": "sans-serif"}):
        figure.savefig(drawing, format="svg")
    svg = drawing.getvalue()
    svg = svg[svg.index("<svg") :]
    if len(svg) < 150_000:
        return svg
    figure.savefig(picture, format="png", dpi=110)
    return f'<img src="data:image/png;base64,{base64.b64encode(picture.getvalue()).decode()}">'
