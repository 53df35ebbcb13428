"""Takes in what actors send, in a process of its own beside the learner's.

python -m rl.bridge.learn.intaked --folder RUN/ledger --weights RUN/weights --keys FOLDER; the
learner reads the ledger as it grows (rl.bridge.learn.ledger.Tail), and publishes its weights.
"""

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tyro

from rl.bridge.learn import certs
from rl.bridge.learn.gate import Gate
from rl.bridge.learn.intake import Intake
from rl.bridge.learn.ledger import Ledger
from rl.bridge.learn.weights import Shelf
from rl.bridge.tied import tie
from rl.guard import guard

GLANCE_S = 0.02  # between two looks for weights
TOLD_S = 1.0  # between two accounts
HELD_S = 2.0  # that a ledger may be held by another, who ends
FILES = 1024  # that are open at once, connections too: libzmq bounds these by nothing else


@dataclass(frozen=True)
class Args:
    """Take in what actors send."""

    folder: Path  # of the ledger; an account of what was counted is in its intake.json
    weights: Path  # a folder to which the learner publishes
    keys: Path  # a folder with the learner's keys, and the public ones of its actors
    listen: str = "tcp://127.0.0.1:9890"
    spec: str = ""  # hash of the robots' spec, in hex; others are refused, if it is given
    run: str = ""  # of the robots; what others practised for is refused, if it is given
    tied: int = 0  # the process that started it, and without which it ends


def main(args: Args) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, most), most))
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if args.tied:
        tie(args.tied)
    secret, actors = certs.read_secret(args.keys / "learner.secret"), certs.allowed(args.keys)
    spec = _spec(args.spec)
    with (
        closing(_ledger(args.folder)) as ledger,
        closing(Shelf(args.weights)) as shelf,
        closing(Gate(args.listen, secret, actors)) as gate,
    ):
        intake = Intake(ledger, shelf, spec, gate.send, args.run)
        print(f"intake   from {', '.join(actors) or 'nobody'} on {gate.address}", flush=True)
        serve(intake, gate, args.folder / "intake.json")


def serve(intake: Intake, gate: Gate, account: Path) -> None:
    """Take in for ever, and say now and then what was taken in."""
    told = -math.inf
    while True:
        turn(intake, gate, GLANCE_S)
        if (now := time.monotonic()) - told >= TOLD_S:
            told = now
            _tell(account, intake.facts() | {"gate": gate.counts})


def turn(intake: Intake, gate: Gate, timeout: float) -> None:
    """Hear what comes within `timeout` s, and answer it."""
    for heard in gate.hear(timeout):
        intake.hear(*heard)
    intake.commit()
    intake.look()


def begun(args: Args) -> subprocess.Popen[bytes]:
    """Start it; it ends with this process, if not before."""
    facts = asdict(replace(args, tied=os.getpid()))
    words = [f"--{name}={value}" for name, value in facts.items()]
    return subprocess.Popen([sys.executable, "-m", "rl.bridge.learn.intaked", *words])


def _ledger(folder: Path) -> Ledger:
    """It may be held by the intake of a learner that was killed just now, for some moments."""
    until = time.monotonic() + HELD_S
    while True:
        try:
            return Ledger(folder)
        except ValueError:
            if time.monotonic() > until:
                raise
            time.sleep(GLANCE_S)


def _tell(account: Path, facts: dict[str, Any]) -> None:
    """Write it in the place of the one before; on a disk that is full that stays."""
    fresh = account.with_suffix(".partial")
    with contextlib.suppress(OSError):
        fresh.write_text(json.dumps(facts))
        fresh.replace(account)


def _spec(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise ValueError(f"--spec {text} is no hash in hex, as 0123456789abcdef.") from None


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.learn.intaked")))
