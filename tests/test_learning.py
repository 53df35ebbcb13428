"""Comparisons of learning: runs that are done stay done, and what a table says is so."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import learning, published
from benchmarks.learning import Command, Row, run_all
from benchmarks.process import Failed
from rl import runs

WANTED: list[Row] = [{"who": "ours", "env": "A", "seed": s, "steps": 10} for s in range(3)]


def test_a_run_that_is_done_is_not_run_again(tmp_path: Path) -> None:
    path, began = tmp_path / "new" / "rows.jsonl", []

    def run(want: Row, _: Command) -> Row:
        began.append(want["seed"])
        return {"return": 10.0 * want["seed"]}

    assert [row["return"] for row in run_all(path, WANTED[:2], run, jobs=2)] == [0, 10]
    assert sorted(began) == [0, 1]
    other = {"who": "ours", "env": "A", "seed": 2, "steps": 20, "return": 7.0}
    path.write_text(path.read_text() + json.dumps(other) + "\n")  # of other steps: not it
    assert [row["return"] for row in run_all(path, WANTED[::-1], run, jobs=1)] == [20, 10, 0]
    assert sorted(began) == [0, 1, 2]


def test_a_run_that_fails_loses_no_other(tmp_path: Path) -> None:
    def run(want: Row, _: Command) -> Row:
        if want["seed"] == 1:
            raise ValueError("seed 1 failed")
        return {"return": 1.0}

    with pytest.raises(ValueError, match="seed 1 failed"):
        run_all(tmp_path / "rows.jsonl", WANTED, run, jobs=1)
    lost = [want["seed"] for want in learning.missing(tmp_path / "rows.jsonl", WANTED)]
    assert 1 in lost
    assert 0 not in lost


@pytest.mark.parametrize(
    ("cut", "again"), [("", [2]), ("\n", [2]), ("}\n", [1, 2]), (', "return": 1.0}\n', [1, 2])]
)
def test_a_line_that_was_cut_off_costs_its_own_run_alone(
    cut: str, again: list[int], tmp_path: Path
) -> None:
    path, began = tmp_path / "rows.jsonl", []
    text = "".join(json.dumps(want | {"return": 1.0}) + "\n" for want in WANTED[:2])
    path.write_text(text.removesuffix(cut))

    def run(want: Row, _: Command) -> Row:
        began.append(want["seed"])
        return {"return": 5.0}

    assert len(run_all(path, WANTED, run, jobs=1)) == 3
    assert began == again
    assert [row["seed"] for row in runs.read_rows(path)] == [0, 1, 2]


def test_a_row_without_a_return_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(WANTED[0]) + "\n")
    assert run_all(path, WANTED[:1], lambda *_: {"return": 3.0}, jobs=1)[0]["return"] == 3


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_what_is_stopped_leaves_no_process_behind(number: int, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from benchmarks.learning import run_all
from benchmarks.process import guard

def run(want, command):
    write = f"import os, time; open('{want['seed']}', 'w').write(str(os.getpid())); time.sleep(600)"
    command(sys.executable, "-c", write)

guard(lambda: run_all(Path("rows.jsonl"), [{"seed": 1}, {"seed": 2}, {"seed": 3}], run, 2))
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, close_fds=False, text=True,
        env=os.environ | {"PYTHONPATH": str(published.ROOT.parent)}, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        until = time.monotonic() + 60
        pids = [tmp_path / "1", tmp_path / "2"]
        while not all(p.exists() and p.read_text() for p in pids) and time.monotonic() < until:
            time.sleep(0.05)
        process.send_signal(number)  # to the parent alone
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said == "\nstopped: what was finished is kept\n"
    assert not (tmp_path / "3").exists()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (learning.Args("sac", seeds=0), "--seeds is 0"),
        (learning.Args("sac", jobs=-1), "--jobs is -1"),
        (learning.Args("sac", steps=-5), "--steps is -5"),
        (published.Args("sac", jobs=0), "--jobs is 0"),
        (published.Args("sac", tasks=()), "--tasks is 0; it needs at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(args: Any, why: str, tmp_path: Path) -> None:
    main = learning.main if isinstance(args, learning.Args) else published.main
    with pytest.raises(ValueError, match=why):
        main(replace(args, results=tmp_path / "results"))
    assert not list(tmp_path.iterdir())


def test_a_peer_that_is_not_there_is_found_out_before_anything_runs(tmp_path: Path) -> None:
    args = learning.Args("sac", peers=tmp_path / "python", results=tmp_path / "results")
    with pytest.raises(Failed, match=r"is not there.*README\.md"):
        learning.main(args)


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
