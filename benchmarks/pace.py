"""A walk in real time, and the same while something beside it fails: python -m benchmarks.pace

How punctual a bridge is and how long its policy takes, by the flight's log; and that a policy that
is killed, a busy machine or a disk that stands still do not make it miss more ticks than it does.
"""

import gc
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
import tyro

from benchmarks import flights, rows
from benchmarks.process import ROOT, guard
from experiments import cli
from rl import artefact
from rl.bridge import paced, states, wire
from rl.bridge.checks import said
from rl.bridge.log import flight as log
from rl.bridge.messages import Status
from rl.bridge.pilot import Word
from rl.bridge.states import ARMED

RATE = 500.0  # ticks of the wire a second
BARS = {"p50": 0.5, "p99": 1.0}  # ms, of a policy's step at its own pace
ARMED_LEAST = 0.95  # share of the ticks in which it is to be armed
AGAIN = {states.FAULT: states.CLEAR, states.PASSIVE: states.STAND, states.HOLD: states.STAND,
         states.READY: states.ARM}  # fmt: skip
COMPILES = "Finished XLA compilation"  # of JAX's log


@dataclass(frozen=True)
class Args:
    """Walk, alone and beside each fault in turn."""

    minutes: float = 10.0  # of the walk without a fault, in all
    fault_s: float = 30.0  # of each walk of a pair
    pairs: int = 3  # of walks, without and with a fault
    steps: int = 1_000  # of a policy alone
    runtime: Literal["jax", "numpy"] = "jax"
    path: Path = ROOT / "benchmarks" / "policies" / "go2-joystick-flat" / "artefact-0.zip"
    name: str = "bridge/pace"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


def main(args: Args) -> None:
    for name in ("pairs", "steps"):
        cli.at_least(1, args, name)
    about = rows.about()
    facts: dict[str, Any] = {"rate": RATE, "minutes": args.minutes}
    facts["step_ms"] = {runtime: alone(args, runtime) for runtime in ("jax", "numpy")}
    facts["walk"] = walk = walked(args, 60 * args.minutes, "")
    print(f"walk     {walk}", flush=True)
    facts["pairs"] = {fault: [] for fault in FAULTS}
    for _ in range(args.pairs):
        for fault, found in facts["pairs"].items():
            told = [walked(args, args.fault_s, each) for each in ("", fault)]
            found.append(pair := [x["missed"] for x in told])
            beneath = " and ".join(f"{x['stolen_s']:g}" for x in told)
            print(f"missed   {pair[0]} without and {pair[1]} with: {fault} ({beneath} s stolen)",
                  flush=True)  # fmt: skip
    more = {x: np.median(np.diff(found)) for x, found in facts["pairs"].items()}
    rows.write(args.results, {"what": args.name, **facts, **about})
    wrong = [f"a step of {runtime} takes {x[share]:.2f} ms ({share})"
             for runtime, x in facts["step_ms"].items()
             for share, bar in BARS.items() if x[share] > bar]  # fmt: skip
    wrong += [f"{walk['compiled']} compilations"] * bool(walk["compiled"])
    wrong += [f"a drift of {walk['drift_ms']} ms"] * (abs(walk["drift_ms"]) > 1e3 / RATE)
    wrong += [f"{x:g} more ticks missed with: {fault}" for fault, x in more.items() if x > 0]
    wrong += ["walked too little of the time"] * (walk["armed"] < ARMED_LEAST * walk["ticks"])
    print("; ".join(wrong) or "punctual, and no less so beside any fault")
    if wrong:
        sys.exit("error: It is not as punctual as it is to be.")


def alone(args: Args, runtime: Literal["jax", "numpy"]) -> dict[str, float]:
    """ms of a policy's step in a process that does nothing else, at its own pace."""
    found = artefact.read(args.path)
    policy = artefact.deploy(found, runtime)
    gc.collect()
    gc.freeze()  # as rl/bridge/policyd.py does
    return in_ms(np.array(paced.steps(policy, found.golden, args.steps)))


def in_ms(seconds: np.ndarray) -> dict[str, float]:
    p50, p99, most = np.percentile(1e3 * seconds, (50, 99, 100)).tolist()
    return {"p50": round(p50, 3), "p99": round(p99, 3), "max": round(most, 3)}


class Walks:
    """A pilot that asks for a walk, again if it is stopped, and half-way through has something
    beside it fail."""

    def __init__(self, flight: flights.Flight, path: Path, seconds: float, fault: str) -> None:
        self.flight, self.path, self.seconds, self.fault = flight, path, seconds, fault
        self.compiled: int | None = None  # programs, when it was armed
        self.begun: list[subprocess.Popen[bytes]] = []
        self.stopped: list[psutil.Process] = []
        self.held = Counter[str]()  # why it was
        self.state = ARMED

    def word(self, status: Status) -> Word:
        if status.state == ARMED and self.compiled is None:
            self.compiled = self.flight.said("policyd").count(COMPILES)
        if status.time >= self.seconds / 2 and self.fault:
            fault, self.fault = FAULTS.get(self.fault), ""
            if fault:
                fault(self)
        if status.state != self.state and status.state in (states.HOLD, states.FAULT):
            self.held[said(status.why)] += 1
        self.state = status.state
        return Word(AGAIN.get(status.state, ""), np.array([0.3, 0.0, 0.0]))

    def close(self) -> None:
        for one in self.stopped:
            one.resume()
        for process in self.begun:
            process.kill()
            process.wait()


def policy_killed(walks: Walks) -> None:
    walks.flight.processes["policyd"].kill()
    words = "rl.bridge.policyd", walks.path, "--desk", walks.flight.desk
    walks.begun.append(flights.begun(words, walks.flight.folder / "another.txt"))


def busy_machine(walks: Walks) -> None:
    words = sys.executable, "-c", "while True: pass"
    walks.begun += [subprocess.Popen(words) for _ in os.sched_getaffinity(0)]


def disk_stalled(walks: Walks) -> None:
    bridge = psutil.Process(walks.flight.processes["robotd"].pid)
    walks.stopped = [x for x in bridge.children() if "rl.bridge.log.recorder" in x.cmdline()]
    for one in walks.stopped:
        one.suspend()


FAULTS = {"policy killed": policy_killed, "busy machine": busy_machine,
          "disk stalled": disk_stalled}  # fmt: skip


def walked(args: Args, seconds: float, fault: str) -> dict[str, Any]:
    """What a flight's log says of so many s; times in ms."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        sim = "--pace", "real", "--rate", RATE, "--seconds", seconds
        policy = "--runtime", args.runtime
        before = stolen()
        with flights.flight(args.path, folder, sim, (), policy) as flight:
            walks, pilot = Walks(flight, args.path, seconds, fault), flight.pilot()
            try:
                pilot.meet(flights.ENDS_S)
                pilot.live(walks)
            finally:
                walks.close()
                pilot.link.close()
            flight.ends("sim", "robotd")
            compiled = flight.said("policyd").count(COMPILES) - (walks.compiled or 0)
        rows_ = log.read(folder / "flight.mcap").rows
        late, took = np.array([x.late for x in rows_]), answers(rows_)
        span = rows_[-1].number - rows_[0].number + 1
        drift = np.median(late[-500:]) - np.median(late[:500])
        return {
            "ticks": span, "missed": span - len(rows_), "compiled": compiled,
            "answer_ms": in_ms(took), "late_ms": in_ms(late),
            "drift_ms": round(1e3 * float(drift), 3), "armed": sum(x.state == ARMED for x in rows_),
            "held": walks.held, "stolen_s": round(stolen() - before, 2),
        }  # fmt: skip


def stolen() -> float:
    """s of all cores that the machine beneath a virtual one has kept for itself."""
    return int(Path("/proc/stat").read_text().split()[8]) / os.sysconf("SC_CLK_TCK")


def answers(found: list[log.Row]) -> np.ndarray:
    """s from each question to its answer, as the bridge has them; of one that came after its tick
    had gone on, to the tick that heard it."""
    took = []
    for row in found:
        heard = (wire.decode(x.datagram) for x in row.heard if x.source == "policy")
        plans = [x for x in heard if x and x.kind == wire.PLAN]  # they tell when it was asked
        took += [row.took] if row.took == row.took else [row.now - x.time for x in plans]
    return np.array(took)


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.pace")))
