"""From how many starts a policy gets up, or rears up: python -m benchmarks.standing runs/getup

Up is who stands for 2 s without a break; a getup begins dropped, a footstand on all feet.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro

import envs
from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard
from benchmarks.walking import judged, tell
from envs.locomotion.footstand import Footstand
from envs.locomotion.getup import Getup
from experiments import cli, play
from rl import runs


@dataclass(frozen=True)
class Args:
    """Judge a policy that gets up or stands on its hind feet."""

    run: tyro.conf.Positional[Path]
    episodes: int = 256
    seed: int | None = None  # of the run; None: its first
    physics: Literal["native", "mjx", "warp"] = "native"
    name: str = ""  # of a row to write
    results: Path = ROOT / "benchmarks" / "results" / "standing.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    about = rows.about()
    env, policy, params = play.load(args.run, args.seed)
    task = env.task
    if not isinstance(task, Getup | Footstand):
        raise Failed(f"{args.run} is no run of a getup or footstand task.")
    down = {"dropped": 1.0} if isinstance(task, Getup) else {"reared": (0.0, 0.0)}
    task = replace(task, **down)
    found, facts = judged(envs.simulate(task, args.physics), policy, params, args.episodes)
    facts |= {
        "env": runs.read_manifest(args.run)["env"],
        "physics": args.physics,
        "up": float((found.metrics["up"] > 0).mean()),
        "standing": float(found.metrics["stands"].mean()),  # share of the time
    }
    tell(facts, about, args.name, args.results)


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.standing")))
