"""What a flight is begun with is checked before anything moves, and it tells how it ended."""

import json
import math
import os
import re
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import psutil
import pytest
import tyro

from rl import artefact
from rl.bridge import wire
from rl.bridge.clock import PRIORITY
from rl.bridge.launch import Run, check_log
from rl.bridge.limits import Limits
from rl.bridge.log import flight
from rl.bridge.sim import sim as sim_
from rl.bridge.source import By
from rl.bridge.tally import Tally, tell
from rl.bridge.truth import log_of
from tests.test_bridge import bridge, child, ended

ROOT = Path(__file__).parent.parent
PATH = ROOT / "benchmarks" / "policies" / "go2-joystick-flat"
PATH /= "artefact-0.zip"


@pytest.mark.parametrize("motor", [12, 99])
def test_a_fault_of_a_motor_that_is_not_there_is_refused(motor: int, tmp_path: Path) -> None:
    (plan := tmp_path / "plan.json").write_text(
        json.dumps([{"kind": "motor limp", "since": 0, "until": 9, "motor": motor}])
    )
    with pytest.raises(ValueError, match=f"befalls motor {motor}: there are 0 to 11"):
        sim_.sim(sim_.Sim(PATH, address="127.0.0.1:0", faults=plan))


def test_a_log_of_a_flight_that_cannot_be_is_refused(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    (link := tmp_path / "link.mcap").symlink_to(tmp_path / "nowhere")
    for path, why in (
        (file / "a.mcap", "cannot be written: Not a directory"),
        (tmp_path / "none" / "a.mcap", "cannot be written: No such file or directory"),
        (Path("/proc/a.mcap"), "cannot be written"),
        (link, "is there already"),
        (file, "is there already"),
        (tmp_path / "a.csv", "will be an .mcap file"),
    ):
        with pytest.raises(ValueError, match=f"--log {path} {why}"):
            check_log(path)
    check_log(fine := tmp_path / "a.mcap")
    assert not fine.exists()


def test_a_command_is_of_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    of = lambda *words: tyro.cli(Run, args=[str(PATH), *words]).by.command  # noqa: E731
    assert (of(), of("--command"), of("--command", "0.5", "-1", "0")) == (None, (), (0.5, -1, 0))
    with pytest.raises(SystemExit):
        of("--command", "x", "0")
    assert "it takes numbers" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("port", ["abc", "0", "65536", "-1", "1.5", "²"])
def test_a_port_that_is_none_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(Run, args=[str(PATH), f"--page={port}"])
    assert "it takes one port, from 1 to 65535" in " ".join(capsys.readouterr().err.split())


def test_ticks_of_which_none_was_answered_at_once_took_no_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell(Tally(asked=3, took=[math.nan] * 3), "stopped", [])
    assert capsys.readouterr().out.splitlines() == [
        "stopped  3 ticks, none of them answered at once",
        "late     3 ticks without an answer at once, which held the last targets",
    ]
    tell(Tally(asked=3, took=[math.nan, 0.002, 0.002]), "stopped", [])
    assert capsys.readouterr().out.startswith("stopped  3 ticks of 2.00 ms (99%: 2.00 ms)\n")


def test_an_address_whose_port_is_none_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"99999' is no address: it is host:port, with a port up to 65535"
    ):
        wire.address("127.0.0.1:99999")


def test_a_spacemouse_takes_a_terminal_and_says_so() -> None:
    spec = artefact.read(PATH).spec
    with pytest.raises(ValueError, match="--spacemouse takes a terminal, by whose keys"):
        By(spacemouse=()).source(spec, terminal=False)


def test_limits_are_spoken_of_as_the_flags_they_are() -> None:
    pages = ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("rl/bridge/**/*.py")
    told = {name for page in pages for name in re.findall(r"--limits\.([\w-]+)", page.read_text())}
    assert "clears" in told
    assert told <= {field.name.replace("_", "-") for field in fields(Limits)}


def test_a_flight_whose_log_is_not_whole_says_so_at_its_end(tmp_path: Path) -> None:
    log, ages = tmp_path / "a.mcap", {"state-age": 9, "operator-age": 9, "late": 9, "plan-age": 900}
    patient = [f"--limits.{name}={age}" for name, age in ages.items()]
    run = bridge("run", PATH, "--robot", "sim", "--seconds", 1, "--runtime", "numpy",
                 "--command", 0, 0, 0, *patient, "--log", log)  # fmt: skip
    assert any("running" in line for line in iter(run.stdout.readline, ""))
    child(child(run, "robotd"), "log.recorder").rlimit(psutil.RLIMIT_FSIZE, (100_000, 100_000))
    code, said = ended(run)
    assert (code, f"error: {log} is not whole: what could be written" in said) == (1, True), said
    assert flight.read(log).rows


def test_nobody_who_was_not_told_to_drives_a_robot_that_lies_there(tmp_path: Path) -> None:
    robot, truth = wire.free_address(), tmp_path / "truth.jsonl"
    sim = bridge("sim", PATH, "--address", robot, "--no-episodes", "--wait", 60, "--truth", truth,
                 "--pace", "real")  # fmt: skip
    code, said = ended(bridge("run", PATH, "--robot", robot, "--runtime", "numpy"))
    assert (code, "error: The robot moves if it is told to: --command" in said) == (1, True), said
    ended(sim)
    top, *ticks = truth.read_text().splitlines()
    assert not log_of(json.loads(top)["spec"], ticks).active.any()


def test_what_a_simulated_robot_writes_of_its_wire_is_judged(tmp_path: Path) -> None:
    robot, truth = wire.free_address(), tmp_path / "truth.jsonl"
    sim = bridge("sim", PATH, "--address", robot, "--seconds", 1, "--wait", 60, "--truth", truth)
    run = bridge("run", PATH, "--robot", robot, "--runtime", "numpy", "--command", 0.5, 0, 0)
    assert (ended(run)[0], ended(sim)[0]) == (0, 0)
    told = referee(truth)
    assert (told["commands"], told["damped"], told["violations"]) == (50, 0, {})
    top, *ticks = truth.read_text().splitlines()
    slow = json.loads(top)
    slow["limits"]["speed"] /= 10
    truth.write_text("\n".join([json.dumps(slow), *ticks]))
    assert "speed" in referee(truth, status=1)["violations"]
    with pytest.raises(ValueError, match=f"--truth {truth} is there already"):
        sim_.sim(sim_.Sim(PATH, truth=truth))


def referee(truth: Path, status: int = 0) -> Any:
    words = [sys.executable, "-m", "rl.bridge.referee", truth]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


def test_who_is_urgent_and_that_a_simulated_robot_ends_with_who_started_it() -> None:
    run = bridge("run", PATH, "--robot", "sim", "--command", 0, 0, 0, "--runtime", "numpy")
    assert any("running" in line for line in iter(run.stdout.readline, ""))
    begun = psutil.Process(run.pid).children()
    robot = next(one for one in begun if "sim" in one.cmdline())
    may = subprocess.run([sys.executable, "-c", "from rl.bridge.clock import urgent\n"
                          "assert urgent('bridge')"], check=False).returncode == 0  # fmt: skip
    wanted = [*PRIORITY.values()] if may else [0, 0, 0]
    them, deadline = (child(run, "robotd"), child(run, "policyd"), robot), time.monotonic() + 10
    while found := [os.sched_getparam(one.pid).sched_priority for one in them]:
        if found == wanted or time.monotonic() > deadline:
            break
    run.kill()
    try:
        assert found == wanted
        assert psutil.wait_procs([robot], timeout=10)[0]
    finally:
        for process in begun:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        ended(run)
