"""Sweeps: done once, whatever is killed; failures listed; nothing lost and nothing made twice."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks import collect, plan, run, suite
from rl import runs

ROOT = Path(__file__).parent.parent
TOYS = """
about = "Toys"
steps = 5
seeds = {seeds}
group = {group}
[adastop]
group = 3
groups = 4
[tasks.Reacher-v5]
range = [-5, 15]
[tasks.Hopper-v5]
[agents.plain]
experiment = "benchmarks.toy"
flags = {{ pause = {pause} }}
[agents.other]
experiment = "benchmarks.toy"
flags = {{ {flags} }}
"""


def toys(
    tmp_path: Path, seeds: int = 2, pause: float = 0.0, flags: str = "", group: int = 1
) -> str:
    path = tmp_path / "toys.toml"
    path.write_text(TOYS.format(seeds=seeds, pause=pause, flags=flags, group=group))
    return str(path)


def args(tmp_path: Path, name: str, **more: Any) -> run.Args:
    return run.Args(name, runs=tmp_path / "runs", **{"engine": "inline", **more})


def manifests(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Of every run, by its directory."""
    found = sorted((folder := tmp_path / "runs").rglob("manifest.json"))
    return {str(p.parent.relative_to(folder)): json.loads(p.read_text()) for p in found}


def results(tmp_path: Path) -> dict[str, Any]:
    """What every run came to, row by row, less the time it took."""
    told = {}
    for where, facts in manifests(tmp_path).items():
        rows = runs.read_rows(tmp_path / "runs" / where / "evals.jsonl")
        told[where] = (
            facts["status"], facts.get("eval_returns"), facts.get("parameters_sha256"),
            [(row["step"], row["returns"]) for row in rows],
        )  # fmt: skip
    return told


def begin(tmp_path: Path, name: str, *words: str) -> subprocess.Popen[bytes]:
    """A driver in a process of its own."""
    command = [sys.executable, "-m", "benchmarks", "run", name, "--runs", str(tmp_path / "runs")]
    return subprocess.Popen(
        [*command, *words], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        close_fds=False,
    )  # fmt: skip


def workers(tmp_path: Path) -> list[psutil.Process]:
    """The processes that make runs there."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "benchmarks.toy" in words and any(str(tmp_path) in word for word in words):
            found.append(process)
    return found


def test_what_is_done_is_not_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = toys(tmp_path)
    run.main(args(tmp_path, name, dry_run=True))
    assert not (tmp_path / "runs").exists()
    run.main(args(tmp_path, name))
    first = manifests(tmp_path)
    assert len(first) == 8
    assert all(runs.finished(facts) for facts in first.values())
    run.main(args(tmp_path, name))
    assert manifests(tmp_path) == first
    run.main(args(tmp_path, name, seeds=3, only=("plain", "Hopper-v5")))
    assert len(manifests(tmp_path)) == 9
    assert "9 runs are done" not in capsys.readouterr().out.splitlines()[0]


def test_a_run_is_named_by_what_it_resolves_to(tmp_path: Path) -> None:
    wanted = {("Hopper-v5", "other"): [0]}

    def identity(flags: str) -> str:
        read = suite.read(toys(tmp_path, flags=flags))
        return plan.units(read, wanted, tmp_path)[0].identity

    assert identity("") == identity("bonus = 0.0") == identity("bonus = 0")
    assert identity("") != identity("bonus = 0.1")
    run.main(args(tmp_path, toys(tmp_path)))
    for where, facts in manifests(tmp_path).items():
        assert Path(where).parent.name == facts["config_sha256"][:10]


def test_what_fails_is_listed_with_its_log_and_the_rest_is_made(tmp_path: Path) -> None:
    name = toys(tmp_path, flags="fails = 1")
    with pytest.raises(SystemExit) as end:
        run.main(args(tmp_path, name))
    lines = str(end.value).splitlines()
    assert lines[0] == "2 of 8 runs failed:"
    assert all("seed 1 is the one that fails; see " in line for line in lines[1:])
    assert all(Path(line.rpartition("; see ")[2]).is_file() for line in lines[1:])
    assert sum(map(runs.finished, manifests(tmp_path).values())) == 6
    with pytest.raises(SystemExit, match="2 of 8"):  # tried again, and goes on past them again
        run.main(args(tmp_path, name))


@pytest.mark.parametrize("engine", ["inline", "process"])
def test_seeds_that_do_not_fit_together_are_made_apart(tmp_path: Path, engine: Any) -> None:
    name = toys(tmp_path, seeds=5, flags="most = 2", group=4)
    run.main(args(tmp_path, name, engine=engine, only=("Hopper-v5",), jobs=2))
    made = manifests(tmp_path)
    for agent, sizes in (("plain", [1, 4]), ("other", [1, 2, 2])):
        own = [facts["seeds"] for where, facts in made.items() if f"/{agent}/" in where]
        assert sorted(map(len, own)) == sizes
        assert sorted(seed for seeds in own for seed in seeds) == list(range(5))


@pytest.mark.long
def test_two_drivers_make_no_run_twice(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=4, pause=0.02)
    drivers = [begin(tmp_path, name, "--jobs", "2") for _ in range(2)]
    assert [driver.wait(120) for driver in drivers] == [0, 0]
    logs = sorted((tmp_path / "runs").rglob("*.log"))
    assert len(logs) == len(manifests(tmp_path)) == 16
    assert all(log.read_text().count("run      ") == 1 for log in logs)


@pytest.mark.long
def test_drivers_and_workers_that_are_killed_change_nothing(tmp_path: Path) -> None:
    chance, name = random.Random(0), toys(tmp_path, seeds=2, pause=0.15)
    driver = begin(tmp_path, name, "--jobs", "2", "--retries", "100")
    for i in range(10):
        time.sleep(chance.uniform(0.1, 1.5))
        if i % 2:
            driver.kill()
            driver.wait()
            driver = begin(tmp_path, name, "--jobs", "2", "--retries", "100")
        elif own := workers(tmp_path):
            chance.choice(own).kill()
    assert driver.wait(120) == 0
    disturbed = results(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    run.main(args(tmp_path, name))
    assert results(tmp_path) == disturbed
    assert len(disturbed) == 8


def test_ctrl_c_ends_the_runs_and_leaves_them_to_go_on(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=1, pause=0.5)
    driver = begin(tmp_path, name, "--jobs", "2")
    until = time.monotonic() + 60
    slow = "plain/*/*/evals.jsonl"  # of those that take a while
    while not any((tmp_path / "runs").rglob(slow)) and time.monotonic() < until:
        time.sleep(0.05)
    driver.send_signal(signal.SIGINT)
    assert driver.wait(60) == 130
    assert not workers(tmp_path)
    assert not all(map(runs.finished, manifests(tmp_path).values()))
    run.main(args(tmp_path, name))
    assert len(manifests(tmp_path)) == 4
    assert all(map(runs.finished, manifests(tmp_path).values()))


def test_what_was_damaged_is_named_and_left_as_it_is(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=1)
    run.main(args(tmp_path, name))
    cut, edited, foreign, empty = (tmp_path / "runs" / where for where in manifests(tmp_path))
    (cut / "manifest.json").write_text((cut / "manifest.json").read_text()[:99])
    rows = (edited / "evals.jsonl").read_text()
    (edited / "evals.jsonl").write_text(rows.replace("1", "2"))
    (foreign / "manifest.json").unlink()
    for path in [*empty.glob("*.json*"), *empty.glob("tb")]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (empty / "manifest.json.partial").write_text("{")  # killed before its first manifest
    with pytest.raises(SystemExit) as end:
        run.main(args(tmp_path, name))
    said = str(end.value)
    assert "3 of 4" in said
    assert "is damaged" in said
    assert "its seal does not fit" in said
    assert "and no manifest.json" in said
    assert (edited / "evals.jsonl").read_text() == rows.replace("1", "2")
    assert runs.finished(runs.read_manifest(empty))


@pytest.mark.parametrize("fails", ["write", "locked"])  # in the middle of a run; before it begins
def test_a_full_disk_costs_nothing_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    name, real = toys(tmp_path), getattr(runs, fails)

    def full(path: Path, *content: bytes) -> Any:
        there = path.name == "state.json" and len(runs.read_rows(path.parent / "evals.jsonl")) > 2
        if "other" in path.parts and (there or fails == "locked"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, *content)

    monkeypatch.setattr(runs, fails, full)
    with pytest.raises(SystemExit, match=r"(?s)4 of 8 runs failed:.*No space left on device"):
        run.main(args(tmp_path, name))
    done = results(tmp_path)
    found = collect.collect([tmp_path / "runs"])
    assert {(r.agent, len(r.curve)) for r in found.results} == {("plain", 5)}
    assert len(found.results) == 4
    assert len(found.left_out) == (4 if fails == "write" else 0)
    monkeypatch.undo()
    run.main(args(tmp_path, name))
    disturbed = results(tmp_path)
    assert {where: disturbed[where] for where in done if "plain" in where} == {
        where: row for where, row in done.items() if "plain" in where
    }
    shutil.rmtree(tmp_path / "runs")
    run.main(args(tmp_path, name))
    assert results(tmp_path) == disturbed


def test_adastop_adds_seeds_until_it_can_tell(tmp_path: Path) -> None:
    name = toys(tmp_path, flags="bonus = 3.0")
    run.main(args(tmp_path, name, stop="adastop"))
    apart = len(manifests(tmp_path))
    assert apart in (12, 24)  # three or six seeds of two agents on two tasks
    shutil.rmtree(tmp_path / "runs")
    run.main(args(tmp_path, toys(tmp_path), stop="adastop"))
    assert len(manifests(tmp_path)) == 48  # equal agents need all four groups
