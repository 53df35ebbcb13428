"""A lost worker of a cluster loses no run; smoke, killed at random, is as if it had not been.

Who was asked to stop, and by whom, is told apart.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks import foreign, run
from benchmarks import process as processing
from benchmarks.engines import engine
from benchmarks.engines.engine import Needs, site
from benchmarks.engines.local import Inline
from benchmarks.plan import Unit
from benchmarks.process import Python, guard
from rl import runs
from tests.test_sweep import ROOT, args, manifests, results, toys


def processes(word: str, tmp_path: Path) -> list[psutil.Process]:
    """Those of ours with this word on their command line, and the place of a test."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        words = one.info["cmdline"] or []
        if word in words and any(str(tmp_path) in x for x in words):
            found.append(one)
    return found


def driver_of(tmp_path: Path, name: str, *words: str) -> subprocess.Popen:
    """A driver whose words are kept."""
    command = [sys.executable, "-m", "benchmarks", "run", name, "--runs", str(tmp_path / "runs")]
    return subprocess.Popen(
        [*command, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        close_fds=False,
    )  # fmt: skip


@pytest.mark.long
def test_a_run_whose_process_is_killed_goes_on_and_the_sweep_says_so(tmp_path: Path) -> None:
    driver = driver_of(tmp_path, toys(tmp_path, seeds=1, pause=0.3), "--jobs", "1")
    while not (found := processes("benchmarks.toy", tmp_path)):
        assert driver.poll() is None
        time.sleep(0.05)
    found[0].kill()
    said, _ = driver.communicate(timeout=120)
    assert driver.returncode == 0, said
    assert said.count("again  ") == 1
    assert said.count("done   ") == len(manifests(tmp_path)) == 4


@pytest.mark.slow
def test_a_cluster_that_loses_workers_makes_every_run_once(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=2, pause=0.3)
    driver = driver_of(tmp_path, name, "--engine", "ray", "--jobs", "2", "--retries", "20")
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


def test_a_stop_of_an_earlier_try_ends_no_sweep(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=1)
    run.main(args(tmp_path, name))
    path = tmp_path / "runs" / next(iter(manifests(tmp_path))) / "manifest.json"
    facts = json.loads(path.read_text()) | {"status": "stopped by Ctrl-C"}
    facts["argv"] += ["--bonus", "9"]  # which its configuration has not: it is not resumed
    path.write_text(json.dumps(facts))
    with pytest.raises(SystemExit, match=r"(?s)1 of 4 runs failed:.*resume it with the commit"):
        run.main(args(tmp_path, name))


@pytest.fixture
def handlers() -> Iterator[None]:
    """What is done at Ctrl-C and SIGTERM is left as it was."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_ctrl_c_that_is_passed_on_as_well_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    processing.heed()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    monkeypatch.setattr(processing, "ECHO", 0.0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("handlers")
def test_a_peer_that_is_ended_was_not_stopped_by_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, out = ["--env", "Hopper-v5", "--steps", "1", "--seed", "0"], tmp_path / "run"
    monkeypatch.setattr(Python, "versions", lambda self: {})
    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")):
        monkeypatch.setattr(foreign, "listen", lambda *_, n=number: signal.raise_signal(n))
        with pytest.raises(SystemExit):
            guard(lambda: foreign.main(out, "sbx_ppo.py", words))
        assert runs.read_manifest(out)["status"] == f"stopped by {name}"


def test_ctrl_c_leaves_no_peer_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = subprocess.Popen(["sleep", "60"], close_fds=False)
    monkeypatch.setattr(engine, "start", lambda *_: peer)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        unit = Unit("t", "a", (0,), 1, tmp_path, "sbx_ppo.py", (), "")
        with pytest.raises(KeyboardInterrupt):
            Inline(site(Needs(1, 1.0))).submit(unit)
        assert peer.poll() == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGALRM, before)
        peer.kill()
        peer.wait()


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
