"""From how many starts a policy gets up, or rears up: python -m benchmarks.standing runs/getup

Up is who stands for 2 s without a break; a getup begins dropped in all of them.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jax
import tyro

import envs
from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard
from envs.locomotion.footstand import Footstand
from envs.locomotion.getup import Getup
from experiments import play
from rl import runs


@dataclass(frozen=True)
class Args:
    """Judge a policy that gets up or stands on its hind feet."""

    run: tyro.conf.Positional[Path]
    episodes: int = 256
    seed: int | None = None  # of the run; None: its first
    physics: Literal["native", "mjx"] = "native"
    name: str = ""  # of a row to write
    results: Path = ROOT / "benchmarks" / "results" / "standing.jsonl"


def main(args: Args) -> None:
    if args.episodes < 1:
        raise ValueError(f"--episodes is {args.episodes}; it needs at least 1.")
    env, policy, params = play.load(args.run, args.seed)
    task = env.task
    if not isinstance(task, Getup | Footstand):
        raise Failed(f"{args.run} is no run of a getup or footstand task.")
    task = replace(task, dropped=1.0) if isinstance(task, Getup) else task
    env = envs.simulate(task, args.physics)
    judged = jax.jit(lambda params: play.judged(env, policy, params, args.episodes))
    found = jax.device_get(judged(params))
    facts = {
        "env": runs.read_manifest(args.run)["env"],
        "physics": args.physics,
        "episodes": args.episodes,
        "return": float(found.returns.mean()),
        "up": float((found.metrics["up"] > 0).mean()),
        "standing": float(found.metrics["stands"].mean()),  # share of the time
        "ended_early": float((found.lengths < env.horizon).mean()),
    }
    print(json.dumps(facts))
    if args.name:
        about = {"commit": rows.commit(ROOT), "machine": rows.machine()}
        rows.write(args.results, {"what": args.name, **facts, **about})


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args)))
