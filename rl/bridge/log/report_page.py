"""A flight's report as one HTML page, with its pictures in it: states, latency, and each joint."""

import html
import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from rl.bridge.log import report
from rl.bridge.log.report import Told
from rl.bridge.log.review import Span
from rl.spec import Spec

COLOURS = {
    "disconnected": "#9e9e9e", "passive": "#b0bec5", "ready": "#64b5f6", "armed": "#66bb6a",
    "intervene": "#ab47bc", "hold": "#ffa726", "fault": "#e53935",
}  # fmt: skip
WISHED, MEASURED, SENT = "#9e9e9e", "#1f77b4", "#d62728"
POINTS = 400  # of a line; each shows the least and most of what it stands for
COLUMNS = 3
STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1080px; margin: 2em auto;
       padding: 0 1em }
h1 { font-size: 1.5em } h2 { font-size: 1.1em; margin-top: 2em }
table { border-collapse: collapse } td { padding: .15em 1.2em .15em 0; vertical-align: top }
td:first-child { color: #666 } td.n { text-align: right; font-variant-numeric: tabular-nums }
i { display: inline-block; width: .8em; height: .8em; border-radius: .2em; margin-right: .5em }
svg { width: 100%; height: auto } p { color: #666 }
"""


def write(path: Path, told: Told, log: Path) -> None:
    """A page that is not there yet, whole or not at all."""
    spec = told.flight.about.setup.spec
    facts = [*report.summary(told, log), *report.limited(told)]
    ended = [report.ended(told, i, e) for i, e in enumerate(told.episodes)]
    parts = [
        f"<h1>{html.escape(spec.name)}</h1>", _table(facts),
        "<h2>States</h2>", _svg(_band(told.spans)), _states(told.spans),
        "<h2>Episodes</h2>", "".join(f"<div>{html.escape(x)}</div>" for x in ended),
        "<h2>Latency</h2>", _svg(_latency(told)), "<h2>Joints</h2>",
        f"<p>What the policy <b style='color:{WISHED}'>wished for</b>, what was <b style='color:"
        f"{SENT}'>told</b>, what was <b style='color:{MEASURED}'>measured</b>; over the colours of "
        "the states.</p>", _svg(_joints(told, spec)),
    ]  # fmt: skip
    page = f"<!doctype html><meta charset=utf-8><title>{html.escape(log.name)}</title>"
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(page + f"<style>{STYLE}</style>" + "".join(parts), encoding="utf-8")
    os.replace(partial, path)


def _table(rows: list[tuple[str, str]]) -> str:
    cells = (f"<tr><td>{html.escape(name)}<td>{html.escape(text)}" for name, text in rows)
    return f"<table>{''.join(cells)}</table>"


def _states(spans: list[Span]) -> str:
    rows = (
        f"<tr><td class=n>{x.begin:.2f} s<td class=n>{x.end - x.begin:.2f} s"
        f"<td><i style='background:{COLOURS[x.state]}'></i>{x.state}<td>{html.escape(x.why)}"
        for x in spans
    )
    return f"<table>{''.join(rows)}</table>"


def _svg(figure: Any) -> str:
    from matplotlib import rc_context

    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "robotrl"}):
        figure.savefig(file := io.StringIO(), format="svg", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def _figure(height: float) -> Any:
    from matplotlib.figure import Figure  # slow to import, and only needed here

    return Figure(figsize=(11, height), layout="constrained")


def _band(spans: list[Span]) -> Any:
    figure = _figure(0.75)
    axes = figure.add_subplot()
    _shade(axes, spans, 1.0)
    whole = spans[-1].end - spans[0].begin
    for x in spans:
        if x.end - x.begin > whole * 0.012 * len(x.state):
            axes.text((x.begin + x.end) / 2, 0.5, x.state, ha="center", va="center", fontsize=9)
    axes.set(xlim=(spans[0].begin, spans[-1].end), ylim=(0, 1), yticks=[])
    axes.set_xlabel("s")
    return figure


def _shade(axes: Any, spans: list[Span], alpha: float) -> None:
    for x in spans:
        axes.axvspan(x.begin, x.end, color=COLOURS[x.state], alpha=alpha, lw=0)


def _latency(told: Told) -> Any:
    figure = _figure(2.4)
    left, right = figure.subplots(1, 2)
    times = np.array([x.row.now for x in told.lived])
    left.plot(*thinned(times, np.array([1e3 * x.row.late for x in told.lived])), lw=0.8)
    left.set(title="ticks begin so late", xlabel="s", ylabel="ms", xlim=(times[0], times[-1]))
    each = {"at once": told.answers.took, "late, to a tick": told.answers.late}
    there = {name: 1e3 * np.array(x) for name, x in each.items() if x}
    if there:
        edges = np.linspace(0, max(x.max() for x in there.values()) * 1.02, 40)
        right.hist([*there.values()], edges, stacked=True, label=[*there])
        right.legend(fontsize=8)
    right.set(title="the policy's answers", xlabel="ms", ylabel="answers")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    return figure


def _joints(told: Told, spec: Spec) -> Any:
    rows = -(-len(spec.actuators) // COLUMNS)
    figure = _figure(0.4 + 1.55 * rows)
    grid = figure.subplots(rows, COLUMNS, sharex=True, squeeze=False)
    seen = [x for x in told.lived if x.robot]
    sent = [x for x in told.lived if x.row.stages.size]
    wished = [x for x in told.lived if x.moving and x.wish is not None]
    for axes in grid.flat[len(spec.actuators) :]:
        axes.axis("off")
    for i, (motor, axes) in enumerate(zip(spec.actuators, grid.flat, strict=False)):
        _shade(axes, told.spans, 0.18)
        for ticks, numbers, colour in (
            (wished, [x.wish[i] for x in wished], WISHED),  # type: ignore[index]
            (sent, [x.row.stages[-1, i] for x in sent], SENT),
            (seen, _measured(seen, motor.position), MEASURED),
        ):
            if len(numbers):
                times = np.array([x.row.now for x in ticks])
                axes.plot(*thinned(*broken(times, np.array(numbers, float))), colour, lw=0.8)
        axes.set_title(f"{motor.name}, {motor.unit}", fontsize=9)
        axes.tick_params(labelsize=8)
    for axes in grid[-1]:
        axes.set_xlabel("s", fontsize=9)
    grid[0, 0].set_xlim(told.lived[0].row.now, told.lived[-1].row.now)
    return figure


def _measured(seen: list[Any], name: str) -> list[float]:
    return [x.robot.readings[name][0] for x in seen] if name else []


def broken(times: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A line [n] that does not lead over gaps: no number stands before what comes after one."""
    step = np.diff(times)
    gaps = np.flatnonzero(step > 5 * np.median(step)) + 1 if len(step) else np.zeros(0, int)
    return np.insert(times, gaps, times[gaps]), np.insert(numbers, gaps, np.nan)


def thinned(times: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A line of so many points that looks the same: of each part its least and its most."""
    if len(times) <= POINTS:
        return times, numbers
    picked = []
    for part in np.array_split(np.arange(len(times)), POINTS // 2):
        if (fine := part[np.isfinite(numbers[part])]).size:
            picked += sorted({fine[numbers[fine].argmin()], fine[numbers[fine].argmax()]})
        if fine.size < part.size:
            picked.append(part[~np.isfinite(numbers[part])][0])
    picked = np.sort(np.array(picked))
    return times[picked], numbers[picked]
