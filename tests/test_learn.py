"""A robot that practises, in all its processes: held where there is no room for what it does."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import practised
from rl.bridge import wire
from rl.bridge.learn import certs
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.segments import numbered
from tests.lives import explorer_at, reach

PATIENCE = 120.0  # s
QUOTA = 20_000  # bytes: some episodes' worth


@contextmanager
def program(log: Path, *words: object) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, words)], stdout=file, stderr=file
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def until(done: Callable[[], bool], *logs: Path) -> None:
    ends = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < ends, [log.read_text()[-2000:] for log in logs]
        time.sleep(0.05)


def test_a_robot_is_held_where_there_is_no_room_and_goes_on_where_there_is(tmp_path: Path) -> None:
    explorer, keys = tmp_path / "explorer.zip", tmp_path / "keys"
    robot = tmp_path / ("deep" * 50) / "robot"  # no short text
    spec = explorer_at(explorer).spec
    for name in ("learner", "robot"):
        certs.make(keys, name)
    address, listen = wire.free_address(), wire.free_address()
    logs = [tmp_path / f"{name}.log" for name in ("sim", "learn", "intake")]

    def account() -> dict[str, Any]:
        try:
            return json.loads((robot / ACCOUNT).read_text())
        except (OSError, ValueError):
            return {"full": "", "steps": 0}

    starts = tmp_path / "starts.npz"
    np.savez(starts, qpos=np.tile(reach().task.table.start(), (99, 1)), qvel=np.zeros((99, 9)))
    with (
        program(
            logs[0], "rl.bridge", "sim", explorer, "--address", address, "--starts", starts,
            "--pace", "real", "--seconds", 1000, "--wait", PATIENCE,
        ),
        program(
            logs[1], "rl.bridge", "learn", explorer, "--robot", address, "--learner", listen,
            "--secrets", keys, "--folder", robot, "--quota", QUOTA, "--practice.seconds", 1,
            "--practice.stale-s", 1e10, "--command", 0.5, 0.0, 0.2, "--seconds", 1e5,
        ) as learn,
    ):  # fmt: skip
        until(lambda: bool(account()["full"]), *logs[:2])
        time.sleep(1.0)
        steps = account()["steps"]
        time.sleep(1.0)
        assert account()["steps"] == steps  # it does nothing that would be lost
        assert "held " in logs[1].read_text()
        assert sum(x.stat().st_size for x in numbered(robot / "journal")) <= QUOTA
        with program(
            logs[2], "rl.bridge.learn.intaked", "--folder", tmp_path / "ledger", "--weights",
            tmp_path / "weights", "--keys", keys, "--listen", f"tcp://{listen}", "--spec",
            spec.hash.hex(),
        ):  # fmt: skip
            until(lambda: account()["steps"] > steps + 100, *logs)
            assert learn.poll() is None
    found = practised.kept(tmp_path)
    assert (found["lost"], found["duplicated"]) == (0, 0)
    assert found["records"] > steps


def refused(folder: Path, *words: object) -> str:
    """What is said of it, with the policy in a folder as of a run; no robot is there."""
    log = folder / "refused.log"
    for name in ("learner", "robot"):
        certs.make(folder / "keys", name)
    explorer_at(folder / "explorer.zip")
    with program(
        log, "rl.bridge", "learn", folder, "--secrets", folder / "keys",
        "--folder", folder / "robot", *words,
    ) as process:  # fmt: skip
        assert process.wait(PATIENCE) == 1
    return log.read_text()


def test_a_folder_that_another_process_writes_is_not_taken_for_its_own(tmp_path: Path) -> None:
    robot = tmp_path / "robot"
    with closing(Journal(robot / "journal", "robot")):
        (robot / ACCOUNT).write_text(json.dumps({"at": time.monotonic(), "pid": os.getpid()}))
        told = refused(tmp_path)
    assert f"writes the journal {robot / 'journal'} already: end it." in told
    assert "Traceback" not in told
    assert "running" not in told  # no policy, and so no robot


def test_a_quota_that_holds_nothing_is_refused(tmp_path: Path) -> None:
    assert "--quota is 5; it takes 10,000 bytes at least." in refused(tmp_path, "--quota", 5)
    assert not (tmp_path / "robot").exists()
