"""DrQ from scratch on one task, from its pictures, in the loop of experiments/off_policy.py.

python -m experiments.drq --env dmc-walker-walk --env.pixels 84 --env.repeat 2 --steps 250000
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import tyro

import envs
from agents.drq import DrQ
from experiments import cli, off_policy

TASK = "dmc-cartpole-swingup"


@dataclass(frozen=True)
class Args(off_policy.Args):
    looks: ClassVar[int] = 50  # each step takes a CPU a tenth of a second
    env: Any = field(default_factory=lambda: envs.make_task(TASK, pixels=84, repeat=8))
    env_name: tyro.conf.Suppress[str] = TASK
    n_step: int = 3  # rewards in a target
    learning_starts: int = 1_000
    buffer_size: int = 100_000
    out: Path = Path("runs/drq")
    agent: DrQ = DrQ()


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
