"""Comparisons of learning: runs that are done stay done, and what a table says is so."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import learning, published
from benchmarks.learning import Row, run_all

WANTED: list[Row] = [{"who": "ours", "env": "A", "seed": s, "steps": 10} for s in range(3)]


def test_a_run_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    path, began = tmp_path / "new" / "rows.jsonl", []

    def run(want: Row) -> Row:
        began.append(want["seed"])
        return {"return": 10.0 * want["seed"]}

    assert [row["return"] for row in run_all(path, WANTED[:2], run, jobs=2)] == [0, 10]
    assert sorted(began) == [0, 1]
    other = {"who": "ours", "env": "A", "seed": 2, "steps": 20, "return": 7.0}
    path.write_text(path.read_text() + json.dumps(other) + "\n")  # of other steps: not it
    assert [row["return"] for row in run_all(path, WANTED[::-1], run, jobs=1)] == [20, 10, 0]
    assert sorted(began) == [0, 1, 2]


def test_a_run_that_fails_loses_no_other(tmp_path: Path) -> None:
    def run(want: Row) -> Row:
        if want["seed"] == 1:
            raise ValueError("seed 1 failed")
        return {"return": 1.0}

    with pytest.raises(ValueError, match="seed 1 failed"):
        run_all(tmp_path / "rows.jsonl", WANTED, run, jobs=1)
    lost = [want["seed"] for want in learning.missing(tmp_path / "rows.jsonl", WANTED)]
    assert 1 in lost
    assert 0 not in lost


def test_a_mean_is_inside_when_a_published_seed_lies_on_either_side_of_it() -> None:
    theirs = np.array([[100.0, 100.0, 100.0], [300.0, 300.0, 300.0]])
    ours = np.array([[250.0, 20.0, 320.0], [330.0, 150.0, 340.0]])  # means 290, 85, 330
    lines = published.verdict(ours, theirs, ("a", "b", "c")).splitlines()
    assert [line.split()[-1] for line in lines[1:4]] == ["inside", "outside", "outside"]
    assert "85 (20-150)" in lines[2]
    assert "200 (100-300)" in lines[2]


def test_the_difference_is_of_interquartile_means_in_units_of_the_published() -> None:
    theirs = np.array([[1.0, 1_000.0]] * 4)
    ours = np.array([[1.2, 1_200.0]] * 4)
    last = published.verdict(ours, theirs, ("a", "b")).splitlines()[-1]
    assert last == "relative IQM difference +20.0% (95% +20.0% to +20.0%)"


@pytest.mark.parametrize("agent", published.SETTINGS)
@pytest.mark.parametrize("steps", [200_000, 1_000_000])
def test_ten_seeds_of_every_task_are_published(agent: str, steps: int) -> None:
    known = json.loads((published.ROOT / "published.json").read_text())[agent][str(steps)]
    assert {task: len(returns) for task, returns in known.items()} == dict.fromkeys(
        ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5"), 10
    )
