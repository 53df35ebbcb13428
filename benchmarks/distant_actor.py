"""An actor that records what can be told from its number: python -m benchmarks.distant_actor

Says on its standard output what it has recorded and what was acknowledged, for who judges it.
"""

import hashlib
import math
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks.process import guard
from rl.bridge.learn import certs
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.uplink import Uplink

SYNC_S = 1.0
LARGE = 97  # of so many records one is of an image's size
SIZES = 300, 2000, 98_000  # bytes: of the others from, to; and of that one
ENDS_S = 60.0


@dataclass(frozen=True)
class Args:
    """Record so many a second until SIGTERM, then until all is acknowledged."""

    folder: Path  # with keys of arm and learner, and the journal
    address: str  # of the learner
    rate: float = 300.0


def record(boot: bytes, seq: int) -> bytes:
    """The only one with this number."""
    seed = hashlib.sha256(boot + seq.to_bytes(8, "little")).digest()
    size = SIZES[0] + int.from_bytes(seed[:4], "little") % (SIZES[1] - SIZES[0])
    return (seed * (SIZES[2] // len(seed) + 1))[: SIZES[2] if seq % LARGE == LARGE - 1 else size]


def main(args: Args) -> None:
    ended = list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    keys, journal = args.folder / "keys", Journal(args.folder / "journal", "arm")
    secret = certs.read_secret(keys / "arm.secret")
    uplink = Uplink(journal, args.address, secret, certs.read_public(keys / "learner.public"))
    print(f"boot {journal.boot.hex()}", flush=True)
    due = synced = time.monotonic()
    base = None  # acknowledged when the learner let us in; inf once it has acknowledged more
    while not ended:
        print(f"recorded {uplink.append(record(journal.boot, journal.next))}", flush=True)
        if time.monotonic() - synced > SYNC_S:
            journal.sync()
            synced = time.monotonic()
        due += 1 / args.rate
        uplink.poll(max(due - time.monotonic(), 0.0))
        if not uplink.up:
            base = None
        elif base is None:
            base = uplink.acked
        elif uplink.acked > base:
            print(f"acknowledged {time.monotonic()}", flush=True)
            base = math.inf
    uplink.settle(ENDS_S)
    print(f"left {uplink.pending}", flush=True)
    uplink.close()
    journal.close()


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.distant_actor")))
