"""The policy in its own process: it answers questions with plans, and can do no more.

It comes to a bridge when it is compiled and warm, and not before.
"""

import contextlib
import gc
import secrets
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from rl import artefact, guided
from rl.artefact import Deployed, Golden
from rl.bridge import messages, wire
from rl.bridge.clock import urgent
from rl.bridge.desk import POLICY
from rl.bridge.greeting import check_hello
from rl.bridge.learn.newer import Newer
from rl.bridge.messages import Ask, Own, Plan
from rl.bridge.serve.elsewhere import Elsewhere
from rl.bridge.wire import OTHER, REFUSED, Link
from rl.guard import guard

PING_S = 0.4  # between greetings: less than a bridge takes for silence
GONE_S = 10.0  # s of silence after which a bridge is given up
PACED = 20  # steps that are timed before it comes
REHEARSED_S = 0.002  # before it is to be asked again; without, a step takes thrice as long


class Policyd:
    """Answers over `link` until the bridge says goodbye or falls silent."""

    def __init__(
        self, policy: Deployed, link: Link, greeted: Callable[[], None], tag: int, step_s: float
    ) -> None:
        """`greeted` is called when the bridge has let it in; it is of the artefact with this tag,
        and takes so many s for a step."""
        self.policy, self.link, self.spec = policy, link, policy.spec
        self.weights: Newer | None = None  # of a policy that learns
        self.seed = secrets.randbits(24)  # of what it draws
        self.greeted: Callable[[], None] | None = greeted
        self.rehearses = np.inf  # when it will, s
        self.greeting = wire.hello(self.spec)._replace(flags=POLICY, seq=tag, time=step_s)

    def live(self) -> bool:
        """Whether the bridge said goodbye; ValueError if it is of another spec or artefact."""
        heard = time.monotonic()
        greeted = -PING_S
        while time.monotonic() - heard < GONE_S:
            if time.monotonic() - greeted >= PING_S:
                self.link.send(self.greeting)
                greeted = time.monotonic()
            if self.weights:
                self.weights.look()
            left = self.rehearses - time.monotonic()
            if (got := self.link.receive_raw(min(PING_S, max(left, 0.0)))) is None:
                if time.monotonic() >= self.rehearses:
                    self.policy.rehearse()
                    self.rehearses = np.inf
                continue
            heard = time.monotonic()
            asks = []
            for datagram in (got[0], *self.link.drain()):
                message = wire.decode(datagram)
                if message and message.kind == wire.BYE:
                    return True
                if message and message.kind == wire.HELLO:
                    self._answered(message)
                elif ask := messages.ask_of(self.spec, message):
                    asks.append(ask)
            if asks:
                with contextlib.suppress(TimeoutError):  # of a server: it is held without a plan
                    self.answer(asks)
                due = heard + self.spec.control_dt - REHEARSED_S
                self.rehearses = np.inf if asks[-1].waits else due
        return False

    def _answered(self, message: wire.Message) -> None:
        """A greeting: a place may be free later, another artefact's never is."""
        check_hello(self.spec, message, "The bridge")
        if message.flags & OTHER:
            raise ValueError(message.text)
        if self.greeted and not message.flags & REFUSED:
            self.greeted()
            self.greeted = None

    def answer(self, asks: list[Ask]) -> None:
        """The newest question alone, but what was to be forgotten is."""
        if any(ask.reset for ask in asks):
            self.policy.reset()
        ask = asks[-1]
        if not self.spec.action:
            targets = self.policy.step(ask.readings, ask.command)
            plan = Plan(ask.period, np.asarray(targets)[None])
        else:
            plan = self._guided(ask)
        self.link.send(messages.plan_message(self.spec, plan, ask.time))

    def _guided(self, ask: Ask) -> Plan:
        """The plan of a policy that learns, or of the human in its place."""
        carry = self.policy.carry
        asked = guided.Asked(ask.command, ask.action, ask.human, self.seed, ask.period)
        told = guided.told(self.spec, self.policy.step(ask.readings, guided.asked(asked)))
        if self.weights:
            self.weights.recent.append((carry, *self.policy.newest))
        version = self.weights.version if self.weights else 0
        own = Own(told.action, told.done, version, told.memory)
        return Plan(ask.period, told.targets[None], own)


@dataclass(frozen=True)
class Args:
    """Answer a bridge with what a policy wants."""

    artefact: tyro.conf.Positional[Path]
    desk: str = "127.0.0.1:9871"  # of the bridge
    runtime: Literal["jax", "numpy"] = "jax"
    elsewhere: tyro.conf.OmitArgPrefixes[Elsewhere] = Elsewhere()
    weights: Path | None = None  # a folder where newer ones come, of a policy that learns


def pace(policy: Deployed, golden: Golden) -> float:
    """s that a step takes, the median of some, on this machine as it is now."""
    took, readings = [], {name: x[0] for name, x in golden.readings.items()}
    for _ in range(PACED):
        began = time.perf_counter()
        policy.step(readings, golden.command[0])
        took.append(time.perf_counter() - began)
    policy.reset()
    return float(np.median(took))


def main(args: Args) -> None:
    found = artefact.read(args.artefact)
    policy = args.elsewhere.deploy(found, args.runtime)
    tag, step_s = wire.tag(found.digest), pace(policy, found.golden)
    gc.collect()
    gc.freeze()  # to look through all that JAX has made would hold it up for several periods
    urgent("policy")  # this thread, after those that JAX has begun: a step is done in this one
    link = Link(("0.0.0.0", 0), wire.address(args.desk))
    running = f"running  {policy.spec.name} with {args.elsewhere.policy or args.runtime}"
    greeted = lambda: print(running, flush=True)  # noqa: E731
    policyd = Policyd(policy, link, greeted, tag, step_s)
    if args.weights:
        policyd.weights = Newer(args.weights, policy)
    if not policyd.live():
        raise ValueError("The bridge fell silent.")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its bridge says when it is over
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.policyd")))
