"""What ends a program: a sentence for what its user can mend, and signals."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

import envs
from experiments import cli, make_data, prior
from experiments.offline import Args
from rl import manifest
from rl.stop import Stop


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "error: Out of memory: lower"),
        (jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"), "error: Out of memory"),
        (ValueError("So it is."), "error: So it is."),
    ],
)
def test_what_its_user_can_mend_ends_a_program_with_a_sentence(error: Exception, told: str) -> None:
    def main() -> None:
        raise error

    with pytest.raises(SystemExit, match=told):
        cli.guard(main)


def test_ctrl_c_while_a_bridge_is_imported_ends_it_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "tyro.py").write_text("raise KeyboardInterrupt")  # as if it came there
    root = Path(__file__).parent.parent
    ran = subprocess.run(
        [sys.executable, "-m", "rl.bridge", "--help"], cwd=tmp_path, capture_output=True,
        text=True, env=os.environ | {"PYTHONPATH": str(root)},
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (130, "")


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        ("panda-peg-insertion", "panda-peg-insertion --env.clearance 0.005"),
        ("panda-peg-insertion --env.rewards sparse", "panda-peg-insertion"),
        ("panda-peg-insertion", "panda-peg-insertion --env.clearance 0.005 --env.rewards sparse"),
        ("panda-push-t", "panda-push-t --env.goal-low 0.5 -0.06 -0.5"),
        ("panda-push-t --env.precise 3.0", "panda-push-t"),  # a setting that came later
        ("go1-joystick-flat", "go1-joystick-flat --env.embodied"),
        ("go1-joystick-flat --env.embodied", "go1-joystick-flat"),
        ("go1-joystick-flat", "go1-joystick-flat --env.pushes.kick 0.0 2.0"),
        ("HalfCheetah-v5 --env.no-rescale", "HalfCheetah-v5"),
        ("panda-push-t", "panda-peg-insertion"),
    ],
)
def test_data_of_another_task_are_told_the_flag_that_mends_it(asked: str, made: str) -> None:
    mine, theirs = (cli.parse(Args, ["--env", *words.split()]) for words in (asked, made))
    facts = {"task": theirs.env_name, "env": manifest.plain(theirs.env)}
    prior.same_task(Path("x.npz"), facts, theirs.env_name, theirs.env)
    with pytest.raises(ValueError, match="was made of another task") as error:
        prior.same_task(Path("x.npz"), facts, mine.env_name, mine.env)
    told = re.search(r"Give (.*), or data of", str(error.value))
    assert told
    words = told[1].split() if told[1].startswith("--env ") else [*asked.split(), *told[1].split()]
    words = words if words[0] == "--env" else ["--env", *words]
    assert cli.parse(Args, words).env == theirs.env


def test_above_a_base_data_are_told_how_to_be_made() -> None:
    for words in ("panda-peg-insertion --env.clearance 0.005 --env.rewards sparse", "panda-push-t"):
        mine = cli.parse(make_data.Args, ["--env", *words.split()])
        for made in ("panda-peg-insertion", "panda-pick-cube"):
            facts = {"task": made, "env": manifest.plain(envs.make_task(made))}
            with pytest.raises(ValueError, match="Above a base the task is its own: ") as error:
                prior.same_task(Path("x.npz"), facts, mine.env_name, mine.env, above=True)
            told = re.search(r"python -m experiments\.make_data (.*) makes them", str(error.value))
            assert told
            assert cli.parse(make_data.Args, told[1].split()).env == mine.env
            by = re.search(r"its own: learn on that by (.*), or give", str(error.value))
            assert (by is not None) == (made == mine.env_name)
            if by:
                theirs = cli.parse(make_data.Args, ["--env", *words.split(), *by[1].split()])
                assert theirs.env == envs.make_task(made)


def test_data_of_no_task_are_told_how_to_make_some() -> None:
    mine = envs.make_task("panda-push-t")
    with pytest.raises(ValueError, match=r"Make some; python -m experiments\.make_data"):
        prior.same_task(Path("x.npz"), {}, "panda-push-t", mine)


def test_devices_that_are_not_there_are_told_of() -> None:
    code = "import jax; from experiments import cli; cli.guard(jax.devices)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent.parent, capture_output=True,
        text=True, env=os.environ | {"JAX_PLATFORMS": "rocket"},
    )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: JAX_PLATFORMS is 'rocket' and JAX has nothing to compute")


def test_what_is_a_defect_keeps_its_traceback() -> None:
    def main() -> None:
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        cli.guard(main)


def test_a_signal_asks_and_is_left_to_others_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Stop() as stop:
        assert not stop.asked
        signal.raise_signal(signal.SIGTERM)
        until = time.monotonic() + 10
        while not stop.asked and time.monotonic() < until:
            time.sleep(0.01)
        assert stop.asked == "stopped by SIGTERM"
    assert signal.getsignal(signal.SIGTERM) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_second_signal_ends_what_python_cannot_interrupt() -> None:
    code = """
import hashlib
from rl.stop import Stop
with Stop():
    print("deaf", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parent.parent, text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"}, close_fds=False,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            assert process.stdout
            assert process.stdout.readline() == "deaf\n"
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "\n"
            assert process.stdout.readline().startswith("asked to stop: ")
            process.send_signal(signal.SIGTERM)  # as whoever passes on what was sent to all
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert said == "\nstopped at once: --resume goes on from the last checkpoint\n"
