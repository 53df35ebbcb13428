"""The picture of a run for a page: moments of its episode above its learning curve.

python -m benchmarks.picture runs/demo --to docs/demo.png
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import tyro
from matplotlib.figure import Figure

from envs import render
from experiments import play
from rl import runs


@dataclass(frozen=True)
class Args:
    run: tyro.conf.Positional[Path]  # a run's directory
    to: Path = Path("picture.png")
    first: int = 300  # control step of the first moment
    every: int = 2  # control steps between two
    moments: int = 5


def moments(args: Args) -> np.ndarray:
    """Pictures [moments, height, width, 3] from an episode of the run's first policy."""
    env, policy, params = play.load(args.run)
    poses, _ = play.episode(env, policy, params, jax.random.key(0))
    shown = poses[args.first :: args.every][: args.moments]
    if len(shown) < args.moments:
        raise ValueError(f"The episode has {len(poses)} steps: lower --first, --every, --moments.")
    return render.frames(env.task.model(), shown)


def main(args: Args) -> None:
    rows = [row for row in runs.read_metrics(args.run) if "episode_return" in row]
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    grid = figure.add_gridspec(2, args.moments, height_ratios=(1, 1.9))
    for column, picture in enumerate(moments(args)):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(picture)
        axes.axis("off")
    axes = figure.add_subplot(grid[1, :])
    steps, seconds = (np.array([row[name] for row in rows]) for name in ("step", "wall_s"))
    axes.plot(steps / 1e6, [np.mean(row["episode_return"]) for row in rows])
    axes.set(xlabel="million environment steps", ylabel="episode return")
    axes.grid(alpha=0.3)
    rate = steps[-1] / 1e6 / seconds[-1]  # million steps/s
    clock = axes.secondary_xaxis("top", functions=(lambda x: x / rate, lambda x: x * rate))
    clock.set_xlabel("seconds")
    figure.savefig(args.to, dpi=100)
    print(args.to)


if __name__ == "__main__":
    try:
        main(tyro.cli(Args))
    except (ValueError, FileNotFoundError, render.CannotRender) as error:
        sys.exit(f"error: {error}")
