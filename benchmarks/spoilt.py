"""A policy, or a pilot, whose words are spoilt on their way: python -m benchmarks.spoilt ARTEFACT

It is the policy of rl/bridge/policyd.py, with a plan of faults (rl/bridge/sim/faults.py) to its
link.
"""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks.process import guard
from rl import artefact
from rl.bridge import wire
from rl.bridge.policyd import Policyd
from rl.bridge.sim import faults
from rl.bridge.sim.faults import Fault, Spoiler
from rl.bridge.wire import Link, Message


class Spoilt:
    """A link, to what is sent over which a plan does what it says; greetings are spared."""

    def __init__(
        self, link: Link, plan: Sequence[Fault], seed: int, now: Callable[[Message], float]
    ) -> None:
        """`now` tells of a message when it is sent, s."""
        self.link, self.now = link, now
        self.spoiler = Spoiler(plan, np.random.default_rng((seed, 0x5901)))

    def send(self, message: Message) -> None:
        if message.kind in (wire.HELLO, wire.BYE):
            self.link.send(message)
            return
        for datagram in self.spoiler.through(self.now(message), wire.encode(message)):
            self.link.send_raw(datagram)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.link, name)


@dataclass(frozen=True)
class Args:
    """Answer a bridge with what becomes of a policy's plans."""

    artefact: tyro.conf.Positional[Path]
    desk: str
    faults: Path  # a plan of them, by the bridge's clock
    seed: int = 0


def main(args: Args) -> None:
    found = artefact.read(args.artefact)
    policy, tag = artefact.deploy(found, "numpy"), wire.tag(found.digest)
    link = Link(("127.0.0.1", 0), wire.address(args.desk))
    plan = faults.read(args.faults)
    spoilt: Any = Spoilt(link, plan, args.seed, lambda message: message.time)
    Policyd(policy, spoilt, lambda: print("running", flush=True), tag, 0.0).live()


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.spoilt")))
