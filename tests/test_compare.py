"""Comparisons, and what is compared: run directories and records of them."""

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks import collect, compare, report, scores
from rl import record, stats
from tests.test_search import told


def made(out: Path, curve: Any, final: Any, seeds: Any = (0,), **facts: Any) -> Path:
    """A run's directory, done: curve [seeds, K] and final [seeds, episodes]."""
    curve, final = np.array(curve, float), np.array(final, float)
    facts = {"algorithm": "agent", "env": "task", "config": {"lr": 1.0}} | facts
    with record.Record(out, 100 * curve.shape[1], seeds=list(seeds), **facts) as log:
        for k, column in enumerate(curve.T, 1):
            log.evaluated(100 * k, column[:, None], np.ones((len(curve), 1)))
        log.update(status="done", eval_returns=final.tolist())
    return out


@pytest.mark.parametrize("levels", [0.05, 0.3, 0.7])
def test_equal_agents_differ_by_chance_as_often_as_is_said(levels: float) -> None:
    rng = np.random.default_rng(0)
    draws = [(rng.gamma(1, 1, (6, 2)), rng.gamma(1, 1, (5, 2))) for _ in range(400)]
    chances = [stats.chance_of_difference(*both, seed=i, times=199) for i, both in enumerate(draws)]
    low, high = binom.ppf([0.002, 0.998], 400, levels)
    assert low <= np.sum(np.array(chances) <= levels) <= high


@pytest.mark.parametrize("sizes", [(3, 3, 1), (3, 2, 2), (2, 4, 2), (1, 3, 3)])
def test_the_chance_is_that_of_all_exchanges(sizes: tuple[int, int, int]) -> None:
    count, others, tasks = sizes
    for seed in range(5):
        both = np.random.default_rng(seed).normal(size=(count + others, tasks))
        gaps = []
        for chosen in product(combinations(range(count + others), count), repeat=tasks):
            own = [both[list(c), i].mean() for i, c in enumerate(chosen)]
            rest = [np.delete(both[:, i], c).mean() for i, c in enumerate(chosen)]
            gaps.append(abs(np.mean(own) - np.mean(rest)))
        ours, theirs = both[:count], both[count:]
        chance = np.mean(np.array(gaps) >= abs(ours.mean() - theirs.mean()) - 1e-9)
        found = stats.chance_of_difference(ours, theirs)
        assert abs(found - chance) < 5 * np.sqrt(chance * (1 - chance) / 10_000) + 2e-4
        assert stats.chance_of_difference(8 * ours, 8 * theirs) == found
        assert abs(stats.chance_of_difference(theirs, ours) - found) < 0.03


def test_words_fit_what_was_planted() -> None:
    rng = np.random.default_rng(0)
    a = [rng.normal(0, 1e4, 6), rng.normal(0, 1, 8), rng.normal(0, 1, 6)]  # in their own units
    b = [rng.normal(0, 1e4, 7), rng.normal(9, 1, 6), rng.normal(9, 1, 6)]  # differ in the small
    assert compare.verdict(a, b, 0.025) == "worse"
    assert compare.verdict(b, a, 0.025) == "better"
    assert compare.verdict(a, [x * (1 + 4e-6) for x in a], 0.025) == "the same"
    assert compare.verdict(a, [x[::-1] for x in a], 0.025) == "not told apart"
    words = [
        compare.verdict(list(rng.normal(3, 2, (2, 5))), list(rng.normal(3, 2, (2, 7))), 0.025)
        for _ in range(100)
    ]
    assert words.count("not told apart") >= 90
    few = "of too few seeds to tell"
    assert compare.verdict([np.zeros(4)], [1e3 + np.arange(4.0)], 0.025) == few
    order = ["worse", "better", "not told apart", few, "the same"]
    assert all(compare.together([x, y]) == min(x, y, key=order.index) for x in order for y in order)


def test_the_level_is_shared_by_score_curve_and_agents() -> None:
    sides = [
        [collect.Result("", "task", "x", "", i, (1,), (), (0.0,), (gap + i,)) for i in range(4)]
        for gap in (0.0, 9.0)
    ]  # 2 of 70 exchanges differ as much: a chance of 0.029
    for alpha, agents, word in [(0.08, 1, "worse"), (0.08, 2, ""), (0.04, 1, "")]:
        found = compare.compared(*sides, compare.Args("", "", alpha=alpha), agents)[1]
        assert found == (word or "of too few seeds to tell")


def sides(where: Path, gap: float) -> tuple[str, str]:
    """Two sets of directories: the second has more, on the last evaluation alone."""
    rng = np.random.default_rng(0)
    for side, more in (("a", 0.0), ("b", gap)):
        for task in ("one", "two", f"only-{side}"):
            curve, final = rng.normal(size=(6, 4)), rng.normal(more, 1, (6, 3))
            made(where / side / task, curve, final, range(6), env=task, algorithm="x")
    (where / "a" / "half").mkdir()
    (where / "a" / "half" / "evals.jsonl").write_text("")
    return str(where / "a"), str(where / "b")


def test_a_comparison_tells_what_lies_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = sides(tmp_path, 4.0)
    capsys.readouterr()
    compare.main(compare.Args(a, b))
    said = capsys.readouterr().out
    assert "x: A is worse" in said
    assert "half has evals.jsonl and no manifest.json" in said
    assert all(f"left out only-{x}: only {x.upper()} has it" in said for x in "ab")
    rows = [line[2:-2].split(" | ") for line in said.splitlines() if line.startswith("| ")][2:]
    runs = [told(Path(side)) for side in (a, b)]
    assert [row[:2] for row in rows] == [
        [t, x] for x in ("score", "curve") for t in ("one", "two", "all")
    ]
    assert [row[-1] for row in rows if row[1] == "score"] == ["worse"] * 3
    for task, kind, *means, gap, seeds, _ in [row for row in rows if row[0] != "all"]:
        own = [
            np.mean([np.mean(x[kind == "score"]) for x in side[task, "x"].values()])
            for side in runs
        ]
        shown = [float(x) for x in (*means, gap.split()[0])]
        np.testing.assert_allclose(shown, [*own, own[0] - own[1]], rtol=0, atol=0.00501)
        assert seeds == "6, 6"
    compare.main(compare.Args(a, b, last=2))  # by the last two evaluations nothing differs
    assert "x: A is not told apart" in capsys.readouterr().out


def test_the_exit_status_is_what_was_required(tmp_path: Path) -> None:
    a, b = sides(tmp_path, 4.0)
    for one, other, no_worse, better in [(a, b, False, False), (b, a, True, True), (a, a, True, 0)]:
        for require, holds in (("no-worse", no_worse), ("better", better)):
            args = compare.Args(one, other, require=require)  # pyright: ignore[reportArgumentType]
            why = f"--require {require} does not hold for 1 of 1 agents"
            with nullcontext() if holds else pytest.raises(SystemExit, match=why):
                compare.main(args)


def test_agents_are_matched_by_name_or_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for where in ("a/p", "a/q", "b/q", "b/r", "c/s", "d/p"):
        side, agent = where.split("/")
        task = "other" if side == "d" else "task"
        made(tmp_path / where, [[1]], [[2]], algorithm=agent, env=task)
    a, b, c, d = (str(tmp_path / side) for side in "abcd")
    for one, other, heads in [
        (a, b, ["q: A against B"]), (a, a, ["p: A against B", "q: A against B"]),
        (f"{a}:p", c, ["p against s"]), (f"{a}:p", f"{b}:r", ["p against r"]),
    ]:  # fmt: skip
        compare.main(compare.Args(one, other))
        said = capsys.readouterr().out
        assert [line[3:] for line in said.splitlines() if line.startswith("## ")] == heads
    for one, other, why in [
        (a, c, "A has p, q, B has s: name one of each, as PATH:AGENT"),
        (f"{a}:p", d, "no task in common: A has task, B has other"),
        (a, f"{b}:p", f"Nothing that is done was found in {b}:p"),
        (a, str(tmp_path / "e"), "neither a directory nor a file"),
        (a, a, "Runs of a side have fewer than --last 2 evaluations on task"),
    ]:
        with pytest.raises(ValueError, match=why):
            compare.main(compare.Args(one, other, last=2))


def edited(out: Path, **facts: Any) -> None:
    """Another hand in a manifest; None strikes a fact."""
    there = json.loads((out / "manifest.json").read_text()) | facts
    kept = {name: fact for name, fact in there.items() if fact is not None}
    (out / "manifest.json").write_text(json.dumps(kept))


def fails(out: Path) -> None:
    shutil.rmtree(out)
    with pytest.raises(OSError, match="it broke"), record.Record(out, 1):
        raise OSError("it broke")


SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "half": (lambda out: (out / "manifest.json").unlink(), "and no manifest.json"),
    "torn": (lambda out: (out / "manifest.json").write_text('{"schema": 3, "st'), "is damaged"),
    "config": (lambda out: edited(out, config={"lr": 2.0}), "another configuration than it began"),
    "score": (lambda out: edited(out, eval_returns=[[9.0]]), "its seal does not fit"),
    "evals": (lambda out: (out / "evals.jsonl").write_text("{}\n"), "its seal does not fit"),
    "begun": (lambda out: edited(out, status="running"), "is not done: running"),
    "newer": (lambda out: edited(out, schema=99), "newer version"),
    "failed": (fails, "is not done: failed: it broke"),
}


def test_what_is_spoilt_is_left_out_and_named(tmp_path: Path) -> None:
    for name, (spoil, _) in SPOILT.items():
        spoil(made(tmp_path / name, [[1, 2]], [[2]]))
    made(tmp_path / "good", [[1, 3], [4, 5]], [[3, 4], [5, 7]], (1, 2))
    edited(made(tmp_path / "old", [[1, 2]], [[6]]), schema=2, seal=None, config_sha256=None)
    (tmp_path / "unbegun").mkdir()
    (tmp_path / "unbegun" / "lock").write_text("")
    found = collect.collect([tmp_path])
    assert sorted((r.seed, r.score(1), r.curve) for r in found.results) == [
        (0, 6.0, (1.0, 2.0)), (1, 3.5, (1.0, 3.0)), (2, 6.0, (4.0, 5.0)),
    ]  # fmt: skip
    whys = {name: why for name, (_, why) in SPOILT.items()} | {"unbegun": "has not begun"}
    left = {path.name: why for path, why in found.left_out}
    assert left.keys() == whys.keys()
    assert [name for name, why in whys.items() if why not in left[name]] == []


def tables(results: list[collect.Result]) -> list[str]:
    made = scores.score(results, None, 2)
    pairs = list(combinations(made.agents, 2))
    parts = report.contents(made, None, pairs)
    return [table.markdown() for part in parts for table in part]


def test_records_stand_for_their_directories(tmp_path: Path) -> None:
    rng, kept = np.random.default_rng(0), tmp_path / "kept.jsonl"
    for agent, task in product("xy", ("one", "two")):
        curve, final = rng.normal(10, size=(4, 3)).round(3), rng.normal(10, size=(4, 5)).round(3)
        facts = {"algorithm": agent, "env": task, "config": {"agent": agent}, "train_s": 7.25}
        made(tmp_path / "runs" / task / agent, curve, final, range(4), **facts)
    there = collect.collect([tmp_path / "runs"]).results
    collect.write(kept, there)
    lines, said = kept.read_text().splitlines(), tables(there)
    assert (len(lines), len(said)) == (16, 7)
    assert tables(collect.collect([kept]).results) == said
    odd, own = tmp_path / "odd", ([[1.23456789]], [[2.3456789]], (7,))
    for name in "xy":
        made(odd / name, *own, algorithm=name, env="one")
    for _ in range(2):  # in the place of itself, beside those that are there
        collect.write(kept, [*collect.collect([odd]).results, *there[:3]])
        rows = kept.read_text().splitlines()
        new = [json.loads(row) for row in rows if row not in lines]
        assert len(rows) == 18
        assert [(row["agent"], row["curve"], row["final"]) for row in new] == [
            (name, [1.234568], [2.345679]) for name in "xy"
        ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"schema": 1, "suite', "is no record"), ('{"suite": ""}', "is no record"),
        ('{"schema": 1, "task": "one"}', "is no record"), ("[1]", "is no record"),
        ('{"schema": 2}', "is no record: it was written by a newer version"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused(tmp_path: Path, line: str, why: str) -> None:
    kept = tmp_path / "kept.jsonl"
    collect.write(kept, collect.read(made(tmp_path / "run", [[1]], [[2]])).results)
    kept.write_text(text := f"{kept.read_text()}{line}\n")
    with pytest.raises(ValueError, match=f"^Line 2 of {kept} {why}.*$"):
        collect.write(kept, [])
    assert kept.read_text() == text
