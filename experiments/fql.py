"""Flow Q-learning from nothing but data, with its authors' settings, in experiments/offline.py.

python -m experiments.fql --env HalfCheetah-v5 --data data/cheetah.npz --agent.normalise-q
python -m experiments.fql --env ogbench:cube-single-singletask-v0 --data data/cube-single-play.npz

What it learns above the flow of a run is experiments/finetune.py's.
"""

from dataclasses import dataclass
from pathlib import Path

from agents.flow_bc import FlowBC
from agents.fql import FQL
from experiments import cli, offline
from rl.chunks import Chunks
from rl.critics import Critics
from rl.denoisers import Dense

WIDE = 512, 512, 512, 512
FLOW = FlowBC(chunks=Chunks(horizon=1, execute=1), net=Dense(WIDE), average=0.0)


@dataclass(frozen=True)
class Args(offline.Args):
    steps: int = 1_000_000  # of flow, student and critics, per seed
    out: Path = Path("runs/fql")
    agent: FQL = FQL(FLOW, alpha=300.0, normalise_q=False, critics=Critics(WIDE, normalise=False))


main = offline.main

if __name__ == "__main__":
    cli.run(main, Args)
