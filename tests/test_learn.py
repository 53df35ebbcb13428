"""A robot that practises, in all its processes: held where there is no room for what it does."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import tyro

from benchmarks import practised
from rl import artefact
from rl.bridge import wire
from rl.bridge.learn import certs
from rl.bridge.learn.actord import ACCOUNT, JOURNAL, Actor
from rl.bridge.learn.journal import Journal, left
from rl.bridge.learn.learn import Learn, learn
from rl.bridge.learn.segments import numbered
from rl.bridge.learn.uplink import Uplink
from tests.lives import explorer_at, reach

ROOT = Path(__file__).parent.parent

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


@pytest.mark.long
def test_a_robot_is_held_where_there_is_no_room_and_goes_on_where_there_is(tmp_path: Path) -> None:
    explorer, keys = tmp_path / "explorer.zip", tmp_path / "keys"
    robot = tmp_path / ("deep" * 50) / "robot"  # no short text
    practises().write(explorer)
    spec = practises().spec
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


COMMAND = "--command", 0.4, 0, 0.3


@cache
def practises() -> artefact.Artefact:
    """What robots practise with, for any run."""
    with TemporaryDirectory() as folder:
        explorer_at(path := Path(folder) / "explorer.zip")
        return artefact.read(path)


def made(folder: Path) -> tuple[Path, Path]:
    """Keys, and what robots practise with for a run."""
    for name in ("learner", "robot"):
        certs.make(folder / "keys", name)
    replace(practises(), run="hil-1f").write(path := folder / "explorer.zip")
    return folder / "keys", path


@pytest.mark.long
def test_before_the_first_word_of_a_learner_it_is_silent_since_the_robot_began(
    tmp_path: Path,
) -> None:
    keys, _ = made(tmp_path)
    journal = Journal(tmp_path / "robot" / JOURNAL, "robot")
    secret, public = (certs.read_public(keys / x) for x in ("robot.secret", "learner.public"))
    with (
        closing(journal),
        closing(Uplink(journal, f"tcp://{wire.free_address()}", secret, public)) as link,
    ):
        actor = Actor(link, wire.free_address(), tmp_path / "robot")
        assert actor.facts()["learner_silent_s"] < 10.0
        actor.began -= 700.0
        assert actor.facts()["learner_silent_s"] > 700.0
        actor.inbox.link.close()


@pytest.mark.long
def test_what_is_left_for_other_runs_is_told_of_and_is_sent_to_their_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, explorer = made(tmp_path)
    home, listen = tmp_path / "runs" / "robots" / "robot", wire.free_address()
    for place, run in (("", ""), ("hil-0a", "hil-0a"), ("hil-1f", "hil-1f")):
        with closing(Journal(home / place / JOURNAL, "robot", run=run)) as journal:
            journal.append(b"step")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    words = "rl.bridge", "learn", explorer, "--secrets", keys, "--learner", listen, "--robot"
    logs = tmp_path / "learn.log", tmp_path / "intake.log"
    ours = "--folder", tmp_path / "ledger", "--weights", tmp_path / "weights", "--keys", keys
    with (
        program(logs[0], *words, "none") as sends,
        program(logs[1], "rl.bridge.learn.intaked", *ours, "--listen", f"tcp://{listen}",
                "--run", "hil-1f"),
    ):  # fmt: skip
        assert sends.wait(PATIENCE) == 0
    told = logs[0].read_text()
    assert "left     1 steps for an older run in runs/robots/robot, which stay there" in told
    assert "left     1 steps for hil-0a in runs/robots/robot/hil-0a, which stay there" in told
    assert "hil-1f, which" not in told
    assert [left(home / x / JOURNAL) for x in ("", "hil-0a", "hil-1f")] == [1, 1, 0]
    assert practised.kept(tmp_path)["records"] == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--robot", "nope"), "nope"),
        (("--learner", "9890"), "--learner is '9890'; it takes host:port"),
        (("--name", "leg"), "There is no key .*leg.secret: give --secrets"),
        ((), "panda-reach needs to be told what to do"),
        (("--practice.seconds", -3), "it takes a time above 0 s, and up to an hour"),
        (("--practice.retreat", "nowhere.csv"), "There is no file nowhere.csv"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_kept(
    tmp_path: Path, words: tuple[object, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    keys, explorer = made(tmp_path)
    place = "--secrets", keys, "--folder", tmp_path / "robot"
    flags = [str(x) for x in (explorer, *place, *(COMMAND if words else ()), *words)]
    with pytest.raises(ValueError, match=why):
        learn(tyro.cli(Learn, args=flags))
    assert not (tmp_path / "robot").exists()


def refused(folder: Path, *words: object) -> str:
    """What is said of it, with the policy in a folder as of a run; no robot is there."""
    log = folder / "refused.log"
    for name in ("learner", "robot"):
        certs.make(folder / "keys", name)
    practises().write(folder / "explorer.zip")
    with program(
        log, "rl.bridge", "learn", folder, "--secrets", folder / "keys",
        "--folder", folder / "robot", *COMMAND, *words,
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
