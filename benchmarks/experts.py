"""How often the programs that demonstrate succeed, without noise, from the same starts for all.

python -m benchmarks.experts
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import tyro

import envs
from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard
from envs.manipulation.expert import Expert
from envs.revealed import Revealed
from experiments import cli, play


@dataclass(frozen=True)
class Args:
    """Judge the experts of all tasks of arms, by the hand and by joints."""

    only: tuple[str, ...] = ()  # tasks; none: all
    episodes: int = 200
    results: Path = ROOT / "benchmarks" / "results" / "experts.jsonl"


def main(args: Args) -> None:
    able = [name for name in envs.names() if hasattr(envs.make_task(name), "plan")]
    if unknown := {*args.only} - {*able}:
        raise Failed(f"Nobody is expert at {unknown.pop()}; there are experts at {able}.")
    cli.at_least(1, args, "episodes")
    about = rows.about()
    for name in args.only or able:
        for actions in ("ee", "joints"):
            task: Any = envs.make_task(name, actions=actions)
            env, policy = Revealed(envs.simulate(task, "native")), Expert().policy(task)
            found = jax.jit(
                lambda env=env, policy=policy: play.judged(env, policy, (), args.episodes)
            )()
            row = {"success": float(found.final["success"].mean()), "episodes": args.episodes}
            row |= {"return": float(found.returns.mean()), "failed": int(found.failed)}
            rows.write(args.results, {"what": f"expert/{name}/{actions}", **row, **about})
            print(
                f"{name:20} {actions:7} success {row['success']:6.1%}, return {row['return']:.1f}"
            )


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.experts")))
