"""A policy or a pilot that dies or freezes in the middle of a walk: python -m benchmarks.kills

Over a wire of 500 Hz, at a moment of its own in each episode, in lock step or in real time.  The
robot must be held in time: the referee says whether it was, by what went over its wire alone.
In real time a robot's ticks are not its bridge's: rules that compare ticks are judged in lock step.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from benchmarks import flights, pilots, rows
from benchmarks.pilots import Moment
from benchmarks.process import ROOT, guard
from experiments import cli
from rl import artefact
from rl.bridge import wire
from rl.bridge.limits import Limits
from rl.bridge.log import flight as log
from rl.bridge.messages import Status
from rl.bridge.pilot import Word
from rl.bridge.referee import Verdict, judge
from rl.bridge.sim.sim import header
from rl.bridge.states import ARMED, HOLD, MOVING

RATE = 500.0  # ticks of the wire a second
SECONDS = {False: 2.0, True: 4.0}  # of an episode, in lock step and in real time
LATE_S = {False: 0.0, True: 0.02}  # s that a simulated robot is behind the clock, at most
AGES = {"policy": Limits().plan_age / 50, "pilot": Limits().operator_age}  # s
SIGNALS = signal.SIGKILL, signal.SIGSTOP
PAUSES = 0.02, 0.1, 1.0  # s after which a frozen one goes on, in real time
ROUND = 25  # episodes that a referee judges at once
TICKS = 2  # of the wire, beyond the limit of age
ANYWHERE = "expect: held", "garbled", "finite", "range"  # rules that are judged in real time, too


@dataclass(frozen=True)
class Args:
    """Kill and freeze it, in turn."""

    moments: int = 500
    who: Literal["policy", "pilot"] = "policy"
    real: bool = False  # in real time, and who is frozen goes on later
    seed: int = 0
    path: Path = ROOT / "benchmarks" / "policies" / "go2-joystick-flat" / "artefact-0.zip"
    name: str | None = None  # None: bridge/kills, -WHO, -real
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"

    @property
    def limit(self) -> float:
        """s in which it must be held."""
        return AGES[self.who] + TICKS / RATE + LATE_S[self.real]


@dataclass(frozen=True)
class Round:
    """What came of some episodes."""

    took: np.ndarray  # s until it was held; inf if it never was
    skipped: int  # moments at which it was not armed
    borne: int  # pauses that were too short to hold it
    returned: int  # that moved again by themselves
    verdict: Verdict


def main(args: Args) -> None:
    cli.at_least(1, args, "moments")
    about, rounds = rows.about(), list[Round]()
    for first in range(0, args.moments, ROUND):
        count = min(ROUND, args.moments - first)
        rounds.append(one := survived(args, np.random.default_rng((args.seed, first)), count))
        most = max(one.took, default=0) * 1e3
        told = one.verdict.first or f"held after {most:.0f} ms at most"
        print(f"{first + count:4} of {args.moments}: {told}", flush=True)
    took, broken = np.concatenate([one.took for one in rounds]), Counter[str]()
    for one in rounds:
        broken.update(one.verdict.violations)
    p50, most = np.percentile(took, (50, 100)) * 1e3 if len(took) else (0.0, np.inf)
    facts: dict[str, Any] = {"moments": args.moments, "rate": RATE, "violations": broken}
    facts |= {"ticks": sum(one.verdict.ticks for one in rounds)}
    facts |= {name: sum(getattr(one, name) for one in rounds)
              for name in ("skipped", "borne", "returned")}  # fmt: skip
    facts |= {"held_ms": {"p50": round(p50, 1), "max": round(most, 1)}}
    facts |= {"limit_ms": 1e3 * args.limit}
    kind = f"-{args.who}" * (args.who != "policy") + "-real" * args.real
    rows.write(args.results, {"what": args.name or f"bridge/kills{kind}", **facts, **about})
    print(f"{len(took)} held after {p50:.0f} ms, {most:.0f} at most of {1e3 * args.limit:.0f}; "
          f"{facts['skipped']} skipped, {facts['returned']} moved again by themselves")  # fmt: skip
    if broken or facts["returned"] or not most <= 1e3 * args.limit:
        sys.exit("error: Not every one was held in time, or within limits.")


def survived(args: Args, rng: np.random.Generator, count: int) -> Round:
    """So many episodes, in each of which it goes."""
    lasts = SECONDS[args.real]
    moments = [Moment(lasts * e + rng.uniform(0.3, 1.0), SIGNALS[e % 2],
                      PAUSES[e // 2 % 3] if args.real and e % 2 else np.inf)
               for e in range(count)]  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder, found = Path(temporary), artefact.read(args.path)
        begin = flights.starts(found, RATE, count, folder / "starts.npz")
        sim = ["--rate", RATE, "--seconds", lasts, "--starts", begin]
        sim += ["--pace", "real"] if args.real else []
        patience = f"--{args.who}-patience", 0.2
        policy = ("--runtime", "numpy") if args.who == "pilot" else ()
        with flights.flight(args.path, folder, sim, patience, policy) as flight:
            if args.who == "pilot":
                sent = pilots.watched(flight, args.path, moments)
            else:
                sent = Killer(flight, args.path, moments, rng, args.real).lived(lasts)
            flight.ends("sim", "robotd")
        flown, wire_of = log.read(folder / "flight.mcap"), folder / "truth.jsonl"
        must = [e for e, at in enumerate(sent) if moments[e].pause > args.limit and at == at]
        ends = [lasts * (e + 1) - 1.5 / RATE for e in must]
        spans = [(sent[e], end) for e, end in zip(must, ends, strict=True)]
        expect = [{"name": "held", "from": at, "within": args.limit, "be": "safe", "until": end}
                  for at, end in spans]  # fmt: skip
        with wire_of.open() as lines:
            next(lines)  # in which nothing is expected
            verdict = judge([json.dumps(header(found.spec, RATE, expect)), *lines])
        if args.real:
            broken = ({k: x for k, x in of.items() if k in ANYWHERE}
                      for of in (verdict.violations, verdict.first))  # fmt: skip
            verdict = verdict._replace(**dict(zip(("violations", "first"), broken, strict=True)))
        skipped = int(np.isnan(sent).sum())
        took, back = held(flown, spans)
        return Round(took, skipped, count - skipped - len(must), back, verdict)


def held(flight: log.Flight, spans: list[tuple[float, float]]) -> tuple[np.ndarray, int]:
    """s from the beginning of each span until it was held, and in how many it then moved again; by
    the robot's time."""
    seen, now = list[tuple[float, str]](), 0.0
    for row in flight.rows:
        for message in (wire.decode(x.datagram) for x in row.heard if x.source == "robot"):
            now = message.time if message and message.kind == wire.STATE else now
        seen.append((now, row.state))
    took, back = [], 0
    for begin, end in spans:
        inside = [(at, state) for at, state in seen if begin <= at <= end]
        first = next((at for at, state in inside if state == HOLD), np.inf)
        took.append(first - begin)
        back += any(state in MOVING for at, state in inside if at > first)
    return np.array(took), back


class Killer:
    """A pilot that asks for a walk, and sends its policy a signal at each moment."""

    def __init__(self, flight: flights.Flight, path: Path, moments: list[Moment],
                 rng: np.random.Generator, real: bool) -> None:  # fmt: skip
        self.flight, self.path, self.moments, self.real = flight, path, moments, real
        self.waits = rng.uniform(0, 0.002, len(moments))  # s of wall time: at any phase of its work
        self.sent = np.full(len(moments), np.nan)  # s, when it was
        self.policy, self.next, self.dead = self.begun(), 0, False
        self.coming: subprocess.Popen[str] | None = None  # the one after that which was killed
        self.goes_on = np.inf  # s, when the one that is frozen does

    def begun(self) -> subprocess.Popen[str]:
        words = "-m", "rl.bridge.policyd", self.path, "--desk", self.flight.desk
        return subprocess.Popen(
            [sys.executable, *map(str, words), "--runtime", "numpy"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip

    def lived(self, lasts: float) -> np.ndarray:
        """Drive to the end of all episodes of `lasts` s; when each signal was sent."""
        self.lasts, pilot = lasts, self.flight.pilot()
        try:
            pilot.meet(flights.ENDS_S)
            pilot.live(self)
            return self.sent
        finally:
            pilot.link.close()
            for process in filter(None, (self.policy, self.coming)):
                process.kill()
                process.communicate()

    def word(self, status: Status) -> Word:
        now = self.next
        if now < len(self.moments) and status.time >= self.moments[now].time:
            self.next += 1
            if status.state == ARMED:
                self.go(status.time, now)
        elif status.time >= self.goes_on:
            self.policy.send_signal(signal.SIGCONT)
            self.goes_on = np.inf
        elif self.dead and status.state not in MOVING:
            self.policy.kill()
            self.policy.communicate()
            self.policy, self.dead = self.begun(), False
            self.coming = None if self.real else self.policy
        elif self.coming and status.time >= self.lasts * now - 0.1:
            assert self.coming.stdout  # the robot's time stands still until it was let in
            self.coming.stdout.readline()
            self.coming = None
        return Word(command=np.array([0.5, 0.0, 0.0]))

    def go(self, now: float, which: int) -> None:
        self.sent[which], moment = now, self.moments[which]
        time.sleep(self.waits[which])
        self.policy.send_signal(moment.signal)
        self.dead = moment.pause == np.inf
        self.goes_on = now + moment.pause


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.kills")))
