"""A log lived through again: the same messages must lead to the same commands, to the last bit."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from rl import artefact
from rl.artefact import Deployed
from rl.bridge import launch, messages, robots, wire
from rl.bridge.core import Core, Told
from rl.bridge.ears import Codec
from rl.bridge.log import flight
from rl.bridge.log.flight import Flight, Row
from rl.bridge.messages import Ask

SAME = 1e-6  # of a policy's targets, in the units of the motors


@dataclass(frozen=True)
class Replay:
    """Live through a flight again: what was heard must lead to the same commands."""

    log: tyro.conf.Positional[Path]  # of run --log
    artefact: Path | None = None  # whose policy must answer as it did, too
    runtime: Literal["jax", "numpy"] = "jax"  # on which it did


@dataclass
class Replayed:
    """What came of it."""

    ticks: int = 0
    different: int = 0  # ticks whose command, state, reasons or stages are not as they were
    first: str = ""  # of them, and in what
    asked: int = 0  # questions to the policy that could be put again
    left: int = 0  # ticks after a damaged one, of which nobody knows what they came from
    off: float = 0.0  # most that a target is off what it was, if a policy was given


def replay(flight: Flight, codec: Codec, policy: Deployed | None = None) -> Replayed:
    """Compare a core that hears what was heard with what the log says of it."""
    core, found = Core(flight.about.setup, codec), Replayed()
    asks: dict[int, Ask] = {}  # that the policy has not answered
    for row in flight.rows:
        if row.lost:
            found.left = len(flight.rows) - found.ticks
            break
        core.begin(row.now, row.late)
        for heard in row.heard:
            if not heard.answer:
                core.hear(heard.source, heard.datagram)
        question = core.sense()
        for heard in row.heard:
            if heard.answer:
                core.hear(heard.source, heard.datagram)
        told = core.act()
        found.ticks += 1
        if what := _difference(row, told):
            found.different += 1
            found.first = found.first or f"tick {row.number}: {what}"
        if policy:
            _ask_again(policy, core, question, row, asks, found)
    return found


def _difference(row: Row, told: Told) -> str:
    """In what a tick is not as it was, "" if in nothing."""
    if row.told != told.datagram:
        return "another command"
    if (row.state, row.mask) != (told.state, int(told.mask)):
        return f"{told.state} and not {row.state}, or other reasons"
    return "" if told.stages.tobytes() == row.stages.tobytes() else "other stages of its limits"


def _ask_again(
    policy: Deployed, core: Core, question: bytes, row: Row, asks: dict[int, Ask], found: Replayed
) -> None:  # fmt: skip
    """Whether the policy answers as it did, if it did: it leaves out questions that are old."""
    spec = core.setup.spec
    if ask := messages.ask_of(spec, wire.decode(question)):
        asks[ask.period] = ask
    for heard in row.heard:
        plan = messages.plan_of(spec, wire.decode(heard.datagram))
        if heard.source != "policy" or plan is None or plan.first not in asks:
            continue
        if any(x.reset for x in asks.values()):
            policy.reset()
        ask = asks[plan.first]
        targets = policy.step(ask.readings, ask.command)
        for period in [x for x in asks if x <= plan.first or asks[x].reset]:
            del asks[period]
        found.asked += 1
        found.off = max(found.off, float(np.abs(plan.targets[0] - targets).max()))


def again(args: Replay) -> None:
    found = flight.read(args.log)
    path, runtime = args.artefact, args.runtime
    policy = artefact.deploy(artefact.read(launch.found(path)), runtime) if path else None
    if policy and policy.spec != found.about.setup.spec:
        raise ValueError(f"{args.artefact} is not the policy of {args.log}.")
    told = replay(found, robots.codec(found.about), policy)
    if not found.whole:
        print(f"note     {args.log} was cut short, or is damaged: what is whole of it was read")
    print(f"replayed {told.ticks} ticks, {told.different} of them not as they were")
    if policy:
        print(f"policy   {told.asked} answers, {told.off:.2g} off what they were at most")
    if told.different:
        sys.exit(f"error: The first that differs is {told.first}.")
    if told.off > SAME:
        sys.exit(f"error: With {runtime} the policy does not answer as it did, to {SAME:g}.")
    if told.left:
        sys.exit(f"error: {told.left} ticks come after a damaged one: what led to them is lost.")
