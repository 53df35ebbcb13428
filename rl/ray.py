"""Being let into a Ray cluster, or told in a sentence why not.

Ray itself may wait for minutes, deaf to Ctrl-C, or end its whole process.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

ANSWERS = 40.0  # s for a cluster to let a driver in
TRY = "import sys, ray; ray.init(address=sys.argv[1], log_to_driver=False)"


def drive(flag: str, address: str, says: bool = False) -> Any:
    """Ray, which drives the cluster whose address a flag gives; if it `says`, what tasks print is
    printed here.

    Raises ValueError where it is not let in.
    """
    ray = loaded(flag, has_token())
    require_answer(flag, address)
    ray.init(address=address, log_to_driver=says, configure_logging=says)
    return ray


def loaded(flag: str, token: bool) -> Any:
    """Ray, which shows a `token` or not as it was told before it was imported.

    Raises ValueError where it is not installed.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token" if token else "disabled")
    try:
        import ray
    except ImportError as error:
        raise ValueError(f"{flag} needs Ray: pip install 'robotrl[ray]'.") from error
    return ray


def has_token() -> bool:
    """Whether this user has a token of Ray, which all machines of a cluster share."""
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or (Path.home() / ".ray" / "auth_token").exists()


def require_answer(flag: str, address: str) -> None:
    """Raise ValueError unless a cluster lets a driver of this machine in; a process finds out."""
    said = f"{flag} {address}: no cluster of Ray lets this machine in"
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise ValueError(f"{said} ({error.strerror or error}).") from error
    words = [sys.executable, "-c", TRY, address]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=ANSWERS)
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"{said} within {ANSWERS:.0f} s: `ray status` says whether one is there, and "
            "`ray start --head` begins it."
        ) from None
    if "Unauthenticated" in done.stderr:
        raise ValueError(f"{said}: its machines have another ~/.ray/auth_token, or this has none.")
    if done.returncode:
        raise ValueError(f"{said}: {why(done.stderr)}")


def why(said: str) -> str:
    """What Ray's last error was, of all that it said."""
    lines = [line.strip() for line in said.splitlines()]
    errors = [line for line in lines if "Error: " in line]
    return (errors or lines or ["it said nothing"])[-1]
