"""TD3 from scratch on one task, in the loop of experiments/sac.py.

python -m experiments.td3 --env HalfCheetah-v5 --steps 1000000 --seeds 3
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.td3 import TD3
from experiments import cli, sac


@dataclass(frozen=True)
class Args(sac.Args):
    learning_starts: int = 25_000
    out: Path = Path("runs/td3")
    agent: Any = TD3()


main = sac.main

if __name__ == "__main__":
    cli.run(main, Args)
