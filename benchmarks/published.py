"""Does an agent learn as was published, with its publisher's settings and steps?  Ours alone runs.

python -m benchmarks.published sac --seeds 3

published.json holds the returns of ten seeds in the files under results/baseline of SimbaV2's
repository: SAC's come from CrossQ's authors (learning rates of 1e-3), SimbaV2's are at two updates
a step.  Theirs are Gymnasium's v4 tasks: v5 gives Walker2d's feet the same grip, and lets Ant
and Humanoid feel and pay for contacts.
"""

import json
import os
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro

from benchmarks.learning import Command, Row, at_least_one, flags, run_all, run_ours
from benchmarks.process import guard
from rl import stats

ROOT = Path(__file__).parent
Task = Literal["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5"]
SETTINGS = {
    "sac": ("--agent.lr", 1e-3, "--agent.critic-lr", 1e-3, "--learning-starts", 5_000),
    "crossq": (),
    "simbav2": ("--updates-per-step", 2, "--agent.halve-lr", 2_000_000),
}


@dataclass(frozen=True)
class Args:
    agent: Annotated[Literal["sac", "crossq", "simbav2"], tyro.conf.Positional]
    tasks: tuple[Task, ...] = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
    steps: Literal[200_000, 1_000_000] = 200_000
    seeds: int = 5
    jobs: int = len(os.sched_getaffinity(0))  # runs at a time
    results: Path = ROOT / "results"


def verdict(ours: np.ndarray, published: np.ndarray, tasks: tuple[str, ...]) -> str:
    """A table of returns [seeds, tasks] and [their seeds, tasks], and the comparison of IQMs."""
    lines = [f"{'mean (least-most)':16}{'ours':>23}{'published':>24}"]
    for task, mine, theirs in zip(tasks, ours.T, published.T, strict=True):
        inside = theirs.min() <= mine.mean() <= theirs.max()
        cells = (f"{x.mean():,.0f} ({x.min():,.0f}-{x.max():,.0f})" for x in (mine, theirs))
        where = "inside" if inside else "outside"
        lines.append(f"{task:16}" + "".join(f"{cell:>24}" for cell in cells) + f"  {where}")
    unit = published.mean(0)
    difference, low, high = stats.relative_difference(ours / unit, published / unit)
    lines.append(f"relative IQM difference {difference:+.1%} (95% {low:+.1%} to {high:+.1%})")
    return "\n".join(lines)


def main(args: Args) -> None:
    tasks = tuple(dict.fromkeys(args.tasks))
    at_least_one(seeds=args.seeds, tasks=len(tasks), jobs=args.jobs)
    wanted: list[Row] = [
        {"who": args.agent, "env": env, "seed": seed, "steps": args.steps}
        for seed, env in product(range(args.seeds), tasks)
    ]

    def run(want: Row, command: Command) -> Row:
        return run_ours(command, args.agent, *flags(want), "--evals", 10, *SETTINGS[args.agent])

    rows = run_all(args.results / f"published-{args.agent}.jsonl", wanted, run, args.jobs)
    ours = np.array([row["return"] for row in rows]).reshape(args.seeds, len(tasks))
    known = json.loads((ROOT / "published.json").read_text())[args.agent][str(args.steps)]
    print(verdict(ours, np.array([known[task] for task in tasks]).T, tasks))


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.published")))
