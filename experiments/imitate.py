"""Imitation of demonstrations by a flow that plans chunks of actions, in experiments/offline.py.

python -m experiments.imitate --env panda-push-t --data data/push-t.npz

What comes of it is a base for experiments/residual.py, and a teacher for experiments/distill.py.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tyro

import envs
from agents.flow_bc import FlowBC
from experiments import cli, offline
from rl.denoisers import Dense


@dataclass(frozen=True)
class Args(offline.Args):
    env: Any = field(default_factory=lambda: envs.make_task("panda-push-t"))
    env_name: tyro.conf.Suppress[str] = "panda-push-t"
    steps: int = 20_000  # of the flow, per seed
    evals: int = 4
    eval_episodes: int = 50
    out: Path = Path("runs/imitate")
    agent: Any = FlowBC(net=Dense((256, 256, 256)))  # --agent NAME


main = offline.main

if __name__ == "__main__":
    cli.run(main, Args)
