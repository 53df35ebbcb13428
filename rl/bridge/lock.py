"""One process at a thing: a lock that the kernel takes from who dies, however it does."""

import fcntl
import os
import re
import tempfile
from pathlib import Path
from typing import TextIO


def lock(robot: str) -> TextIO:
    """Hold the robot at an address of this machine's user until the file is closed; ValueError with
    the number of the process that has it.  Another machine's bridge only the robot can refuse."""
    name = re.sub(r"\W", "-", robot)
    path = Path(tempfile.gettempdir()) / f"robotrl-{os.getuid()}-{name}.lock"
    return hold(
        path,
        f"is the bridge of the robot at {robot} already: end it first, or, if it was begun with "
        "--desk, come there with python -m rl.bridge teleop.",
    )


def hold(path: Path, what: str) -> TextIO:
    """Hold the file at `path` until it is closed; ValueError if another process does, with its
    number and `what` it is."""
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = file.read().strip() or "that begins just now"
        file.close()
        raise ValueError(f"Process {pid} {what}") from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file
