"""Nodes of a cluster are lost and drivers killed: every run is made once, to the same numbers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import machine, nodes, plan, run, suite
from benchmarks.engines import cluster
from benchmarks.engines.engine import Needs, site
from benchmarks.engines.slurm import Slurm
from rl import ray, runs
from tests.test_sweep import ROOT, args, manifests, results, toys, workers


def drive(tmp_path: Path, name: str, *words: str) -> subprocess.Popen[str]:
    """A driver whose words can be read."""
    where = ["--runs", str(tmp_path / "runs")]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "run", name, *where, *words], cwd=ROOT,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=False,
    )  # fmt: skip


def wait_for(found: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.slow
def test_a_lost_node_and_a_killed_driver_lose_no_run_and_make_none_twice(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=1, pause=1.5)
    words = "--engine", "ray"
    with nodes.cluster(tmp_path, 1, 1) as there:
        words += ("--address", there.address)
        driver = drive(tmp_path, name, *words)
        rows = lambda: len([*(tmp_path / "runs").rglob("evals.jsonl")])  # noqa: E731
        wait_for(lambda: rows() >= 2 and len(workers(tmp_path)) >= 2, 120)
        assert there.lose(1) > 3  # Ray's own, a worker, and the run that it made
        wait_for(lambda: rows() >= 3, 100)
        driver.kill()
        driver.communicate()
        there.add(1)
        driver = drive(tmp_path, name, *words)
        said, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, said
    disturbed, logs = results(tmp_path), sorted((tmp_path / "runs").rglob("*.log"))
    begun = sum(log.read_text().count("compiles before its first step") for log in logs)
    tries = sum(1 + len(facts.get("resumed", [])) for facts in manifests(tmp_path).values())
    assert tries >= 5  # at least the one that was lost was taken up
    assert begun == tries
    shutil.rmtree(tmp_path / "runs")
    run.main(args(tmp_path, name))
    assert disturbed == results(tmp_path)
    assert len(disturbed) == 4


def test_a_cluster_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "ANSWERS", 3.0)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        address = f"127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(ValueError, match=r"no cluster of Ray lets this machine in within 3 s"):
            ray.require_answer("--address", address)
    with pytest.raises(ValueError, match=r"lets this machine in \(Connection refused\)"):
        ray.require_answer("--address", address)


def test_what_no_machine_has_room_for_is_told() -> None:
    small, large = ({"Resources": {"CPU": x, "memory": x * 1e9, "GPU": x - 2}} for x in (2.0, 8.0))
    assert cluster.room_of([small, large], Needs(2, 1.0)) == 1 + 4
    assert cluster.room_of([small, large], Needs(1, 4.0)) == 2
    assert cluster.room_of([small, large], Needs(1, 1.0, gpus=0.5)) == 8
    assert cluster.room_of([small, small], Needs(1, 1.0)) == 4
    with pytest.raises(ValueError, match=r"takes 1 cores, 1 GB and 1 GPUs"):
        cluster.room_of([small], Needs(1, 1.0, gpus=1))


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({}, ""),
        ({"there": False}, "Machine far does not see the driver's runs"),
        ({"held": False}, "Machine far does not see locks of the driver"),
        ({"code": "another"}, "Machine far has other code than the driver"),
    ],
)
def test_a_machine_must_see_what_the_driver_does(odd: dict[str, Any], said: str) -> None:
    found = {"there": True, "held": True, "code": machine.code()} | odd
    told = subprocess.CompletedProcess([], 0, json.dumps(found), "")
    if not odd:
        cluster.judge("far", told)
        return
    with pytest.raises(ValueError, match=said):
        cluster.judge("far", told)


def test_a_machine_tells_of_locks_and_of_its_code(tmp_path: Path) -> None:
    lock = tmp_path / "lock"

    def asked() -> dict[str, Any]:
        words = [sys.executable, "-m", "benchmarks.machine", str(lock)]
        return json.loads(subprocess.check_output(words, cwd=ROOT, close_fds=False))

    assert asked()["there"] is False
    file = runs.locked(lock)
    told = asked()
    assert (told["there"], told["held"], told["code"]) == (True, True, machine.code())
    os.close(file)
    assert asked()["held"] is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"address": "far:6379"}, "--address says nothing to --engine inline"),
        ({"gpus": 1.0}, "--gpus says nothing to --engine inline"),
        ({"slurm": Slurm(hours=1)}, "--slurm says nothing to --engine inline"),
    ],
)
def test_a_flag_of_another_engine_is_refused(
    tmp_path: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        run.main(args(tmp_path, toys(tmp_path), **given))


def test_a_share_of_a_gpu_is_one_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    found = site(Needs(3, 1.0, gpus=0.25))
    assert found.env["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.23"
    assert (found.env["NPROC"], found.env["JAX_PLATFORMS"]) == ("3", "cuda")
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in site(Needs(3, 1.0, gpus=1)).env


def test_a_claim_of_a_machine_that_is_gone_is_freed_by_its_deletion(tmp_path: Path) -> None:
    name, only = toys(tmp_path, seeds=1), {("Hopper-v5", "plain"): [0]}
    (unit,) = plan.units(suite.read(name), only, tmp_path / "runs")
    unit.claim.parent.mkdir(parents=True)
    kept = runs.locked(unit.claim)  # as a server of files may, for a machine that has died
    assert plan.look(unit)[0] == "held"
    assert unit.claim.read_text() == f"{os.getpid()} on {socket.gethostname()}"
    unit.claim.unlink()
    run.main(args(tmp_path, name, only=("Hopper-v5", "plain")))
    assert plan.look(unit)[0] == "done"
    os.close(kept)
