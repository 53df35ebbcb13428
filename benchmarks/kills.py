"""A policy that dies or freezes in the middle of a walk: python -m benchmarks.kills

In lock step, over a wire of 500 Hz, at a moment of its own in each episode.  The robot must be held
in time: the referee says whether it was, by what went over the robot's wire alone.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks import rows
from benchmarks.process import ROOT, guard
from experiments import cli
from rl import artefact
from rl.bridge import flight, wire
from rl.bridge.limits import Limits
from rl.bridge.messages import Status
from rl.bridge.pilot import Pilot, Word
from rl.bridge.referee import Verdict, judge
from rl.bridge.simulator import Robot
from rl.bridge.states import HOLD, MOVING
from rl.bridge.wire import Link

RATE, SECONDS = 500.0, 2.0  # ticks of the wire a second, of an episode
SIGNALS = signal.SIGKILL, signal.SIGSTOP
ROUND = 25  # episodes that a referee judges at once
TICKS = 2  # of the wire, beyond the limit of age
ENDS_S = 30.0
LIMIT = Limits().plan_age / 50 + TICKS / RATE  # s, of a policy of 50 Hz


@dataclass(frozen=True)
class Args:
    """Kill and freeze a policy, in turn."""

    moments: int = 500
    seed: int = 0
    path: Path = ROOT / "benchmarks" / "policies" / "go2-joystick-flat" / "artefact-0.zip"
    name: str = "bridge/kills"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


class Killer:
    """A pilot that asks for a walk, and at a moment of each episode sends its policy a signal."""

    def __init__(self, path: Path, desk: str, rng: np.random.Generator, count: int) -> None:
        self.path, self.desk, self.count = path, desk, count
        self.moments = rng.uniform(0.3, 1.0, count)
        self.waits = rng.uniform(0, 0.002, count)  # s of wall time: at any phase of its work
        self.sent = np.full(count, np.nan)  # s, when it was
        self.policy, self.dead = self.begun(), False

    def begun(self) -> subprocess.Popen[str]:
        words = [sys.executable, "-m", "rl.bridge.policyd", str(self.path), "--desk", self.desk]
        return subprocess.Popen(
            [*words, "--runtime", "numpy"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip

    def word(self, status: Status) -> Word:
        now = min(int((status.time + 1e-6) / SECONDS), self.count - 1)
        if np.isnan(self.sent[now]) and status.time - now * SECONDS >= self.moments[now]:
            self.sent[now], self.dead = status.time, True
            time.sleep(self.waits[now])
            self.policy.send_signal(SIGNALS[now % 2])
        elif self.dead and status.state not in MOVING and now + 1 < self.count:
            self.again()  # for the next episode
        return Word(command=np.array([0.5, 0.0, 0.0]))

    def again(self) -> None:
        """The robot's time stands still until another policy was let in."""
        self.end()
        self.policy, self.dead = self.begun(), False
        assert self.policy.stdout is not None
        self.policy.stdout.readline()

    def end(self) -> None:
        self.policy.kill()
        self.policy.communicate()


def main(args: Args) -> None:
    cli.at_least(1, args, "moments")
    about, took, ticks = rows.about(), np.zeros(0), 0
    broken: Counter[str] = Counter()
    for first in range(0, args.moments, ROUND):
        count = min(ROUND, args.moments - first)
        rng = np.random.default_rng((args.seed, first))
        each, verdict = survived(args.path, rng, count)
        took, ticks = np.append(took, each), ticks + verdict.ticks
        broken.update(verdict.violations)
        told = verdict.first or f"held after {each.max() * 1e3:.0f} ms at most"
        print(f"{len(took):4} of {args.moments}: {told}", flush=True)
    p50, most = np.percentile(took, (50, 100)) * 1e3
    facts = {"moments": args.moments, "rate": RATE, "ticks": ticks, "violations": broken}
    facts |= {"held_ms": {"p50": round(p50, 1), "max": round(most, 1)}}
    rows.write(args.results, {"what": args.name, **facts, **about})
    if broken or most > 1e3 * LIMIT:
        sys.exit("error: Not every one was held in time, or within limits.")


def survived(path: Path, rng: np.random.Generator, count: int) -> tuple[np.ndarray, Verdict]:
    """s until the robot was held, in so many episodes, in each of which the policy goes; and what
    the referee says of them."""
    found, desk, robot = artefact.read(path), wire.free_address(), wire.free_address()
    qpos, qvel = Robot(found, RATE).home()
    with tempfile.TemporaryDirectory() as folder:
        starts, truth, log = (Path(folder) / x for x in ("s.npz", "truth.jsonl", "f.mcap"))
        np.savez(starts, qpos=np.tile(qpos, (count, 1)), qvel=np.tile(qvel, (count, 1)))
        sim = _start("rl.bridge", "sim", path, "--address", robot, "--rate", RATE, "--seconds",
                     SECONDS, "--starts", starts, "--truth", truth, "--wait", ENDS_S)  # fmt: skip
        bridge = _start("rl.bridge.robotd", path, "--robot", robot, "--desk", desk,
                        "--policy-patience", 0.2, "--log", log)  # fmt: skip
        killer = Killer(path, desk, rng, count)
        pilot = Pilot(found.spec, Link(("127.0.0.1", 0), wire.address(desk)))
        try:
            pilot.meet(ENDS_S)
            pilot.live(killer)
            sim.wait(ENDS_S)
            bridge.wait(ENDS_S)
        finally:
            killer.end()
            pilot.link.close()
            for process in (sim, bridge):
                process.kill()
                process.wait()
        rows = [(row.now, row.state) for row in flight.read(log).rows]
        took = np.array([
            next((now - sent for now, state in rows if now >= sent and state == HOLD), np.inf)
            for sent in killer.sent
        ])  # fmt: skip
        expect = [
            {"name": "held", "from": sent, "within": LIMIT, "be": "safe",
             "until": SECONDS * (e + 1) - 1.5 / RATE}
            for e, sent in enumerate(killer.sent)
        ]  # fmt: skip
        spec = asdict(found.spec) | {"hash": found.spec.hash.hex()}
        header = {"spec": spec, "limits": asdict(Limits()), "rate": RATE, "released": []}
        with truth.open() as lines:
            return took, judge([json.dumps(header | {"expect": expect}), *lines])


def _start(module: str, *words: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", module, *map(str, words)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.kills")))
