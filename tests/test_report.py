"""Reports: every number against arithmetic of its own on the run directories, and the page."""

import csv
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import trim_mean

from benchmarks import collect, exports, figures, report, run, scores
from tests.test_compare import made
from tests.test_search import told

TINY = """
about = "A toy & <its> bonus."
steps = 6
last = 3
tasks.Reacher-v5.range = [-5, 10]
tasks.Hopper-v5.range = [0, 30]
tasks.Pusher-v5.range = [-9, 50]
[agents.low]
experiment = "benchmarks.toy"
[agents.high_1]
experiment = "benchmarks.toy"
flags = { bonus = 1.5 }
"""
RANGES = {"Reacher-v5": (-5, 10), "Hopper-v5": (0, 30), "Pusher-v5": (-9, 50)}
NASTY = (r"a|b_c & <d> 50%\#", "x^{2}~$_<b>|&amp;", r"\end{tabular} & | \\")  # task, agents
Cells = dict[str, list[list[str]]]  # of tables by their titles


def markdown(text: str) -> Cells:
    found: Cells = {}
    for part in text.split("### ")[1:]:
        title, *lines = part.splitlines()
        rows = [row[2:-2].split(" | ") for row in lines if row.startswith("|")]
        assert set(rows.pop(1)) == {"---"}
        assert {len(row) for row in rows} == {len(rows[0])}, title
        found[title] = [[x.replace("\\|", "|") for x in row] for row in rows]
    return found


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.texts = list[tuple[str, dict[str, str | None]]](), [["", ""]]
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.texts.append([tag, ""])

    def handle_endtag(self, tag: str) -> None:
        self.texts.append(["", ""])

    def handle_data(self, data: str) -> None:
        self.texts[-1][1] += data

    def of(self, *tags: str) -> list[str]:
        return [text for tag, text in self.texts if tag in tags]


def latex(text: str) -> Cells:
    """The tables, if what LaTeX would stumble over is not there."""
    open_now: list[str] = []
    for word, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        assert word == "begin" or open_now.pop() == name
        open_now += [name] * (word == "begin")
    assert not open_now
    names = {r"\textbackslash{}": "\0", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^"}
    found: Cells = {}
    for part in text.split(r"\begin{table}")[1:]:
        columns = re.findall(r"\\begin\{tabular\}\{(l[lr]*)\}", part)[0]
        inside = part[part.index(r"\toprule") + 8 : part.index(r"\bottomrule")]
        rows = found[re.findall(r"\\caption\{(.*)\}\n", part)[0]] = []
        for row in inside.replace(r"\midrule", "").split(" \\\\\n")[:-1]:
            plain = re.sub("|".join(map(re.escape, (*names, "$<$", "$>$"))), "", row)
            assert not re.search(r"(?<!\\)[%#_$~^{}]|\\[^&%$#_{}]", plain), row
            for spelt, letter in (names | {"$<$": "<", "$>$": ">"}).items():
                row = row.replace(spelt, letter)
            cells = row.strip().split(" & ")
            assert len(cells) == len(columns), row
            rows.append([re.sub(r"\\(.)", r"\1", x).replace("\0", "\\") for x in cells])
    return found


def drawn(matrix: np.ndarray, seed: int = 7) -> np.ndarray:
    """Bootstrap samples [20,000, runs, tasks], by an own draw."""
    rng = np.random.default_rng(seed)
    rows = [row[rng.integers(len(row), size=(20_000, len(row)))] for row in matrix.T]
    return np.stack(rows, axis=-1)


def between(text: str, value: float, samples: np.ndarray) -> None:
    """`value [low, high]`, the ends those of the samples but for the draw."""
    shown, *ends = (x.replace(",", "") for x in re.findall(r"[-+]?[\d,]*\d\.?\d*", text)[:3])
    digits = len(shown.partition(".")[2])
    assert abs(float(shown) - value) <= 0.5 * 10**-digits + 1e-9, (text, value)
    own = np.quantile(samples, [0.025, 0.975])
    np.testing.assert_allclose([*map(float, ends)], own, rtol=0.01, atol=0.06 * np.ptp(own) + 0.006)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of toys of which one task has more seeds, and its report."""
    where = tmp_path_factory.mktemp("suite")
    (where / "tiny.toml").write_text(TINY)
    name, runs = str(where / "tiny.toml"), where / "runs"
    run.main(run.Args(name, "inline", seeds=4, runs=runs))
    run.main(run.Args(name, "inline", seeds=6, only=("Hopper-v5",), runs=runs))
    report.main(report.Args((name,), runs))
    return runs


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on runs whose names are full of letters that mean something."""
    where, rng = tmp_path_factory.mktemp("nasty"), np.random.default_rng(0)
    for name, setting in zip(NASTY[1:], ("<a|b>", "_&"), strict=True):
        facts = {"env": NASTY[0], "algorithm": name, "config": {"s": setting}, "train_s": 60.0}
        made(where / name, rng.normal(size=(4, 5)), rng.normal(3, size=(4, 7)), range(4), **facts)
    (where / "<i>&|_left").mkdir()
    (where / "<i>&|_left" / "metrics.jsonl").write_text("")
    report.main(report.Args((str(where),), out=where / "out", export=tuple(exports.LAYOUTS)))
    return where / "out"


def test_the_three_forms_of_a_table_tell_the_same(tiny: Path, nasty: Path) -> None:
    for out in (tiny / "tiny/report", nasty):
        text = markdown((out / "tables.md").read_text())
        page = Page((out / "index.html").read_text())
        assert list(text) == page.of("h3")
        assert page.of("th", "td") == [x for table in text.values() for row in table for x in row]
        assert len(page.of("tr")) == sum(map(len, text.values()))
        assert latex((out / "tables.tex").read_text()) == text
        assert len(text) == (7 if out == nasty else 8)  # a suite's seeds that are not there yet
    assert {*text["Return"][0], text["Return"][1][0]} == {"task", *NASTY}
    assert {*text["Configurations that differ"][1]} == {"s", "<a|b>", "_&"}
    assert any("<i>&|_left has metrics.jsonl and no manifest.json" in x for x in page.of("li"))


def test_the_page_needs_nothing_else(tiny: Path, nasty: Path) -> None:
    for out in (tiny / "tiny/report", nasty):
        page = Page((out / "index.html").read_text())
        tags = [tag for tag, _ in page.tags]
        assert not {"script", "link", "iframe", "object", "embed", "base", "b", "i"} & {*tags}
        assert tags.count("figure") == tags.count("svg") + tags.count("img") > 6
        assert tags.count("figure") == len(list(out.glob("*.png")))
        for name, value in (item for _, own in page.tags for item in own.items()):
            assert not name.startswith("on")
            if name.split(":")[-1] in ("src", "href", "srcset", "poster", "data"):
                assert str(value).startswith(("data:image/", "#"))
        assert not re.search(r"@import|url\((?!#)", " ".join(page.of("style")))


AGGREGATES: dict[str, Callable[..., np.ndarray]] = {  # of [samples, runs, tasks]
    "IQM": lambda x: trim_mean(x.reshape(len(x), -1), 0.25, axis=1),
    "mean": lambda x: x.mean((1, 2)),
    "median": lambda x: np.median(x.mean(1), axis=-1),
    "optimality gap": lambda x: np.maximum(1 - x, 0).mean((1, 2)),
}


def test_the_numbers_are_those_of_the_directories(tiny: Path) -> None:
    tables = markdown((tiny / "tiny/report/tables.md").read_text())
    values = {a: [np.mean(c[-3:]) for c, _ in own.values()] for a, own in told(tiny).items()}
    both = list[np.ndarray]()
    for i, agent in enumerate(("low", "high_1"), 1):
        for task, count, cells in zip(RANGES, (4, 6, 4), tables["Return"][1:], strict=True):
            own = np.array(values[task, agent])
            assert [cells[0], cells[i].split()[-1], len(own)] == [task, f"({count})", count]
            between(cells[i], own.mean(), drawn(own[:, None]).mean((1, 2)))
        units = [(np.array(values[t, agent][:4]) - a) / (b - a) for t, (a, b) in RANGES.items()]
        both.append(np.stack(units, 1))
        row = dict(zip(*(tables["Over all tasks"][k] for k in (0, i)), strict=True))
        assert (row["agent"], row["steps"], row["seeds"]) == (agent, "6", "4")
        for name, statistic in AGGREGATES.items():
            between(row[name], statistic(both[-1][None])[0], statistic(drawn(both[-1])))
    (one, other, count, gap, chance), *none = tables["Comparisons"][1:]
    assert (one, other, count, none) == ("low", "high_1", "3", [])
    ours, theirs = (np.concatenate([x[None], drawn(x, i)]) for i, x in enumerate(both))
    gaps = AGGREGATES["IQM"](ours) - AGGREGATES["IQM"](theirs)
    between(gap, gaps[0], gaps[1:])
    above = (ours[:, :, None] > theirs[:, None]).mean((1, 2, 3))  # ties are none
    between(chance, above[0], above[1:])


def test_the_files_have_every_seed_and_evaluation(tiny: Path) -> None:
    runs, curves = told(tiny), dict[Any, list[float]]()
    with (tiny / "tiny/report/scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(map(len, runs.values())) == 28
    for row in rows:
        value = np.mean(runs[row["task"], row["agent"]][int(row["seed"])][0][-3:])
        low, high = RANGES[row["task"]]
        found = [float(row["return"]), float(row["normalised"])]
        np.testing.assert_allclose(found, [value, (value - low) / (high - low)], rtol=1e-12)
    with (tiny / "tiny/report/curves.csv").open() as file:
        for row in csv.DictReader(file):
            own = curves.setdefault((row["task"], row["agent"], int(row["seed"])), [])
            own.append(float(row["return"]))
            assert int(row["step"]) == len(own)
    assert curves == {(*arm, seed): c for arm, own in runs.items() for seed, (c, _) in own.items()}


def test_the_layouts_of_others_hold_the_same(nasty: Path) -> None:
    runs = {agent: told(nasty.parent)[NASTY[0], agent] for agent in sorted(NASTY[1:])}
    means = {agent: [np.mean(final) for _, final in own.values()] for agent, own in runs.items()}
    low, *_, high = sorted(np.concatenate([*means.values()]))
    for path in (files := list((nasty / "unifloral/final_returns").glob("*.npz"))):
        agent, found = next(x for x in runs if path.name.startswith(x)), np.load(path)
        when = re.search(r"_(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)", path.name)[1]  # evaluation.py's
        assert path.name.startswith(f"{agent}_{NASTY[0]}_{when}-{found['seed']}")
        final = np.array(runs[agent].pop(int(found["seed"]))[1])
        units = 100 * (final - low) / (high - low)
        for name, x in (("final_returns", final), ("final_scores", units)):
            np.testing.assert_allclose(found[name], x, atol=1e-9)
            np.testing.assert_allclose(found[f"{name}_mean"], x.mean(), atol=1e-9)
            np.testing.assert_allclose(found[f"{name}_std"], x.std(), atol=1e-9)
    assert (len(files), [*runs.values()]) == (8, [{}, {}])
    for name, cells in {
        "result_table": [f"{np.mean(x):.2f} ± {np.std(x):.2f}" for x in means.values()],
        "runtimes": ["1.00", "1.00"],
    }.items():
        with (nasty / f"openrlbenchmark/{name}.csv").open(newline="") as file:
            assert list(csv.reader(file)) == [["", *means], [NASTY[0], *cells]]


def test_a_curve_is_the_mean_of_its_runs(tiny: Path) -> None:
    runs, found = told(tiny), scores.score(collect.collect([tiny]).results, None)
    for axes, task in zip(figures.curves(found, ["low"], False).axes, sorted(RANGES), strict=True):
        means = np.mean([curve for curve, _ in runs[task, "low"].values()], axis=0)
        np.testing.assert_allclose(axes.lines[0].get_xydata(), np.c_[1:7, means], rtol=1e-12)


def test_what_cannot_be_reported_on_is_refused(tmp_path: Path) -> None:
    here, none = (str(tmp_path),), tmp_path / "out"
    for args, why in [
        (report.Args(()), "Report on what"), (report.Args(("x",)), "There is no suite x"),
        (report.Args(here, out=none), "Nothing that is done"), (report.Args(here, last=0), "is 0"),
        (report.Args(here, out=none, export=("x",)), "--export x: it takes"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=why):
            report.main(args)
    assert not none.exists()
