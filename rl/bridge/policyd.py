"""The policy in its own process: it answers questions with plans, and can do no more.

It comes to a bridge when it is compiled and warm, and not before.
"""

import gc
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from rl import artefact
from rl.artefact import Deployed
from rl.bridge import messages, wire
from rl.bridge.desk import POLICY, REFUSED
from rl.bridge.greeting import check_hello
from rl.bridge.messages import Ask, Plan
from rl.bridge.wire import Link

PING_S = 0.4  # between greetings: less than a bridge takes for silence
GONE_S = 10.0  # s of silence after which a bridge is given up


class Policyd:
    """Answers over `link` until the bridge says goodbye or falls silent."""

    def __init__(self, policy: Deployed, link: Link, greeted: Callable[[], None]) -> None:
        """`greeted` is called when the bridge has let it in."""
        self.policy, self.link, self.spec = policy, link, policy.spec
        self.greeted: Callable[[], None] | None = greeted
        self.greeting = wire.hello(self.spec)._replace(flags=POLICY)

    def live(self) -> bool:
        """Whether the bridge said goodbye; ValueError if it is of another spec."""
        heard = time.monotonic()
        greeted = -PING_S
        while time.monotonic() - heard < GONE_S:
            if time.monotonic() - greeted >= PING_S:
                self.link.send(self.greeting)
                greeted = time.monotonic()
            if (got := self.link.receive_raw(PING_S)) is None:
                continue
            heard = time.monotonic()
            asks = []
            for datagram in (got[0], *self.link.drain()):
                message = wire.decode(datagram)
                if message and message.kind == wire.BYE:
                    return True
                if message and message.kind == wire.HELLO:
                    check_hello(self.spec, message, "The bridge")
                    if self.greeted and not message.flags & REFUSED:
                        self.greeted()
                        self.greeted = None
                elif ask := messages.ask_of(self.spec, message):
                    asks.append(ask)
            if asks:
                self.answer(asks)
        return False

    def answer(self, asks: list[Ask]) -> None:
        """The newest question alone, but what was to be forgotten is."""
        if any(ask.reset for ask in asks):
            self.policy.reset()
        ask = asks[-1]
        targets = self.policy.step(ask.readings, ask.command)
        plan = Plan(ask.period, np.asarray(targets)[None])
        self.link.send(messages.plan_message(self.spec, plan, ask.time))


@dataclass(frozen=True)
class Args:
    """Answer a bridge with what a policy wants."""

    artefact: tyro.conf.Positional[Path]
    desk: str = "127.0.0.1:9871"  # of the bridge
    runtime: Literal["jax", "numpy"] = "jax"


def main(args: Args) -> None:
    policy = artefact.deploy(artefact.read(args.artefact), args.runtime)
    gc.collect()
    gc.freeze()  # to look through all that JAX has made would hold it up for several periods
    link = Link(("0.0.0.0", 0), wire.address(args.desk))
    running = f"running  {policy.spec.name} with {args.runtime}"
    if not Policyd(policy, link, lambda: print(running, flush=True)).live():
        raise ValueError("The bridge fell silent.")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its bridge says when it is over
    try:
        main(tyro.cli(Args, prog="python -m rl.bridge.policyd"))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
