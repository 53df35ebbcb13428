"""An actor and its learner, as they are apart: in one process for a test to drive, or in two."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
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


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return f"tcp://127.0.0.1:{one.getsockname()[1]}"


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


class Learner:
    """Its intake, in this process."""

    def __init__(self, folder: Path, address: str = "tcp://127.0.0.1:0", spec: bytes = b"") -> None:
        self.ledger, self.shelf = Ledger(folder / "ledger"), Shelf(folder / "weights")
        secret = certs.read_secret(folder / "keys" / "learner.secret")
        self.gate = Gate(address, secret, certs.allowed(folder / "keys"))
        self.intake = Intake(self.ledger, self.shelf, spec, self.gate.send)
        self.address = self.gate.address

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


class Stage:
    """Learners and actors with their keys in a folder; none is left open at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.opened: list[Learner | Actor] = []
        keys(folder, "arm", "bad")

    def learner(self, *args: Any, **more: Any) -> Learner:
        self.opened.append(made := Learner(self.folder, *args, **more))
        return made

    def actor(self, address: str, *args: Any, **more: Any) -> Actor:
        self.opened.append(made := Actor(self.folder, address, *args, **more))
        return made

    def pair(self) -> tuple[Learner, Actor]:
        """A learner, and an actor that is let in."""
        learner = self.learner()
        arm = self.actor(learner.address)
        until(lambda: arm.uplink.up, learner, arm)
        return learner, arm

    def close(self, *these: Learner | Actor) -> None:
        """These, or all."""
        for each in these or [*self.opened]:
            self.opened.remove(each)
            each.close()


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
def intaked(
    folder: Path, listen: str, program: Sequence[str] = ("-m", "rl.bridge.learn.intaked")
) -> Iterator[subprocess.Popen[str]]:
    """A learner's intake in a process of its own, that listens when this begins."""
    command = [sys.executable, *program, *flags(folder, listen), "--tied", str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline().startswith("intake")
            yield process
        finally:
            process.kill()


def flags(folder: Path, listen: str) -> list[str]:
    found = {"folder": "ledger", "weights": "weights", "keys": "keys"}
    words = [x for flag, name in found.items() for x in (f"--{flag}", str(folder / name))]
    return [*words, "--listen", listen]
