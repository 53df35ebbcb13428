"""What a machine of a cluster has of what runs need: python -m benchmarks.machine LOCK

It prints whether a lock that another machine holds is seen, and the hash of the code here.
"""

import fcntl
import hashlib
import json
import os
import socket
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "rl", "envs", "agents", "experiments", "benchmarks"


def held(path: Path) -> bool:
    """Whether a process has locked a file; of other machines' as far as its file system tells."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


@cache
def code() -> str:
    """The hash of our own code, as it lies on this machine."""
    digest = hashlib.sha256()
    for path in sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py")):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    lock = Path(sys.argv[1])
    seen = {"there": lock.exists(), "held": held(lock), "code": code()}
    print(json.dumps({"name": socket.gethostname(), **seen}))
