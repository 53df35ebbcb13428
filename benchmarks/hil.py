"""A robot that learns with a human at hand, its learner killed meanwhile: python -m benchmarks.hil

A peg that is to be put in, in simulation and in real time, over a network as bad as a wifi's; the
human is a program.  Everything runs in the processes it runs in on a robot.  What came of it is a
row of results, and a line in docs/hil.png.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from benchmarks import practised, rows
from benchmarks.process import ROOT, Failed, guard
from experiments import cli
from experiments.lived import Kind
from experiments.taken import EXPLORER
from rl import runs
from rl.bridge import wire
from rl.bridge.learn.actord import ACCOUNT

TASK, RATE = "panda-peg-insertion", 20.0  # steps of the policy a second
BEGINS_S, ENDS_S = 180.0, 15.0  # s for a learner to begin, and for a process to end
LOOKS_S = 0.05


@dataclass(frozen=True)
class Args:
    """Learn, and judge what was learned."""

    minutes: float = 20.0  # that the robot practises
    demos: int = 20  # episodes that the human does all by itself, to begin with
    corrects: bool = True  # later as well
    view: Kind = "takeover"  # what its acts tell
    words: str = ""  # more for experiments.hil, as in --words="--base RUN --agent expo"
    network: Literal["none", "wired", "wifi", "bad"] = "wifi"
    pace: Literal["real", "lockstep"] = "real"  # the robot does not wait, or does
    kills: int = 1  # of the learner, evenly over the time
    seed: int = 0
    out: Path = Path("runs/hil-peg")
    name: str = "hil/peg"
    results: Path = ROOT / "benchmarks" / "results" / "hil.jsonl"


class Cell:
    """The processes of a robot that learns, and their folders."""

    def __init__(self, args: Args) -> None:
        self.args, self.folder = args, runs.free(args.out)
        self.run, self.robot = self.folder / "run", self.folder / "robot"
        self.listen, self.address = wire.free_address(), wire.free_address()
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, module: str, *words: object) -> subprocess.Popen[bytes]:
        """A program, which says what it says in a file of the folder."""
        log = (self.folder / f"{module}.log").open("ab")
        with log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *map(str, words)], cwd=ROOT, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def learner(self) -> subprocess.Popen[bytes]:
        """That begins, or goes on."""
        if self.run.exists():
            return self.start("experiments.hil", "--resume", self.run)
        steps = round(60 * RATE * self.args.minutes)
        return self.start(
            "experiments.hil", "--env", TASK, "--env.rewards=sparse", "--env.sees=fit",
            f"--steps={steps}", f"--view={self.args.view}", f"--seed={self.args.seed}",
            f"--listen={self.listen}", f"--out={self.run}", "--no-video",
            *shlex.split(self.args.words),
        )  # fmt: skip

    def practise(self) -> None:
        """The robot, and its human."""
        artefact, args = self.run / EXPLORER, self.args
        self.start(
            "rl.bridge", "sim", artefact, f"--address={self.address}", f"--pace={args.pace}",
            "--seconds=60", f"--network={args.network}", f"--starts={self.run / 'starts.npz'}",
            f"--seed={args.seed}", "--wait=120", f"--tied={os.getpid()}",
        )  # fmt: skip
        corrects = "--human.corrects" if args.corrects else "--human.no-corrects"
        self.start(
            "experiments.corrector", artefact, f"--robot={self.address}", f"--folder={self.robot}",
            f"--learner={self.listen}", f"--secrets={self.run / 'keys'}", corrects,
            f"--human.demos={args.demos}", f"--human.seed={args.seed}", "--practice.seconds=10",
        )  # fmt: skip

    def account(self) -> dict[str, Any]:
        """What the robot's side says of itself."""
        try:
            return json.loads((self.robot / ACCOUNT).read_text())
        except (OSError, ValueError):
            return {"acked": 0, "steps": 0}

    def alive(self) -> None:
        for process in self.processes:
            if process.poll():
                raise Failed(f"{process.args[2]} has ended: see {self.folder}.")  # pyright: ignore

    def end(self) -> None:
        for sent in (signal.SIGINT, signal.SIGKILL):
            for process in reversed(self.processes):
                if process.poll() is None:
                    os.killpg(process.pid, sent)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(ENDS_S)


def main(args: Args) -> None:
    cli.at_least(0, args, "demos", "kills", "seed")
    if not 0 < args.minutes <= 600:
        raise ValueError(f"--minutes is {args.minutes:g}; it takes up to 600.")
    about, cell = rows.about(), Cell(args)
    try:
        acknowledged = lived(args, cell)
    finally:
        cell.end()
    found = runs.read_manifest(cell.run)
    success = float(np.mean(found["eval_successes"]))
    row = {
        "what": args.name, "success": success, "episodes": np.size(found["eval_successes"]),
        "first_ack_s": acknowledged, **practised.kept(cell.run), "flags": flags(args),
        "minutes": practised.minutes(cell.run), "seconds": found["train_s"], **about,
    }  # fmt: skip
    rows.write(args.results, row)
    if args.results == Args.results:
        practised.picture(rows.read(args.results), ROOT / "docs" / "hil.png")
    print(f"success  {success:.0%} of {row['episodes']} episodes; {row['lost']} steps lost, "
          f"{row['duplicated']} twice; the learner back after {acknowledged} s")  # fmt: skip


def lived(args: Args, cell: Cell) -> list[float]:
    """Until its learner has learned: s until each that was begun anew acknowledged something."""
    learner = cell.learner()
    wait(cell, (cell.run / EXPLORER).exists, BEGINS_S)
    cell.practise()
    print(f"watch    tail -f {cell.folder}/*.log", flush=True)
    total, took = 60 * RATE * args.minutes, list[float]()
    moments = np.sort(np.random.default_rng(args.seed).uniform(0.1, 0.9, args.kills)) * total
    while learner.poll() is None:
        cell.alive()
        time.sleep(LOOKS_S)
        if len(took) < args.kills and cell.account()["acked"] >= moments[len(took)]:
            learner = killed(cell, learner, took)
    cell.alive()
    return took


def killed(cell: Cell, learner: subprocess.Popen[bytes], took: list[float]) -> Any:
    """Kill it, with all its processes; the one in its place."""
    os.killpg(learner.pid, signal.SIGKILL)
    cell.processes.remove(learner)
    learner.wait()
    time.sleep(1.0)  # in which all that it had sent has come
    before, began = cell.account()["acked"], time.monotonic()
    learner = cell.learner()
    wait(cell, lambda: cell.account()["acked"] > before, BEGINS_S)
    took.append(round(time.monotonic() - began, 2))
    print(f"killed   after {before} steps; back after {took[-1]} s", flush=True)
    return learner


def wait(cell: Cell, done: Any, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not done():
        cell.alive()
        if time.monotonic() > until:
            raise Failed(f"Nothing came of it within {seconds:g} s: see {cell.folder}.")
        time.sleep(LOOKS_S)


def flags(args: Args) -> dict[str, Any]:
    """Those that say what was done."""
    named = "minutes", "demos", "corrects", "view", "words", "network", "pace", "kills", "seed"
    return {name: getattr(args, name) for name in named}


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.hil")))
