"""A robot of somebody else's, by the page of its wire alone: tests/own_robot.py uses nothing of the
bridge."""

import ast
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from rl import artefact
from rl.bridge import states, wire
from rl.bridge.drivers.udp import Udp
from rl.bridge.log import flight
from tests.test_bridge import bridge, child, ended

OWN = Path(__file__).parent / "own_robot.py"
PATH = Path(__file__).parent.parent / "benchmarks" / "policies" / "panda-reach" / "artefact-0.zip"
GOAL = "--command", 0.5, 0.2, 0.3
WAY = states.PASSIVE, states.READY, states.ARMED
PATIENT = "--runtime", "numpy", "--limits.plan-age", 9, "--limits.late", 9, "--limits.state-age", 9
PATIENT += "--limits.stand-s", 1


@contextmanager
def robot(
    tmp_path: Path, rate: float = 20, **other: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """One that runs, and where."""
    spec, at = artefact.read(PATH).spec, wire.free_address()
    facts = asdict(spec) | {"hash": spec.hash.hex()} | other
    (file := tmp_path / "facts.json").write_text(json.dumps(facts))
    command = [sys.executable, str(OWN), at, str(file), str(rate)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, at
        finally:
            process.kill()


def said(process: subprocess.Popen[str], count: int) -> list[str]:
    """The first words of so many lines."""
    assert process.stdout
    return [process.stdout.readline().split()[0] for _ in range(count)]


def test_it_uses_nothing_of_ours() -> None:
    found = ast.walk(ast.parse(OWN.read_text()))
    names = {a.name for node in found if isinstance(node, ast.Import) for a in node.names}
    assert names <= sys.stdlib_module_names
    assert "from " not in OWN.read_text().split('"""', 2)[2].split("class ")[0]


@pytest.mark.long
def test_it_is_met_stood_up_driven_and_left_and_another_comes(tmp_path: Path) -> None:
    with robot(tmp_path) as (own, at):
        for log in (tmp_path / "1.mcap", tmp_path / "2.mcap"):
            run = bridge("run", PATH, "--robot", at, *GOAL, *PATIENT, "--seconds", 1, "--log", log)
            code, told = ended(run)
            assert code == 0, told
            assert "ignored" not in told
            assert said(own, 3) == ["meets", "follows", "left"]
            seen = dict.fromkeys(row.state for row in flight.read(log).rows)
            assert [x for x in seen if x in WAY] == [*WAY]
        own.send_signal(signal.SIGTERM)
        assert own.wait(10) == 0


def test_it_turns_away_a_second_bridge_and_damps_itself_where_the_first_is_silent(
    tmp_path: Path,
) -> None:
    with robot(tmp_path) as (own, at):
        run = bridge("run", PATH, "--robot", at, *GOAL, *PATIENT, "--seconds", 99)
        assert said(own, 2) == ["meets", "follows"]
        spec = artefact.read(PATH).spec
        other = Udp(spec, wire.address(at))
        with pytest.raises(ValueError, match="this robot has another bridge"):
            other.meet()
        assert said(own, 1) == ["refused"]
        other.close()
        child(run, "robotd").kill()
        assert said(own, 2) == ["damped", "left"]
        for process in (*psutil.Process(run.pid).children(), run):
            process.kill()
        run.communicate()


def test_a_robot_that_leaves_ends_its_bridge_with_an_error(tmp_path: Path) -> None:
    with robot(tmp_path) as (own, at):
        run = bridge("run", PATH, "--robot", at, *GOAL, *PATIENT, "--seconds", 99)
        assert said(own, 2) == ["meets", "follows"]
        own.send_signal(signal.SIGTERM)
        code, told = ended(run)
        assert (code, "error: The robot said goodbye." in told) == (1, True), told


def test_of_another_spec_it_lets_nobody_in(tmp_path: Path) -> None:
    other = "0123456789abcdef"
    with robot(tmp_path, hash=other) as (own, at):
        code, told = ended(bridge("run", PATH, "--robot", at, *GOAL, "--runtime", "numpy"))
        assert said(own, 1) == ["refused"]
        assert (code, told.count("error: ")) == (1, 1), told
        assert other in told


def test_of_another_rate_it_is_left(tmp_path: Path) -> None:
    with robot(tmp_path, rate=30) as (own, at):
        code, told = ended(bridge("run", PATH, "--robot", at, *GOAL, "--runtime", "numpy"))
        assert said(own, 2) == ["meets", "left"]
        assert (code, "it needs a multiple of that" in told) == (1, True), told
