"""CrossQ from scratch on one task, in the loop of experiments/off_policy.py.

python -m experiments.crossq --env HalfCheetah-v5 --steps 1000000
"""

from dataclasses import dataclass
from pathlib import Path

from agents.crossq import CrossQ
from experiments import cli, off_policy


@dataclass(frozen=True)
class Args(off_policy.Args):
    learning_starts: int = 5_000
    out: Path = Path("runs/crossq")
    agent: CrossQ = CrossQ()


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
