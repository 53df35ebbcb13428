"""A residual above a walker, on its own robot or on another: residual PPO (experiments/
residual_ppo.py) with what suits legs.

python -m experiments.residual_walk --base benchmarks/policies/go1-joystick-flat \
    --env go2-joystick-flat --env.no-measured --env.history 1 --out runs/go2
"""

from dataclasses import dataclass, replace
from pathlib import Path

from agents.resip import ResiP
from experiments import cli, residual_ppo
from experiments.residual_ppo import CAREFUL

LEGS = replace(CAREFUL, lr=1e-3, gamma=0.97, epochs=4, minibatches=4)


@dataclass(frozen=True)
class Args(residual_ppo.Args):
    steps: int = 6_000_000
    num_envs: int = 256
    unroll: int = 24
    out: Path = Path("runs/residual_walk")
    agent: ResiP = ResiP(scale=0.3, ppo=LEGS)


main = residual_ppo.main

if __name__ == "__main__":
    cli.run(main, Args)
