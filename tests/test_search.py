"""A search of settings: what is tried, what is chosen, and on which seeds it is told."""

import json
import re
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest, uniform

from benchmarks import run, scores, search, suite
from benchmarks.collect import TWICE, collect, write

TINY = """
about = "Toys."
steps = 4
last = 2
[tasks.Reacher-v5]
range = [-10, 10]
[tasks.Hopper-v5]
range = [-20, 40]
[agents.toy]
experiment = "benchmarks.toy"
flags = { bonus = 1.0 }
"""
RANGES = {"Reacher-v5": (-10, 10), "Hopper-v5": (-20, 40)}


@pytest.fixture
def args(tmp_path: Path) -> search.Args:
    (tmp_path / "tiny.toml").write_text(TINY)
    return search.Args(
        str(tmp_path / "tiny.toml"), "inline", agent="toy", over=("bonus=0,7,-3.5",), fresh=3,
        runs=tmp_path / "runs",
    )  # fmt: skip


def told(where: Path) -> dict[tuple[str, str], dict[int, tuple[list[float], list[float]]]]:
    """Curves and finals by task, agent and seed, read without the code under test."""
    found: dict[tuple[str, str], Any] = {}
    for path in sorted(where.rglob("manifest.json")):
        facts = json.loads(path.read_text())
        arm = facts["env"], facts["algorithm"]
        if path.parts[-3] == facts["config_sha256"][:10]:
            arm = path.parts[-5], path.parts[-4]
        rows = [json.loads(x) for x in (path.parent / "evals.jsonl").read_text().splitlines()]
        for i, seed in enumerate(facts["seeds"]):
            curve = [float(np.atleast_1d(row["eval_return"])[i]) for row in rows]
            found.setdefault(arm, {})[seed] = curve, facts["eval_returns"][i]
    return {arm: dict(sorted(own.items())) for arm, own in found.items()}


def units(where: Path) -> dict[str, dict[int, list[float]]]:
    """Scores by setting and seed, of both tasks."""
    found: dict[str, dict[int, list[float]]] = {}
    for (task, setting), runs in told(where).items():
        low, high = RANGES[task]
        for seed, (curve, _) in runs.items():
            own = found.setdefault(setting, {}).setdefault(seed, [])
            own.append((np.mean(curve[-2:]) - low) / (high - low))
    return found


def test_the_better_setting_is_found_and_told_of_fresh_seeds(args: search.Args) -> None:
    search.main(args)
    where = args.runs / "tiny-search-toy"
    found = units(where)
    seeds = {setting: sorted(own) for setting, own in found.items()}
    both = [0, 1, 2, 3, 4]
    assert seeds == {"bonus=7": both, "as-it-is": both, "bonus=0": [0, 1], "bonus=-3.5": [0, 1]}
    assert all(len(tasks) == 2 for own in found.values() for tasks in own.values())
    lines = [x for x in (where / "search.md").read_text().splitlines() if x.startswith("|")]
    rows = [line[2:-2].split(" | ") for line in lines[2:]]
    assert [row[0] for row in rows] == ["bonus=7", "as-it-is", "bonus=0", "bonus=-3.5"]
    for setting, *cells in rows:
        for cell, own in zip(cells, ([0, 1], [2, 3, 4]), strict=True):
            if not {*own} & {*seeds[setting]}:
                assert not cell.strip()
                continue
            value = np.mean([found[setting][seed] for seed in own])
            assert abs(float(cell.split()[0]) - value) < 0.00501
            assert cell.endswith(f"({len(own)})")


def test_a_setting_that_fails_is_not_chosen_and_the_rest_go_on(args: search.Args) -> None:
    over = ("bonus=0,7", "fails=-1,1")
    with pytest.raises(SystemExit, match=r"(?s)4 of 32 runs failed:.*bonus=7,fails=1.*seed 1 is"):
        search.main(replace(args, over=over, retries=0))
    lines = (args.runs / "tiny-search-toy" / "search.md").read_text().splitlines()
    rows = [line[2:-2].split(" | ") for line in lines if line.startswith("|")][2:]
    assert [row[0] for row in rows] == [
        "bonus=7,fails=-1", "as-it-is", "bonus=0,fails=-1", "bonus=0,fails=1", "bonus=7,fails=1",
    ]  # fmt: skip
    assert [bool(row[2].strip()) for row in rows] == [True, True, False, False, False]
    assert all(row[1].endswith(f"({n})") for row, n in zip(rows, (2, 2, 2, 1, 1), strict=True))


def test_where_every_setting_fails_nothing_is_chosen(args: search.Args) -> None:
    path = Path(args.suite)
    path.write_text(path.read_text().replace("bonus = 1.0", "fails = 0"))
    with pytest.raises(SystemExit, match="8 of 16 runs failed"):
        search.main(replace(args, retries=0))
    assert not (args.runs / "tiny-search-toy" / "search.md").exists()


def stamps(where: Path) -> dict[Path, int]:
    return {
        path: path.stat().st_mtime_ns
        for path in where.rglob("*")
        if path.parent.name.startswith("seed_")
    }


def test_a_second_call_makes_nothing_and_more_seeds_only_these(args: search.Args) -> None:
    search.main(args)
    before = stamps(args.runs)
    text = (args.runs / "tiny-search-toy" / "search.md").read_text()
    search.main(args)
    assert stamps(args.runs) == before
    assert (args.runs / "tiny-search-toy" / "search.md").read_text() == text
    search.main(replace(args, fresh=4))
    after = stamps(args.runs)
    assert {path: after[path] for path in before} == before
    new = [x.parts[-5:-1] for x in after.keys() - before.keys() if x.name == "manifest.json"]
    assert sorted((task, setting, seed) for task, setting, _, seed in new) == [
        (task, setting, "seed_5") for task in sorted(RANGES) for setting in ("as-it-is", "bonus=7")
    ]


@pytest.mark.parametrize(
    "over", [("bonus=1,2,3", "most=5,6"), ("bonus=1",), ("a.b=x,y", "c=1,1", "d=,")]
)
def test_a_grid_is_every_combination(over: tuple[str, ...]) -> None:
    flags = {flag: values.split(",") for flag, values in (one.split("=") for one in over)}
    found = [tuple(x.items()) for x in search.settings(search.Args("", over=over))]
    assert found == [tuple(zip(flags, x, strict=True)) for x in product(*flags.values())]


def test_random_settings_lie_in_their_ranges_and_can_be_drawn_again() -> None:
    over = ("whole=-2..3", "real=-1.0..2", "rate=1e-5..1e-1:log", "word=a,b", "wide=1..64:log")
    args = search.Args("", over=over, random=400)
    found = search.settings(args)
    assert found == search.settings(args)
    assert found != search.settings(replace(args, draw_seed=1))
    assert found[:5] == search.settings(replace(args, random=5))  # more are these and others
    assert {x["whole"] for x in found} == {str(i) for i in range(-2, 4)}
    assert {x["word"] for x in found} == {"a", "b"}
    assert {x["wide"] for x in found} <= {str(i) for i in range(1, 65)}
    assert 0.4 < np.mean([int(x["wide"]) < 8 for x in found]) < 0.6
    again = search.settings(args, real={"whole"})  # a flag that takes any number
    assert not all(float(x["whole"]).is_integer() for x in again)
    real = np.array([float(x["real"]) for x in found])
    rate = np.log10([float(x["rate"]) for x in found])
    for values, low, high in ((real, -1, 2), (rate, -5, -1)):
        assert low <= values.min() <= values.max() <= high
        assert kstest(values, uniform(low, high - low).cdf).pvalue > 0.01


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"agent": "other"}, "--agent 'other': it takes one of toy"),
        ({"over": ()}, "--over takes FLAG=A,B,C"),
        ({"over": ("bonus",)}, "--over takes FLAG=A,B,C"),
        ({"over": ("bonus=1", "bonus=2")}, "each flag once"),
        ({"over": ("bonus=1..2",)}, "is a range: give --random too"),
        ({"over": ("bonus=2..1",), "random": 2}, "--over bonus=2..1: a range is LOW..HIGH"),
        ({"over": ("bonus=0..1:log",), "random": 2}, "a range is .* above 0, LOW..HIGH:log"),
        ({"over": ("bonus=1..2:exp",), "random": 2}, "a range is LOW..HIGH"),
        ({"over": ("bonus=a..b",), "random": 2}, "a range is LOW..HIGH"),
        ({"over": ("bogus=1,2",)}, "bogus"),
        ({"over": ("bonus=1,much",)}, "much"),
        ({"only": ("Ant-v5",)}, "has no such task"),
        ({"seeds": 0}, "at least 1"),
        ({"fresh": 0}, "at least 1"),
        ({"random": -1}, "--random is -1; it takes a count"),
        ({"stop": "adastop"}, "no --stop"),
        ({"jobs": -1}, "no number below 0"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_made(
    args: search.Args, wrong: dict, why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        search.main(replace(args, **wrong))
    assert not args.runs.exists()


def test_a_dry_run_makes_nothing(args: search.Args) -> None:
    search.main(replace(args, dry_run=True))
    assert not args.runs.exists()


def test_an_older_configuration_is_told_apart_or_left_out(args: search.Args) -> None:
    run.main(run.Args(args.suite, "inline", seeds=2, runs=args.runs))
    path = Path(args.suite)
    kept = args.runs.parent / "kept.jsonl"
    write(kept, [replace(r, final=(99.0,)) for r in collect([args.runs]).results if r.seed == 1])
    path.write_text(path.read_text().replace("bonus = 1.0", "bonus = 2.0"))
    run.main(run.Args(args.suite, "inline", seeds=1, runs=args.runs))
    new = [r for r in collect([args.runs]).results if r.config["bonus"] == 2]
    write(kept, [replace(r, final=(77.0,)) for r in new])
    named = suite.read(args.suite)
    found = scores.gathered(named, args.runs, [kept])
    assert {(r.task, r.seed, r.config["bonus"]) for r in found.results} == {
        (task, 0, 2.0) for task in RANGES
    }
    assert not any(r.final == (77.0,) for r in found.results)  # a run rather than its record
    folders = {path.parts[-3:-1] for path, why in found.left_out if why.startswith("is of")}
    assert {why for _, why in found.left_out} == {
        "is of another configuration than the suite has now",
        TWICE,
    }
    assert folders == {(task, "toy") for task in RANGES}
    apart = scores.score(reversed(collect([args.runs]).results), None)
    assert all(re.fullmatch("toy@[0-9a-f]{6}", agent) for agent in apart.agents)
    seeds = {arm: [r.seed for r in own] for arm, own in apart.runs.items()}
    assert sorted(seeds.values()) == [[0], [0], [0, 1], [0, 1]]
