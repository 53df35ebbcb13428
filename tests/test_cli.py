"""What ends a program: a sentence for what its user can mend, and signals."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

from experiments import cli
from rl.saver import Stop


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
from rl.saver import Stop
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
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 128 + signal.SIGTERM
    assert said == "\nstopped at once: --resume goes on from the last checkpoint\n"
