"""A drive's flags, and that it leaves no process behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import picture
from experiments import drive, drive_arm

ROOT = Path(__file__).parent.parent
POLICIES = ROOT / "benchmarks" / "policies"
WALKER = POLICIES / "go2-joystick-flat"


@pytest.mark.parametrize(
    ("run", "more", "why"),
    [
        (WALKER, {"seconds": 1e300}, r"--seconds is 1e\+300; it takes at least a step, at most"),
        (WALKER, {"seconds": 0.0}, "--seconds is 0; it takes at least a step"),
        (WALKER, {"seed": 9}, r"go2-joystick-flat has no seed 9; it has \[0\]"),
        (WALKER, {"out": ROOT / "README.md"}, "README.md cannot be written to: File exists"),
        (POLICIES / "half-cheetah-ppo", {}, "cheetah-ppo has no artefact-0.zip: .* reads only"),
    ],
)
def test_a_drive_that_makes_no_sense_is_refused(run: Path, more: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        drive.main(drive.Args(run, **more))


@pytest.mark.parametrize(
    ("run", "moments", "why"),
    [
        (POLICIES / "panda-reach", 4, "panda-reach is no run of a joystick task"),
        (POLICIES / "go2-getup", 4, "go2-getup is no run of a joystick task"),
        (WALKER, 0, "--moments is 0; it needs at least 1"),
    ],
)
def test_a_picture_of_what_has_no_joystick_is_refused(run: Path, moments: int, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        picture.main(picture.Args(run, moments=moments))


def test_a_drive_takes_a_name_of_its_own(tmp_path: Path) -> None:
    assert drive.free(tmp_path) == "drive"
    (tmp_path / "drive.csv").write_text("0,0,0,0")  # a user's
    (tmp_path / "drive-2.mp4").touch()
    assert drive.free(tmp_path) == "drive-3"


@pytest.mark.long
def test_who_is_told_to_end_leaves_neither_robot_nor_policy(tmp_path: Path) -> None:
    words = "--pace", "real", "--seconds", "60", "--no-video", "--out", str(tmp_path)
    driven = subprocess.Popen(
        [sys.executable, "-m", "experiments.drive", str(WALKER), *words], cwd=ROOT, text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"}, stdout=subprocess.PIPE, close_fds=False,
    )  # fmt: skip
    with driven:
        while "running" not in driven.stdout.readline():
            assert driven.poll() is None
        assert len(using(tmp_path)) == 3  # the drive, its robot and its policy
        driven.send_signal(signal.SIGTERM)
        assert driven.wait(20) == 143
    assert not using(tmp_path)


def using(folder: Path) -> list[str]:
    """Programs that were told of `folder`."""
    told = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told.append(path.read_text())
        except OSError:  # ended meanwhile
            continue
    return [words for words in told if str(folder) in words]


def test_a_log_of_a_task_that_asks_for_nothing_is_of_episodes_too() -> None:
    log = {
        "time": np.arange(6.0),
        "command": np.zeros((6, 0)),
        "qpos": np.arange(12.0).reshape(6, 2),
    }
    found = drive_arm.by_episode(log, 3)
    assert {name: x.shape for name, x in found.items()} == {
        "time": (2, 3), "command": (2, 3, 0), "qpos": (2, 3, 2)
    }  # fmt: skip
    for name, x in found.items():
        np.testing.assert_array_equal(drive_arm.line(x), log[name])
