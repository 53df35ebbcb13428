"""Keeps what a bridge does, sends it to a learner, and has newer weights come: in a process of its
own, without which the robot is held.

python -m rl.bridge.learn.actord ARTEFACT --learner tcp://HOST:9890 --keys FOLDER --folder FOLDER
"""

import json
import os
import signal
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
import zmq

from rl import artefact
from rl.bridge import wire
from rl.bridge.learn import certs, segments, weights
from rl.bridge.learn.journal import QUOTA, Journal
from rl.bridge.learn.outbox import Inbox
from rl.bridge.learn.segments import Full
from rl.bridge.learn.uplink import Uplink
from rl.bridge.tied import tie
from rl.guard import guard

SYNC_S = 1.0  # s after which what was kept is on the disk
TOLD_S = 0.2  # between two accounts of how it is
SETTLE_S = 2.0  # s at the end to send what is left
ACCOUNT, JOURNAL = "actor.json", "journal"


@dataclass(frozen=True)
class Args:
    """Keep what a robot does, and send it to a learner."""

    artefact: tyro.conf.Positional[Path]  # of the policy that learns
    learner: str  # tcp://host:port
    keys: Path  # a folder with NAME.secret and learner.public
    folder: Path  # of the journal, of weights and of an account of how it is
    name: str = "robot"  # of this actor
    steps: str = "127.0.0.1:9872"  # where its bridge says what it does
    quota: int = QUOTA  # bytes of the journal
    tied: int = 0  # the process that started it, and without which it ends


class Actor:
    def __init__(self, uplink: Uplink, inbox: str, folder: Path) -> None:
        """Hears a bridge at the address `inbox`."""
        self.uplink, self.folder = uplink, folder
        self.inbox = Inbox(wire.address(inbox), self.keep)
        uplink.poller.register(self.inbox.link.socket, zmq.POLLIN)
        self.full = ""  # why there is no room
        self.steps, self.version, self.began = 0, 0, time.monotonic()
        self.synced = self.told = 0.0

    def keep(self, record: bytes) -> bool:
        """Whether a step is kept."""
        try:
            self.uplink.append(record)
        except Full as error:
            self.full = str(error)
            return False
        self.full = ""
        return True

    def turn(self) -> None:
        """Hear, keep, send, and take in newer weights."""
        self.uplink.poll(TOLD_S / 4)
        self.steps += self.inbox.hear()
        now = time.monotonic()
        if now - self.synced > SYNC_S:
            self.uplink.journal.sync()
            self.synced = now
        found = self.uplink.weights
        if found and found.version > self.version:
            weights.publish(self.folder / "weights", *found)
            self.version = found.version
        if now - self.told > TOLD_S:
            facts = self.facts()
            self.uplink.tell(facts)
            segments.replace(self.folder / ACCOUNT, json.dumps({"at": now} | facts).encode())
            self.told = now

    def facts(self) -> dict[str, Any]:
        """How it is."""
        uplink, refused = self.uplink, self.folder / "weights" / weights.REFUSED
        return {
            "pid": os.getpid(), "steps": self.steps,
            "pending": uplink.pending, "acked": uplink.acked,
            # Who was never heard is silent since this began.
            "learner_up": uplink.up,
            "learner_silent_s": min(uplink.heard_s, time.monotonic() - self.began),
            "trouble": uplink.trouble, "turned_away": uplink.refused, "full": self.full,
            "over": uplink.over,
            "weights": self.version,
            "refused": len(refused.read_text().splitlines()) if refused.exists() else 0,
        }  # fmt: skip


def main(args: Args) -> None:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(0))
    if args.tied:
        tie(args.tied)
    policy = artefact.read(args.artefact)
    secret = certs.read_secret(args.keys / f"{args.name}.secret")
    learner = certs.read_public(args.keys / f"{certs.LEARNER}.public")
    folder = args.folder / JOURNAL
    with (
        closing(Journal(folder, args.name, args.quota, policy.run)) as journal,
        closing(Uplink(journal, args.learner, secret, learner, policy.spec.hash)) as uplink,
    ):
        (args.folder / "weights").mkdir(exist_ok=True)
        actor = Actor(uplink, args.steps, args.folder)
        print(f"keeping  {args.name}'s steps in {args.folder}", flush=True)
        try:
            while True:
                actor.turn()
        finally:
            actor.inbox.hear()
            uplink.settle(SETTLE_S)
            left = uplink.pending
            print(
                f"kept     {actor.steps} steps, {left} of them not at the learner yet", flush=True
            )


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it says when it is over
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.learn.actord")))
