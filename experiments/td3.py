"""TD3 from scratch on one task, in the loop of experiments/off_policy.py.

python -m experiments.td3 --env HalfCheetah-v5 --steps 1000000 --seeds 3
"""

from dataclasses import dataclass
from pathlib import Path

from agents.td3 import TD3
from experiments import cli, off_policy


@dataclass(frozen=True)
class Args(off_policy.Args):
    learning_starts: int = 25_000
    out: Path = Path("runs/td3")
    agent: TD3 = TD3()


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
