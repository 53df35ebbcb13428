"""The worst that policies, robots and operators can say: python -m benchmarks.adversaries

A bridge's core of every robot that has an artefact, on slow and fast wires, before its referee: no
limit of any motor may be broken in any tick.  Some policies are the worst that a search finds.
"""

import itertools
import json
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro

from benchmarks import rows
from benchmarks.process import ROOT, guard
from experiments import cli
from rl import artefact
from rl.bridge import messages, states, wire
from rl.bridge.core import Core, Setup, Told
from rl.bridge.drivers.udp import Codec
from rl.bridge.limits import Limits
from rl.bridge.messages import Operator, Plan
from rl.bridge.referee import Verdict, judge
from rl.bridge.sim.sim import header
from rl.bridge.states import ARM, CLEAR, FAULT, HOLD, PASSIVE, READY, STAND
from rl.bridge.wire import State
from rl.spec import Spec

QUICK = Limits(stand_s=0.3, blend_s=0.1, clears=1_000_000)
WIRES = 1, 10  # ticks in a period of the policy
SLICE = 10_000  # ticks that a referee judges at once
TRIED = 1_000  # ticks of a policy in the search


@dataclass(frozen=True)
class Args:
    """Say all that to bridges, and judge what they tell motors."""

    ticks: int = 1_000_000
    seed: int = 0
    policies: Path = ROOT / "benchmarks" / "policies"
    name: str = "bridge/adversaries"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


class Body(NamedTuple):
    """A robot's motors, in arrays [A]."""

    spec: Spec
    low: np.ndarray
    high: np.ndarray
    rest: np.ndarray
    speed: np.ndarray

    def readings(self, angles: Any, speeds: Any, quat: Any = (1, 0, 0, 0)) -> dict[str, np.ndarray]:
        blank = {s.name: np.zeros(s.size, np.float32) for s in self.spec.sensors}
        joints = zip(self.spec.actuators, angles, speeds, strict=True)
        told = {m.position: [x] for m, x, _ in joints}
        told |= {m.velocity: [v] for m, v in zip(self.spec.actuators, speeds, strict=True)}
        told |= {"orientation": quat} if "orientation" in blank else {}
        return blank | {name: np.array(x, np.float32) for name, x in told.items()}


def body(spec: Spec) -> Body:
    names = "low", "high", "rest", "speed"
    return Body(spec, *(np.array([getattr(m, name) for m in spec.actuators]) for name in names))


Wish = Callable[[np.random.Generator, Body, np.ndarray], Any]  # targets, where they are [A]
WISHES: dict[str, Wish] = {
    "walk": lambda rng, body, at: at + rng.normal(0, 0.25, len(at)) * (body.high - body.low),
    "bang-bang": lambda rng, body, at: np.where(rng.random(len(at)) < 0.5, body.high, body.low),
    "noise": lambda rng, body, at: rng.normal(0, 3, len(at)),
    "huge": lambda rng, body, at: rng.choice([1e30, -3e38, 1e9], len(at)),
    "no number": lambda rng, body, at: rng.choice([np.nan, np.inf], len(at)),
    "misshapen": lambda rng, body, at: np.zeros(int(rng.integers(1, 30))),
    "chunks": lambda rng, body, at: rng.normal(0, 1, (int(rng.integers(1, 9)), len(at))),
    "nothing": lambda rng, body, at: None,
}


class Robot:
    """Joints that go where they are told, more or less; some robots jump, lie or turn over."""

    def __init__(self, body: Body, rng: np.random.Generator) -> None:
        self.body, self.rng, self.lean = body, rng, 0.0
        self.kind = rng.choice(["good", "jumps", "lies", "topples", "mute"])
        self.angles = body.rest + rng.normal(0, 0.05, len(body.rest)) * (body.high - body.low)

    def told(self, targets: np.ndarray, dt: float) -> dict[str, np.ndarray] | None:
        """Its readings after dt s; None if it says nothing."""
        rng, body, odd = self.rng, self.body, self.rng.random() < 0.01
        speeds = np.clip((targets - self.angles) * rng.uniform(0, 20), -body.speed, body.speed)
        self.angles = self.angles + speeds * dt
        if self.kind == "jumps" and odd:
            self.angles = self.angles + rng.normal(0, 0.2, len(speeds)) * (body.high - body.low)
        self.lean += 0.004 * (self.kind == "topples")
        if self.kind == "mute" and rng.random() < 0.4:
            return None
        quat = 1.01 * np.array([np.cos(self.lean / 2), 0, np.sin(self.lean / 2), 0])
        bad = rng.choice([np.nan, np.inf, -np.inf])
        lies = (self.kind == "lies" and odd) & (np.arange(len(speeds)) == 3)
        told = speeds + rng.normal(0, 0.03, len(speeds)) * body.speed
        return body.readings(np.where(lies, bad, self.angles), told, quat)


class Bridge:
    """A core, and what goes over its robot's wire, as a referee reads it."""

    def __init__(self, spec: Spec, ticks: int) -> None:
        self.spec, self.rate = spec, ticks / spec.control_dt
        self.core = Core(Setup(spec, QUICK, ticks), Codec(spec))
        self.core.hear("policy", wire.encode(wire.hello(spec)))
        self.lines: list[str] = []
        self.released: list[list[float]] = []
        self.number = 0  # of the operator's last event

    def tick(self, readings: Any, wish: Any, event: str, says: bool) -> Told:
        """One in which the robot says its `readings` or None, the policy its `wish` if it is asked,
        and the operator an `event` or "", if anything."""
        t, core, before, sent = len(self.lines), self.core, self.core.state, []
        core.begin(t / self.rate, 0.0)
        if readings is not None:
            state = State(t + 1, core.now, readings, reset=False)
            sent = [wire.encode(wire.state_message(self.spec, state))]
            core.hear("robot", sent[0])
        if says:
            self.number += bool(event)
            code = states.ASKED.index(event) if event else -1
            command, jog = np.zeros(len(self.spec.command)), np.zeros(len(self.spec.actuators))
            said = Operator(t + 1, code, self.number, False, command, jog)
            core.hear("operator", wire.encode(messages.operator_message(self.spec, said, 0.0)))
        asked = messages.ask_of(self.spec, wire.decode(core.sense()))
        if asked and wish is not None:
            plan = Plan(asked.period, np.atleast_2d(np.asarray(wish, float)))
            core.hear("policy", wire.encode(messages.plan_message(self.spec, plan, 0.0)))
        told = core.act()
        if before == PASSIVE and told.state == READY:
            self.released.append([core.now, core.now])
        row = {"t": t, "time": core.now, "sent": [x.hex() for x in sent], "reset": False}
        row["got"] = [told.datagram.hex()] if told.datagram else []
        self.lines.append(json.dumps(row))
        return told

    def verdict(self) -> Verdict:
        more = {"limits": QUICK, "released": self.released}
        return judge([json.dumps(header(self.spec, self.rate, **more)), *self.lines])


def lived(
    spec: Spec, ticks: int, wish: Wish, rng: np.random.Generator, length: int, kind: str = ""
) -> tuple[Verdict, set[str]]:
    """Spells of fair and of other wishes, of many robots, or those of a kind, and of rash
    operators: what the referee says, and the states that the bridge was in."""
    bridge, found = Bridge(spec, ticks), body(spec)
    robot, odd, seen = Robot(found, rng), False, set()
    again = {PASSIVE: STAND, READY: ARM, HOLD: ARM, FAULT: CLEAR}
    for _ in range(length):
        robot.kind = kind or robot.kind
        odd = rng.random() < 0.5 if rng.random() < 0.05 else odd
        at, fair = bridge.core.limiter.targets, found.rest + rng.normal(0, 1, len(found.rest))
        event = again.get(bridge.core.state, "") if rng.random() < 0.3 else ""
        event = str(rng.choice(states.ASKED)) if rng.random() < 0.002 else event
        wished = wish(rng, found, at) if odd else fair
        readings = robot.told(at, 1 / bridge.rate)
        told = bridge.tick(readings, wished, event, rng.random() < 0.98)
        seen.add(told.state)
        if rng.random() < (0.02 if told.state == FAULT else 0.003):
            robot = Robot(found, rng)
    return bridge.verdict(), seen


def swing(genes: np.ndarray) -> Wish:
    """Joints to and fro: how fast, how far, how sharply, each how much behind the one before, and
    how often the other way at once; five genes from 0 to 1."""
    period, size, sharp = 40 ** genes[0], 2 * genes[1], 50 ** genes[2]
    time = itertools.count()

    def wish(rng: np.random.Generator, body: Body, at: np.ndarray) -> np.ndarray:
        turn = 2 * np.pi * next(time) / period + np.pi * genes[3] * np.arange(len(at))
        way = np.tanh(sharp * np.sin(turn)) * (-1 if rng.random() < genes[4] else 1)
        return (body.low + body.high) / 2 + size * way * (body.high - body.low) / 2

    return wish


def searched(spec: Spec, ticks: int, rng: np.random.Generator, tries: int) -> list[Verdict]:
    """Of policies that come nearer and nearer to limits: each is the best so far, changed."""
    best, score, verdicts = rng.random(5), -np.inf, []
    for _ in range(tries):
        genes = np.clip(best + rng.normal(0, 0.2, 5), 0, 1)
        verdict, _ = lived(spec, ticks, swing(genes), rng, TRIED, "good")
        verdicts.append(verdict)
        now = sum(verdict.limits.values()) + 10 * bool(verdict.violations)
        best, score = (genes, now) if now > score else (best, score)
    return verdicts


def main(args: Args) -> None:
    cli.at_least(1, args, "ticks")
    about, rng = rows.about(), np.random.default_rng(args.seed)
    paths = sorted(args.policies.glob("*/artefact-0.zip"))
    each = math.ceil(args.ticks / (len(paths) * len(WIRES) * (len(WISHES) + 1)))
    ticks, broken, shares = 0, Counter[str](), dict[str, dict[str, float]]()
    for path, wide in itertools.product(paths, WIRES):
        spec = artefact.read(path).spec
        name, verdicts = f"{path.parent.name}@{round(wide / spec.control_dt)}", list[Verdict]()
        for wish in WISHES.values():
            for left in range(each, 0, -SLICE):
                verdicts.append(lived(spec, wide, wish, rng, min(left, SLICE))[0])
        verdicts += searched(spec, wide, rng, math.ceil(each / TRIED))
        ticks += sum(verdict.ticks for verdict in verdicts)
        for verdict in verdicts:
            broken.update(verdict.violations)
        shares[name] = {
            limit: max(x.limits[limit] for x in verdicts) for limit in verdicts[0].limits
        }
        first = next((f"{x.first}" for x in verdicts if x.violations), "nothing broken")
        used = ", ".join(f"{x:.4f} of {limit}" for limit, x in shares[name].items())
        print(f"{name}: {first}; at most {used}", flush=True)
    facts = {"ticks": ticks, "violations": broken, "shares": shares}
    rows.write(args.results, {"what": args.name, **facts, **about})
    print(f"{ticks} ticks, {broken.total()} in which a rule was broken")
    if broken:
        sys.exit("error: Motors were told what is not allowed.")


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.adversaries")))
