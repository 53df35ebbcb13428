"""SAC from scratch on one task, in the loop of experiments/off_policy.py.

python -m experiments.sac --env HalfCheetah-v5 --steps 1000000 --seeds 3
"""

from dataclasses import dataclass
from pathlib import Path

from agents.sac import SAC
from experiments import cli, off_policy


@dataclass(frozen=True)
class Args(off_policy.Args):
    out: Path = Path("runs/sac")
    agent: SAC = SAC()


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
