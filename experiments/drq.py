"""DrQ from scratch on one task, from its pictures, in the loop of experiments/off_policy.py.

python -m experiments.drq --env dmc-cartpole-swingup --env.pixels 84 --env.repeat 8 --steps 62500
"""

from dataclasses import dataclass
from pathlib import Path

from agents.drq import DrQ
from experiments import cli, off_policy


@dataclass(frozen=True)
class Args(off_policy.Args):
    n_step: int = 3  # rewards in a target
    learning_starts: int = 1_000
    buffer_size: int = 100_000
    out: Path = Path("runs/drq")
    agent: DrQ = DrQ()


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
