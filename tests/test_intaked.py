"""A learner's intake as a process: killed, frozen, under a clock that jumps, without its parent."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl.bridge.learn.journal import left
from tests.apart import Actor, Stage, flags, free_address, intaked, rows_of, until

JUMPS = """
import itertools, sys, time
from rl.bridge.learn import intaked
steps = itertools.cycle([0.0, 10.0, -10.0, 1e6, -1e6])
clock = time.time
time.time = lambda: clock() + next(steps)
intaked.main(intaked.tyro.cli(intaked.Args))
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def append(arm: Actor, count: int) -> None:
    for _ in range(count):
        arm.uplink.append(b"%d" % arm.journal.next * 50)


def taken(stage: Stage, arm: Actor) -> list[int]:
    rows = rows_of(stage.folder)
    assert all(row.record == b"%d" % row.seq * 50 for row in rows)
    assert {row.boot for row in rows} == {arm.journal.boot}
    return [row.seq for row in rows]


def test_nothing_is_lost_or_taken_twice_however_often_it_is_killed(stage: Stage) -> None:
    address = free_address()
    arm = stage.actor(address)
    for number in range(5):
        with intaked(stage.folder, address) as process:
            if number:
                acked = arm.uplink.acked
                until(lambda acked=acked: arm.uplink.acked > acked, arm)
            for _ in range(5 * number):
                append(arm, 3)
                arm.turn()
            process.kill()
            process.wait()
            append(arm, 50)
    with intaked(stage.folder, address):
        until(lambda: not arm.uplink.pending, arm)
        assert taken(stage, arm) == [*range(arm.journal.next)]


def test_what_the_learner_has_is_known_where_nobody_answers(stage: Stage) -> None:
    learner = stage.learner()
    arm = stage.actor(learner.address)
    append(arm, 30)
    until(lambda: not arm.uplink.pending, arm, learner)
    stage.close(learner)
    append(arm, 5)
    stage.close(arm)
    assert left(stage.folder / "arm") == 5
    again = stage.actor(free_address())
    assert again.uplink.pending == 5
    stage.close(again)
    (stage.folder / "arm" / "acked").write_text("[]")  # damaged: the learner says it again
    again, learner = stage.actor(address := free_address()), stage.learner(address)
    assert again.uplink.pending == 35
    until(lambda: not again.uplink.pending, again, learner)
    assert taken(stage, arm) == [*range(35)]


def test_who_freezes_and_goes_on_loses_nothing(stage: Stage) -> None:
    address = free_address()
    arm = stage.actor(address)
    with intaked(stage.folder, address) as process:
        append(arm, 10)
        until(lambda: not arm.uplink.pending, arm)
        process.send_signal(signal.SIGSTOP)
        append(arm, 10)
        until(lambda: arm.uplink.heard_s > 1.0, arm)
        assert arm.uplink.pending == 10
        process.send_signal(signal.SIGCONT)
        until(lambda: not arm.uplink.pending, arm)
        assert taken(stage, arm) == [*range(20)]


def test_a_clock_that_jumps_changes_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither here nor there is the time of day read."""
    address = free_address()
    arm = stage.actor(address)
    monkeypatch.setattr(time, "time", lambda: -1e9)
    with intaked(stage.folder, address, program=("-c", JUMPS)):
        for _ in range(20):
            append(arm, 5)
            until(lambda: not arm.uplink.pending, arm)
    assert taken(stage, arm) == [*range(100)]
    assert arm.uplink.clocks
    assert abs(arm.uplink.clocks.offset) < arm.uplink.clocks.rtt


def test_it_tells_what_it_counts(stage: Stage) -> None:
    address, account = free_address(), stage.folder / "ledger" / "intake.json"
    arm = stage.actor(address)
    with intaked(stage.folder, address):
        append(arm, 7)
        until(lambda: not arm.uplink.pending, arm)
        until(lambda: json.loads(account.read_text()).get("records") == 7, arm)
        told = json.loads(account.read_text())
    assert told["bytes"] == 350
    assert [*told["sessions"]] == ["arm"]
    assert told["gate"]["connections"] == 1
    assert told["refused"] == told["malformed"] == {}


def test_it_ends_when_it_is_told_to(stage: Stage) -> None:
    with intaked(stage.folder, free_address()) as process:
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM


def test_it_ends_with_who_started_it_and_the_next_waits_for_that(stage: Stage) -> None:
    parent = f"""
import os, subprocess, sys
from pathlib import Path
from rl.bridge.learn import intaked
folder = Path({str(stage.folder)!r})
places = (folder / name for name in ("ledger", "weights", "keys"))
intaked.begun(intaked.Args(*places, {(address := free_address())!r})).wait()
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as started:
        assert started.stdout
        assert started.stdout.readline().startswith(b"intake   from arm, bad on tcp://")
        started.kill()
        with intaked(stage.folder, address):
            assert started.stdout.read() == b""  # the child has closed it, too


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--listen", "nowhere"], "Cannot listen on nowhere: Invalid argument. Name another, as "),
        (["--spec", "xyz"], "--spec xyz is no hash in hex, as 0123456789abcdef.\n"),
        (["--keys", "a"], "There is no key a/learner.secret: make one with python -m rl.bridge"),
    ],
)  # fmt: skip
def test_what_it_cannot_begin_with_is_said_in_a_sentence(
    words: list[str], why: str, stage: Stage
) -> None:
    command = [sys.executable, "-m", "rl.bridge.learn.intaked", *flags(stage.folder, "")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert done.stderr.startswith(f"error: {why}")


def test_one_of_them_writes_a_ledger(stage: Stage) -> None:
    with intaked(stage.folder, free_address()) as process:
        command = [sys.executable, "-m", "rl.bridge.learn.intaked"]
        command += flags(stage.folder, free_address())
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    assert done.returncode == 1
    assert f"error: Process {process.pid} writes the ledger" in done.stderr
