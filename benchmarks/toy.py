"""An experiment that learns nothing, in no time: what a sweep is tried out with, and timed.

It has a state, saves it and goes on from it as an experiment does, so that its numbers tell
whether a step was lost or made twice.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import envs
from experiments import cli
from rl import record, runs


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("Reacher-v5"))
    env_name: tyro.conf.Suppress[str] = "Reacher-v5"
    steps: int = 5
    seed: int = 0
    seeds: int = 1
    threads: int = 0
    video: bool = True
    out: Path = Path("runs/toy")
    resume: Path | None = None
    pause: float = 0.0  # s of a step
    bonus: float = 0.0  # what the return grows by a step
    fails: int = -1  # a seed that ends with an error
    most: int = 100  # seeds that fit in memory at a time


def main(args: Args) -> None:
    if args.resume:
        with record.Record.again(args.out) as log:
            learn(args, log)
        return
    for first in range(args.seed, args.seed + args.seeds, args.most):
        own = list(range(first, min(first + args.most, args.seed + args.seeds)))
        facts = {"algorithm": "toy", "env": args.env_name, "config": args, "seeds": own}
        with record.Record(args.out, args.steps, **facts) as log:
            learn(args, log)


def learn(args: Args, log: record.Record) -> None:
    """A random walk whose steps are each a number of its own."""
    saved, seeds = log.out / "state.json", log.manifest["seeds"]
    state = (
        json.loads(saved.read_text()) if saved.exists() else {"step": 0, "sum": [0.0] * len(seeds)}
    )
    if args.resume:
        log.rewind(state["step"])
    if args.fails in seeds:
        raise ValueError(f"seed {args.fails} is the one that fails")
    for step in range(state["step"] + 1, args.steps + 1):
        time.sleep(args.pause)
        drawn = [np.random.default_rng([seed, step]).normal() + args.bonus for seed in seeds]
        state = {"step": step, "sum": [a + b for a, b in zip(state["sum"], drawn, strict=True)]}
        log.log(step, {"episode_return": np.array(state["sum"])})
        log.evaluated(step, np.array(state["sum"])[:, None], np.ones((len(seeds), 1)))
        runs.write(saved, json.dumps(state).encode())
    log.spent("train")
    log.update(status="done", eval_returns=[[x] for x in state["sum"]], parameters_sha256=[""])


if __name__ == "__main__":
    cli.run(main, Args)
