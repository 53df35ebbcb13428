"""Episodes of trained policies as strips of pictures, one row each.

python -m benchmarks.strip benchmarks/policies/panda-reach benchmarks/policies/panda-pick-cube
"""

from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np
import tyro
from PIL import Image

from benchmarks.process import guard
from envs import render
from experiments import play


@dataclass(frozen=True)
class Args:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # directories of runs
    to: Path = Path("strip.png")
    moments: int = 6  # evenly from the first to the last of an episode
    seed: int = 0  # of the start
    width: int = 240  # pixels of a picture


def row(run: Path, args: Args) -> np.ndarray:
    """An episode's moments [height, moments * width, 3] uint8, side by side."""
    env, policy, params = play.load(run)
    found = play.episode(env, policy, params, jax.random.key(args.seed))
    at = np.linspace(0, len(found.poses) - 1, args.moments).round().astype(int)
    marks = [env.task.marks(found.commands[i]) for i in at]
    pictures = render.frames(env.task.model(), found.poses[at], marks)
    return np.concatenate([small(picture, args.width) for picture in pictures], 1)


def small(picture: np.ndarray, width: int) -> np.ndarray:
    image = Image.fromarray(picture)
    return np.asarray(image.resize((width, round(image.height * width / image.width))))


def main(args: Args) -> None:
    if not args.runs or args.moments < 2 or args.width < 8:
        raise ValueError("It takes runs, at least 2 --moments, and a --width of at least 8.")
    Image.fromarray(np.concatenate([row(run, args) for run in args.runs])).save(args.to)
    print(args.to)


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.strip")))
