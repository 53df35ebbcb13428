"""Records a second from an actor's journal to its learner's disk: python -m benchmarks.ingest

Each is appended to the journal, sent over a socket with CURVE, appended to the ledger, and
acknowledged when it is on the disk.
"""

import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import tyro

from benchmarks import distant_learner, rows
from benchmarks.process import ROOT, guard
from experiments import cli
from rl.bridge.learn import certs
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.uplink import Uplink

BARS = {500: 2000, 98_000: 200}  # bytes of a record: of them a second
BYTES = 40_000_000  # of all records of a run
EVERY = 16  # that are appended between two looks at the socket
SYNC_S = 1.0
ENDS_S = 60.0


@dataclass(frozen=True)
class Args:
    """Record as fast as it goes, with small records and with images."""

    runs: int = 5  # of which the median counts
    bytes: int = BYTES  # of a run
    name: str = "hil/ingest"  # and the size
    results: Path = ROOT / "benchmarks" / "results" / "hil.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "runs", "bytes")
    slow = []
    for size, bar in BARS.items():
        about = rows.about()
        rates = [round(rate(size, args.bytes // size)) for _ in range(args.runs)]
        median = statistics.median(rates)
        facts = {"value": median, "unit": "records/s", "bytes": size, "bar": bar, "runs": rates}
        rows.write(args.results, {"what": f"{args.name}-{size}", **facts, **about})
        print(f"{size:6} bytes: {median:g} records a second, of {bar} at least")
        slow += [size] * (median < bar)
    if slow:
        sys.exit("error: Not as many a second as there should be.")


def rate(size: int, count: int) -> float:
    """So many records a second, until the last is acknowledged."""
    with tempfile.TemporaryDirectory() as temporary, pair(Path(temporary)) as uplink:
        record = os.urandom(size)
        began = synced = time.monotonic()
        for number in range(count):
            uplink.append(record)
            if number % EVERY == 0:
                uplink.poll(0.0)
            if time.monotonic() - synced > SYNC_S:
                uplink.journal.sync()
                synced = time.monotonic()
        if not uplink.settle(ENDS_S):
            raise ValueError(f"{uplink.pending} records were not acknowledged: {uplink.trouble}")
        return count / (time.monotonic() - began)


@contextmanager
def pair(folder: Path) -> Iterator[Uplink]:
    """An actor that was let in by a learner's intake in a process of its own."""
    for name in ("learner", "arm", "bad"):  # the last for who wants to be one
        certs.make(folder / "keys", name)
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"tcp://127.0.0.1:{one.getsockname()[1]}"
    secret = certs.read_secret(folder / "keys" / "arm.secret")
    learner = certs.read_public(folder / "keys" / "learner.public")
    intake = distant_learner.begun(folder, address)
    journal = Journal(folder / "journal", "arm")
    uplink = Uplink(journal, address, secret, learner)
    try:
        until = time.monotonic() + ENDS_S
        while not uplink.up and time.monotonic() < until:
            uplink.poll(0.1)
        yield uplink
    finally:
        uplink.close()
        journal.close()
        intake.kill()
        intake.wait()


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.ingest")))
