"""FastSAC (Seo et al. 2025, arXiv:2512.01996): SAC of thousands of worlds and large batches.

python -m experiments.fast_sac --env go1-joystick-flat --physics mjx --steps 200000000

The settings are those of the authors for walking humanoids, on one GPU, but for mirror images,
which they learn from too.  The bins must hold every discounted return there can be:
agent.head:c51 --agent.head.low -1000 --agent.head.high 1000, at the end, or --return-bound 20,
where rewards are larger.
"""

from dataclasses import dataclass
from pathlib import Path

from agents.sac import SAC
from experiments import cli, off_policy
from rl.heads import C51

FAST_SAC = SAC(
    nets="fastsac", hidden=(512, 256, 128), critic_hidden=(768, 384, 192),
    head=C51(-20.0, 20.0, 101), target_q="own", actor_q="mean", beta2=0.95, decay=0.001,
    gamma=0.97, tau=0.125, delay=4, alpha=0.001, target_entropy=0.0, normalise=True,
)  # fmt: skip
WORLDS = 4_096


@dataclass(frozen=True)
class Args(off_policy.Args):
    num_envs: int = WORLDS
    updates_per_step: int = 8  # critic steps for each step of all worlds; over num_envs: the UTD
    batch_size: int = 8_192
    learning_starts: int = 10 * WORLDS  # environment steps of random actions before that
    buffer_size: int = 1_024 * WORLDS  # environment steps, of all worlds
    out: Path = Path("runs/fast_sac")
    agent: SAC = FAST_SAC


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
