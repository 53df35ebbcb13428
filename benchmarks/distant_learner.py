"""A learner of numpy alone, beside its intake: python -m benchmarks.distant_learner

Its state, a sum over all that it has read, is written with where it is in the ledger, so that it
tells whether each record was read once, however often it was killed.
"""

import json
import signal
import subprocess
import time
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from benchmarks.process import guard
from rl.bridge.learn import intaked, segments
from rl.bridge.learn.ledger import Position, Tail
from rl.bridge.learn.weights import publish

PUBLISHED_S = 0.2
GLANCE_S = 0.01
WEIGHTS = 100_000  # numbers


@dataclass(frozen=True)
class Args:
    """Learn until SIGTERM, then until there is no more to read."""

    folder: Path  # with keys, the ledger, weights, and the state
    listen: str


def main(args: Args) -> None:
    ended, intake = list[int](), begun(args.folder, args.listen)
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    path = args.folder / "learner.json"
    state = json.loads(path.read_text()) if path.exists() else {"at": [0, 0], "count": 0, "sum": 0}
    tail, published = Tail(args.folder / "ledger", Position(*state["at"])), 0.0
    while intake.poll() is None:
        rows = tail.read()
        for row in rows:
            state["count"] += 1
            state["sum"] = (state["sum"] + zlib.crc32(row.record)) % (1 << 32)
        state["at"] = tail.at
        if rows and time.monotonic() - published > PUBLISHED_S:
            numbers = np.full(WEIGHTS, state["sum"], np.float32)
            publish(args.folder / "weights", state["count"], numbers.tobytes())
            segments.replace(path, json.dumps(state).encode())
            published = time.monotonic()
        elif not rows and ended:
            segments.replace(path, json.dumps(state).encode())
            intake.terminate()
        time.sleep(0.0 if rows else GLANCE_S)
    if not ended:
        raise ValueError(f"The intake has ended, with {intake.returncode}.")


def begun(folder: Path, listen: str) -> subprocess.Popen[bytes]:
    """Its intake, with all that is in one folder."""
    ledger, weights, keys = (folder / name for name in ("ledger", "weights", "keys"))
    return intaked.begun(intaked.Args(ledger, weights, keys, listen))


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.distant_learner")))
