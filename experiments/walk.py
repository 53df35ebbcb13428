"""PPO with settings for quadrupeds: python -m experiments.walk --env go2-joystick-flat

Small steps, many worlds and mirror images; the discount is MuJoCo Playground's, as are the tasks.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

import envs
from agents.ppo import PPO
from experiments import cli, ppo

WALKER = PPO(
    hidden=(256, 128), critic_hidden=(256, 128), lr=1e-3, target_kl=0.01, gamma=0.97, epochs=4,
    minibatches=4, max_grad_norm=1.0, std=0.5,
)  # fmt: skip


@dataclass(frozen=True)
class Args(ppo.Args):
    env: Any = field(default_factory=lambda: envs.make_task("go2-joystick-flat"))
    env_name: tyro.conf.Suppress[str] = "go2-joystick-flat"
    steps: int = 20_000_000
    num_envs: int = 256
    unroll: int = 24
    mirror: bool = True
    evals: int = 20
    out: Path = Path("runs/walk")
    agent: PPO = WALKER


main = ppo.main

if __name__ == "__main__":
    cli.run(main, Args)
