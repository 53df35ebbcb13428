"""A lost worker of a cluster loses no run; smoke, killed at random, is as if it had not been."""

import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import run
from tests.test_sweep import ROOT, args, manifests, results, toys


def processes(word: str, tmp_path: Path) -> list[psutil.Process]:
    """Those of ours with this word on their command line, and the place of a test."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if word in words and any(str(tmp_path) in x for x in words):
            found.append(process)
    return found


def test_a_cluster_that_loses_workers_makes_every_run_once(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=2, pause=0.3)
    driver = subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "run", name, "--engine", "ray", "--jobs", "2",
         "--runs", str(tmp_path / "runs"), "--retries", "20"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, close_fds=False,
    )  # fmt: skip
    killed, until = [], time.monotonic() + 100
    while len(killed) < 4 and driver.poll() is None and time.monotonic() < until:
        time.sleep(0.5)
        for process in processes("benchmarks.toy", tmp_path)[:1]:
            try:
                parent = process.parent()  # Ray's worker, without which the run itself goes on
                lost = parent if parent and "ray::" in parent.name() + "".join(parent.cmdline()) \
                    and len(killed) % 2 == 0 else process  # fmt: skip
                lost.kill()
                killed.append(lost is parent)
            except psutil.NoSuchProcess:
                continue
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, said
    assert True in killed
    assert False in killed
    disturbed = results(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    run.main(args(tmp_path, name))
    assert disturbed == results(tmp_path)
    assert len(disturbed) == 8


@pytest.mark.slow
def test_smoke_is_the_same_however_often_it_is_killed(tmp_path: Path) -> None:
    """Twenty times the driver or a worker, at moments of the clock and not of the program."""
    chance, words = random.Random(1), ["--runs", str(tmp_path / "runs"), "--retries", "100"]

    def begin() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "benchmarks", "run", "smoke", *words]
        return subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, close_fds=False
        )

    driver, kills = begin(), 0
    while kills < 20:
        time.sleep(chance.uniform(5, 25))
        own = [p for x in ("experiments.ppo", "experiments.sac") for p in processes(x, tmp_path)]
        if chance.random() < 0.4 or not own:
            driver.kill()
            driver.wait()
            driver = begin()
        else:
            chance.choice(own).send_signal(signal.SIGKILL)
        kills += 1
    assert driver.wait(900) == 0
    disturbed = results(tmp_path)
    (tmp_path / "runs").rename(tmp_path / "disturbed")
    assert begin().wait(900) == 0
    assert results(tmp_path) == disturbed
    assert len(manifests(tmp_path)) == 8
