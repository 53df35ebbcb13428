"""A dataset of what robots did, as a kind of learning sees it: for whatever learns from data.

python -m experiments.make_lived --of runs/hil --view dagger --out data/peg-human.npz
python -m experiments.offline --agent bc --env panda-peg-insertion --data data/peg-human.npz

The task is the run's.  Observations are made of what was measured, so its settings may be others
than the robots': --env.sees all.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

import envs
from experiments import cli
from experiments.lived import VIEWS, Kind
from experiments.taken import EXPLORER, Intake, task_of
from rl import artefact, manifest
from rl.data import dataset, npz
from rl.data.dataset import Dataset
from rl.types import Transition


@dataclass(frozen=True)
class Of:
    of: Path = Path("runs/hil")  # a run of experiments.hil


@dataclass(frozen=True)
class Args(Of):
    env: Any = field(default_factory=lambda: envs.make_task("panda-peg-insertion"))  # the run's
    env_name: tyro.conf.Suppress[str] = "panda-peg-insertion"
    view: Kind = "takeover"  # what a human's acts tell
    out: Path = Path("data/lived.npz")


def parse(words: list[str]) -> Args:
    """Of a command line: where it names no task, that is the run's, as the run has set it."""
    if any(word.partition("=")[0] in ("--env", "-h", "--help") for word in words):
        return cli.parse(Args, words)
    run, _ = tyro.cli(Of, args=words, return_unknown_args=True)
    name, task = task_of(run.of)

    @dataclass(frozen=True)
    class Own(Args):
        env: Any = field(default_factory=lambda: task)
        env_name: tyro.conf.Suppress[str] = name

    return cli.parse(Own, words)


def main(args: Args) -> None:
    npz.require_writable(args.out)
    if not (args.of / "ledger").is_dir():
        raise ValueError(f"--of {args.of} is no run of experiments.hil: it has no ledger.")
    env, spec = envs.simulate(args.env, "native"), artefact.read(args.of / EXPLORER).spec
    if spec.name != args.env_name:
        raise ValueError(f"--of {args.of} is of {spec.name}: give --env {spec.name}.")
    intake = Intake(VIEWS[args.view], env, spec, args.of / "ledger")
    parts = [told.all for told in intake.read() if len(told.all.reward)]
    if not parts:
        raise ValueError(f"--of {args.of} has no steps that {args.view} learns from.")
    facts = {"task": args.env_name, "env": args.env, "by": "robots", "view": args.view,
             "control_dt": env.control_dt, **intake.counts}  # fmt: skip
    data = joined(parts, manifest.plain(facts))
    sha256 = npz.write(args.out, data)
    print(f"episodes {len(data.starts)}, {len(data.steps['reward']):,} steps in all")
    print(f"sha256   {sha256}\ndata     {args.out}")


def joined(parts: list[Transition], facts: dict[str, Any]) -> Dataset:
    """Of pieces, each of which ends in itself, leaves [T, ...]."""
    seen = jax.tree.map(lambda *xs: np.concatenate(xs), *parts)
    steps = dataset.named(seen._asdict() | {"aux": ()})
    ends = np.flatnonzero(seen.terminated | seen.truncated)
    episodes = {"length": np.diff(ends, prepend=-1)}
    episodes["return"] = np.add.reduceat(seen.reward, np.append(0, ends[:-1] + 1))
    return dataset.compact(steps, episodes, facts, "What robots did")


if __name__ == "__main__":
    cli.guard(lambda: main(parse(sys.argv[1:])))
