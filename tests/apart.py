"""An actor and its learner, as they are apart: in one process for a test to drive, or in two."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl.bridge.learn import certs
from rl.bridge.learn.gate import Gate
from rl.bridge.learn.intake import Intake
from rl.bridge.learn.intaked import turn
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.ledger import Ledger, Row, Tail
from rl.bridge.learn.uplink import Uplink
from rl.bridge.learn.weights import Shelf

PATIENCE_S = 20.0


def keys(folder: Path, *names: str) -> Path:
    """A folder with the keys of a learner and of these actors."""
    for name in ("learner", *names):
        certs.make(folder / "keys", name)
    return folder / "keys"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


class Learner:
    """Its intake, in this process."""

    def __init__(self, folder: Path, address: str = "tcp://127.0.0.1:0", spec: bytes = b"") -> None:
        where = folder / "keys"
        self.ledger, self.shelf = Ledger(folder / "ledger"), Shelf(folder / "weights")
        secret = certs.read_secret(where / "learner.secret")
        self.gate = Gate(address, secret, certs.allowed(where))
        self.intake = Intake(self.ledger, self.shelf, spec, self.gate.send)

    def turn(self) -> None:
        turn(self.intake, self.gate, 0.002)

    def close(self) -> None:
        for each in (self.gate, self.shelf, self.ledger):
            each.close()


class Actor:
    """Its uplink, and the journal behind it."""

    def __init__(self, folder: Path, address: str, name: str = "arm", **more: Any) -> None:
        where = more.pop("keys", folder / "keys")
        self.journal = Journal(more.pop("journal", folder / name), more.pop("called", name))
        secret = certs.read_secret(where / f"{name}.secret")
        learner = certs.read_public(where / "learner.public")
        self.uplink = Uplink(self.journal, address, secret, learner, **more)

    def turn(self) -> None:
        self.uplink.poll(0.002)

    def close(self) -> None:
        self.uplink.close()
        self.journal.close()


def until(done: Callable[[], Any], *who: Any, timeout: float = PATIENCE_S) -> float:
    """Let all have their turns until it is done; s that took."""
    began = time.monotonic()
    while not done():
        assert time.monotonic() - began < timeout, "in vain"
        for each in who:
            each.turn()
    return time.monotonic() - began


def rows_of(folder: Path) -> list[Row]:
    """All of the ledger in a learner's folder."""
    tail, rows = Tail(folder / "ledger"), list[Row]()
    while found := tail.read():
        rows += found
    return rows


@contextmanager
def intaked(folder: Path, listen: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A learner's intake in a process of its own, that listens when this begins."""
    flags = ["--folder", folder / "ledger", "--weights", folder / "weights", "--keys",
             folder / "keys", "--listen", listen, "--tied", os.getpid(), *words]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "rl.bridge.learn.intaked", *map(str, flags)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout
        assert process.stdout.readline().startswith("intake")
        yield process
    finally:
        process.kill()
        process.communicate()
