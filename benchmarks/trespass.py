"""Intruders at a learner's port while an actor goes on: python -m benchmarks.trespass

What each kind of them sends must be counted and change nothing: the actor's records are in the
ledger, each once.  How much slower they come is told; intruders have this machine's cores, too.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks import ingest, intruders, rows
from benchmarks.process import ROOT, guard
from experiments import cli
from rl.bridge.learn.ledger import Tail
from rl.bridge.learn.uplink import Uplink

PENDING = 200  # records that are not acknowledged, at most
SIZE = 500  # bytes of one
TOLD_S = 1.2  # in which an account is written
ENDS_S = 60.0


@dataclass(frozen=True)
class Args:
    """Let each kind come, one after another."""

    kinds: tuple[str, ...] = tuple(intruders.KINDS)
    seconds: float = 5.0  # of each
    frames: int = 100_000  # of fuzz
    seed: int = 0
    name: str = "hil/trespass"
    results: Path = ROOT / "benchmarks" / "results" / "hil.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "frames")
    about, kinds = rows.about(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with ingest.pair(folder) as uplink:
            for kind in args.kinds:
                until = time.monotonic() + args.seconds
                alone = delivered(uplink, lambda until=until: time.monotonic() < until)
                one: dict[str, Any] = {"alone": alone["rate"], **beset(args, folder, uplink, kind)}
                kinds[kind] = one
                told = ", ".join(f"{count} {why}" for why, count in one["counted"].items())
                print(f"{kind:9} {one['sent']:6} sent: {told}; the actor's {one['rate']} a second "
                      f"of {one['alone']}, {one['longest_s']} s at most", flush=True)  # fmt: skip
            uplink.settle(ENDS_S)
            count = uplink.journal.next
        facts = {"kinds": kinds, "records": count, **judged(folder, count)}
    rows.write(args.results, {"what": args.name, **facts, **about})
    if any(facts[name] for name in ("lost", "wrong", "foreign")):
        sys.exit("error: The actor's records did not all come once, or others came with them.")


def beset(args: Args, folder: Path, uplink: Uplink, kind: str) -> dict[str, Any]:
    """What an intruder sent, as what it was counted, and what the actor delivered meanwhile."""
    before, port = counts(folder), int(uplink.line.address.rpartition(":")[2])
    flags = {"kind": kind, "folder": folder, "port": port, "seconds": args.seconds,
             "frames": args.frames, "seed": args.seed}  # fmt: skip
    words = [f"--{name}={value}" for name, value in flags.items()]
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.intruders", *words], stdout=subprocess.PIPE
    ) as process:
        found = delivered(uplink, lambda: process.poll() is None)
        assert process.stdout
        said = process.stdout.read()
    if process.returncode:
        raise ValueError(f"The intruder {kind} ended with {process.returncode}.")
    until = time.monotonic() + TOLD_S
    while (left := until - time.monotonic()) > 0:
        uplink.poll(left)
    return {"sent": json.loads(said), "counted": dict(counts(folder) - before), **found}


def delivered(uplink: Uplink, busy: Callable[[], bool]) -> dict[str, float]:
    """How many records a second are acknowledged while it is busy, and the longest wait for one."""
    began = last = time.monotonic()
    first = before = uplink.acked
    longest = 0.0
    while busy():
        while uplink.pending < PENDING:
            uplink.append(record(uplink.journal.next))
        uplink.poll(0.02)
        now = time.monotonic()
        if uplink.acked > before:
            longest, last, before = max(longest, now - last), now, uplink.acked
    took = time.monotonic() - began
    return {"rate": round((uplink.acked - first) / took), "longest_s": round(longest, 2)}


def record(seq: int) -> bytes:
    return b"%d " % seq + bytes(SIZE)


def counts(folder: Path) -> Counter[str]:
    """All that the learner has counted, but for what the actor does."""
    told = json.loads((folder / "ledger" / "intake.json").read_text())
    found = Counter[str](told["gate"])
    for name in ("refused", "malformed"):
        found.update({f"{name}: {why}": count for why, count in told[name].items()})
    return found + Counter(duplicates=told.get("duplicates", 0), gaps=told.get("gaps", 0))


def judged(folder: Path, count: int) -> dict[str, int]:
    """Of the ledger: the actor's records that are missing, or not as they were, and those of others
    that nobody sent."""
    tail = Tail(folder / "ledger")
    lost, wrong, foreign = count, 0, 0
    while found := tail.read():
        for row in found:
            ours = row.actor == "arm"
            lost -= ours
            wrong += ours and row.record != record(row.seq)
            foreign += not ours and row.record not in intruders.OWN
    return {"lost": lost, "wrong": wrong, "foreign": foreign}


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.trespass")))
