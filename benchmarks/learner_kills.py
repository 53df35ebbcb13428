"""A learner, and its actor, killed at any moment: python -m benchmarks.learner_kills

An actor records numbered records and says so when each is in its journal; its learner, with all
its processes, is killed a thousand times meanwhile, and the actor itself a hundred times.  At the
end each record that was said to be recorded must be in the ledger, once, and as it was.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import tyro

from benchmarks import rows
from benchmarks.distant_actor import record
from benchmarks.process import ROOT, guard
from experiments import cli
from rl.bridge.learn import certs
from rl.bridge.learn.ledger import Tail

LIVES_S = 0.1, 2.0  # s, from, to: it is up after some tenths
TIMED = 5  # each so many-th is let live until it acknowledges: how long that takes is to be seen
WAITS_S = 60.0  # for that
YOUNGEST_S = 0.05  # in which no process can be up
BAR_S = 5.0  # until the first acknowledgement of one that was begun
ENDS_S = 120.0


@dataclass(frozen=True)
class Args:
    """Kill them, and judge what is left."""

    kills: int = 1000  # of the learner
    actor_kills: int = 100
    rate: float = 300.0  # records a second
    seed: int = 0
    name: str = "hil/learner_kills"
    results: Path = ROOT / "benchmarks" / "results" / "hil.jsonl"


@dataclass
class Said:
    """By all processes of the actor."""

    recorded: dict[bytes, int] = field(default_factory=dict)  # the last, by boot
    acknowledged: list[float] = field(default_factory=list)  # s, the first since it was let in
    left: int = -1  # records that were not acknowledged at the end


class Actor:
    """A process, and a thread that hears it to the end."""

    def __init__(self, folder: Path, address: str, rate: float, said: Said) -> None:
        words = f"--folder={folder}", f"--address={address}", f"--rate={rate}"
        self.said, self.process = said, subprocess.Popen(
            [sys.executable, "-m", "benchmarks.distant_actor", *words], stdout=subprocess.PIPE
        )  # fmt: skip
        self.there = Event()
        self.thread = Thread(target=self._hear)
        self.thread.start()

    def ends(self, sent: int) -> None:
        self.process.send_signal(sent)
        self.thread.join()
        self.process.wait()

    def _hear(self) -> None:
        assert self.process.stdout
        boot = b""
        with self.process.stdout as lines:
            for line in lines:
                word, _, value = line.decode().partition(" ")
                if not line.endswith(b"\n"):  # it was killed while it said so
                    return
                match word:
                    case "boot":
                        boot = bytes.fromhex(value)
                        self.there.set()
                    case "recorded":
                        self.said.recorded[boot] = int(value)
                    case "acknowledged":
                        self.said.acknowledged.append(float(value))
                    case "left":
                        self.said.left = int(value)


@dataclass(frozen=True)
class Life:
    """Of a learner that was killed."""

    began: float  # s
    ended: float
    timed: bool  # it was killed after that

    def took(self, acknowledged: list[float]) -> float:
        """s until it first acknowledged something; inf if it was killed before that."""
        least = self.began + YOUNGEST_S  # before that it was what the last one had sent
        first = next((at for at in acknowledged if least <= at < self.ended), np.inf)
        return first - self.began


def main(args: Args) -> None:
    cli.at_least(1, args, "kills", "rate")
    about, began = rows.about(), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in ("learner", "arm"):
            certs.make(folder / "keys", name)
        said, lives = lived(args, folder)
        facts: dict[str, Any] = {"kills": args.kills, "actor_kills": args.actor_kills}
        facts |= judged(folder, said)
    took = [life.took(said.acknowledged) for life in lives if life.timed]
    p50, p99, most = np.percentile(took, (50, 99, 100), method="higher")
    facts |= {"first_ack_s": {"p50": round(p50, 2), "p99": round(p99, 2), "max": round(most, 2),
                              "of": len(took), "bar": BAR_S}}  # fmt: skip
    facts |= {"seconds": round(time.monotonic() - began)}
    rows.write(args.results, {"what": args.name, **facts, **about})
    print(f"{facts['records']} records of {facts['boots']} processes: {facts['lost']} lost, "
          f"{facts['duplicated']} twice, {facts['corrupt']} damaged; {len(took)} learners "
          f"acknowledged after {p50:.2f} s, {most:.2f} at most of {BAR_S:g}")  # fmt: skip
    if any(facts[x] for x in ("lost", "duplicated", "corrupt", "misread")) or not most <= BAR_S:
        sys.exit("error: Not every record came once and in time.")


def lived(args: Args, folder: Path) -> tuple[Said, list[Life]]:
    """Kill learner after learner, and now and then their actor; then let all be acknowledged."""
    rng, said, lives = np.random.default_rng(args.seed), Said(), list[Life]()
    with socket.create_server(("127.0.0.1", 0)) as one:
        address = f"tcp://127.0.0.1:{one.getsockname()[1]}"
    others = [number for number in range(args.kills) if number % TIMED]
    among = {*rng.choice(others, min(args.actor_kills, len(others)), replace=False).tolist()}
    actor = Actor(folder, address, args.rate, said)
    try:
        for number in range(args.kills):
            with learner(folder, address):
                began, lives_s = time.monotonic(), rng.uniform(*LIVES_S)
                if number in among:
                    time.sleep(rng.uniform(0, lives_s))
                    actor.ends(signal.SIGKILL)
                    actor = Actor(folder, address, args.rate, said)
                time.sleep(max(began + lives_s - time.monotonic(), 0.0))
                timed = number % TIMED == 0
                while timed and time.monotonic() - began < WAITS_S:
                    if np.isfinite(Life(began, time.monotonic(), True).took(said.acknowledged)):
                        break
                    time.sleep(0.01)
            lives.append(Life(began, time.monotonic(), timed))
            if number % 50 == 49:
                told = sum(said.recorded.values()) + len(said.recorded)
                print(f"{number + 1:4} of {args.kills}: {told} records", flush=True)
        with learner(folder, address) as last:
            actor.there.wait(ENDS_S)
            actor.ends(signal.SIGTERM)
            last.terminate()
            last.wait(ENDS_S)
    finally:
        actor.ends(signal.SIGKILL)
    if said.left:
        raise ValueError(f"{said.left} records were not acknowledged at the end.")
    return said, lives


@contextmanager
def learner(folder: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """All its processes, which are killed at the end."""
    words = [sys.executable, "-m", "benchmarks.distant_learner"]
    process = subprocess.Popen(
        [*words, f"--folder={folder}", f"--listen={address}"], stdout=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended in order
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def judged(folder: Path, said: Said) -> dict[str, int]:
    """What the ledger has against what was said, and against what the learner has read."""
    tail, nexts = Tail(folder / "ledger"), dict[bytes, int]()
    count = lost = twice = corrupt = total = 0
    while found := tail.read():
        for row in found:
            due = nexts.get(row.boot, 0)
            lost += max(row.seq - due, 0)
            twice += row.seq < due
            corrupt += row.record != record(row.boot, row.seq)
            nexts[row.boot] = max(due, row.seq + 1)
            count, total = count + 1, (total + zlib.crc32(row.record)) % (1 << 32)
    lost += sum(max(last + 1 - nexts.get(boot, 0), 0) for boot, last in said.recorded.items())
    state = json.loads((folder / "learner.json").read_text())
    misread = int((state["count"], state["sum"]) != (count, total))
    return {"records": count, "boots": len(nexts), "lost": lost, "duplicated": twice,
            "corrupt": corrupt, "misread": misread}  # fmt: skip


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.learner_kills")))
