"""SimbaV2 (Lee et al. 2025, arXiv:2502.15280): SAC with its networks, critic and scaled rewards.

python -m experiments.simbav2 --env Hopper-v5 --steps 1000000

The settings are those of the authors for a million steps of MuJoCo; give other --steps to
--agent.halve-lr too.
On dm_control's tasks, where no episode ends early, they take one critic: --agent.critics 1.
"""

from dataclasses import dataclass
from pathlib import Path

from agents.sac import SAC
from experiments import cli, off_policy
from rl.heads import C51

SIMBA_V2 = SAC(
    nets="simbav2", hidden=(128,), critic_hidden=(512, 512), head=C51(-5.0, 5.0, 101), lr=1e-4,
    critic_lr=1e-4, halve_lr=1_000_000, gamma=0.995, alpha=0.01, target_entropy=-0.5,
    normalise=True,
)  # fmt: skip


@dataclass(frozen=True)
class Args(off_policy.Args):
    learning_starts: int = 5_000
    return_bound: float = 5.0
    out: Path = Path("runs/simbav2")
    agent: SAC = SIMBA_V2


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
