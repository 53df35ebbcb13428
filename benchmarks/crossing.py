"""What a policy earns on other physics than its own: python -m benchmarks.crossing RUN [RUN ...]

Each run is judged on each physics from the same starts.  A row for each other says how much less
its policy earns there than where it learned, with a 95% interval over those starts.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

import envs
from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard
from benchmarks.walking import judged
from envs.checks import known
from experiments import cli, play
from rl import runs

DRAWS = 2_000  # of the bootstrap


@dataclass(frozen=True)
class Args:
    """Judge policies on each physics."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    physics: tuple[str, ...] = envs.BACKENDS
    episodes: int = 256
    steps: int = 0  # of control, in an episode; 0: the task's
    seed: int | None = None  # of each run; None: its first
    results: Path = ROOT / "benchmarks" / "results" / "crossing.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    cli.at_least(0, args, "steps")
    for name in args.physics:
        known("physics", name, envs.BACKENDS)
    about = rows.about()
    if not args.runs:
        raise Failed("Name runs: python -m benchmarks.crossing runs/a runs/b")
    for run in args.runs:
        for row in crossed(run, args):
            print(json.dumps(row), flush=True)
            rows.write(args.results, {**row, **about})


def crossed(run: Path, args: Args) -> list[dict[str, Any]]:
    """A row for each physics but the run's own."""
    facts, (world, policy, params) = runs.read_manifest(run), play.load(run, args.seed)
    steps, here = args.steps or world.horizon, world.backend
    own = facts.get("physics", here)  # early manifests do not have it
    returns = {}
    for physics in dict.fromkeys((own, *args.physics)):  # each once, its own first
        env = envs.simulate(world.task, physics, max_episode_steps=steps)
        found, _ = judged(env, policy, params, args.episodes)
        returns[physics] = np.asarray(found.returns)
    home = returns.pop(own)
    return [
        {
            "what": f"{facts['env']}/{facts['algorithm']}/{own}-on-{physics}",
            "return": float(away.mean()), "own_return": float(home.mean()),
            **drop(home, away), "episodes": args.episodes, "steps": steps,
        }
        for physics, away in returns.items()
    ]  # fmt: skip


def drop(home: np.ndarray, away: np.ndarray) -> dict[str, Any]:
    """How much less `away` is than `home`, in percent of it: returns [E] from the same starts."""
    rng = np.random.default_rng(0)
    starts = rng.integers(len(home), size=(DRAWS, len(home)))
    drawn = 100 * (1 - away[starts].mean(1) / home[starts].mean(1))
    return {
        "drop_percent": float(100 * (1 - away.mean() / home.mean())),
        "interval": [float(x) for x in np.quantile(drawn, (0.025, 0.975))],
    }


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.crossing")))
