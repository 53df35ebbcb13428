"""CrossQ from scratch on one task, in the loop of experiments/sac.py.

python -m experiments.crossq --env HalfCheetah-v5 --steps 1000000
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.crossq import CrossQ
from experiments import cli, sac


@dataclass(frozen=True)
class Args(sac.Args):
    learning_starts: int = 5_000
    out: Path = Path("runs/crossq")
    agent: Any = CrossQ()


main = sac.main

if __name__ == "__main__":
    cli.run(main, Args)
