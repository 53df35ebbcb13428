"""Lock step, in which neither loses time, and what a policy says that was damped."""

import signal
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from rl.bridge import wire
from tests.test_bridge import NUMPY, bridge, child, ended

POLICY = Path(__file__).parent.parent / "benchmarks" / "policies" / "go2-joystick-flat"
PATH = POLICY / "artefact-0.zip"


@pytest.mark.long
def test_in_lock_step_a_pause_of_either_changes_nothing(tmp_path: Path) -> None:
    found = []
    for who in ("", "sim", "policyd", "robotd"):
        address, log = wire.free_address(), tmp_path / f"log-{who}.npz"
        sim = bridge("sim", PATH, "--address", address, "--seconds", 6, "--log", log)
        run = bridge("run", PATH, "--robot", address, "--command", "0.5", "0", "0", *NUMPY)
        if who:
            assert "running" in run.stdout.readline()
            one = sim if who == "sim" else child(run, who) if who else run
            time.sleep(0.2)
            one.send_signal(signal.SIGSTOP)
            time.sleep(2.5)  # beyond what silence it bears of a robot in real time
            assert psutil.Process(one.pid).status() == psutil.STATUS_STOPPED
            one.send_signal(signal.SIGCONT)
        for process in (run, sim):
            code, said = ended(process)
            assert code == 0, said
            assert "late" not in said
        found.append(dict(np.load(log)))
    for name, x in found[0].items():
        for paused in found[1:]:
            np.testing.assert_array_equal(x, paused[name], err_msg=name)


def test_a_policy_that_is_damped_at_the_end_says_so() -> None:
    address = wire.free_address()
    sim = bridge("sim", PATH, "--address", address, "--seconds", 1)
    run = bridge("run", PATH, "--robot", address, "--limits.max-tilt", "0.1", *NUMPY)
    code, said = ended(run)
    assert code == 1
    assert "error: The robot was damped at the end: it leans too far" in said
    code, said = ended(sim)
    assert (code, "episodes 1 damped" in said) == (0, True), said


def test_a_policy_is_told_that_its_robot_gave_it_up() -> None:
    address = wire.free_address()
    sim = bridge("sim", PATH, "--address", address, "--seconds", 20, "--pace", "real")
    run = bridge("run", PATH, "--robot", address, *NUMPY)
    assert "running" in run.stdout.readline()
    time.sleep(1.0)
    one = child(run, "robotd")
    one.send_signal(signal.SIGSTOP)
    assert ended(sim)[0] == 1
    one.send_signal(signal.SIGCONT)
    code, said = ended(run)
    assert code == 1
    # It may not hear the goodbye among all that was said meanwhile.
    assert "error: The robot" in said, said


@pytest.mark.long
def test_a_robot_that_was_paused_itself_blames_nobody(tmp_path: Path) -> None:
    address, log = wire.free_address(), tmp_path / "log.npz"
    sim = bridge("sim", PATH, "--address", address, "--seconds", 4, "--pace", "real", "--log", log)
    patient = ("hold-s", 9), ("state-age", 9), ("plan-age", 999), ("late", 9)
    flags = [*NUMPY, *(f"--limits.{name}={x}" for name, x in patient)]
    run = bridge("run", PATH, "--robot", address, *flags)
    assert "running" in run.stdout.readline()
    time.sleep(1.0)
    sim.send_signal(signal.SIGSTOP)
    time.sleep(1.5)
    sim.send_signal(signal.SIGCONT)
    code, said = ended(sim)
    assert (code, "episodes 1 done" in said) == (0, True), said
    code, said = ended(run)
    assert code == 0, said
    assert np.load(log)["silent"].max() <= 0.1
