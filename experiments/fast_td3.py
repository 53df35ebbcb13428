"""FastTD3 (Seo et al. 2025, arXiv:2505.22642): TD3 of thousands of worlds and large batches.

python -m experiments.fast_td3 --env go1-joystick-flat --physics mjx --steps 50000000

The settings are those of the authors for MuJoCo Playground, on one GPU.  For Go1's tasks they take
--updates-per-step 8 --agent.exploration 0.2 0.8 --agent.smoothing 0.2.  The bins must hold every
discounted return there can be: agent.head:c51 --agent.head.low -1000 --agent.head.high 1000, at the
end, or --return-bound 10, where rewards are larger.
"""

from dataclasses import dataclass
from pathlib import Path

from agents.td3 import TD3
from experiments import cli, off_policy
from rl.heads import C51

FAST_TD3 = TD3(
    hidden=(512, 256, 128), critic_hidden=(1024, 512, 256), head=C51(-10.0, 10.0, 101),
    actor_q="min", weight_decay=0.1, gamma=0.97, tau=0.1, eager=True, exploration=(0.001, 0.4),
    smoothing=0.001, target_actor=False, out_std=0.01, normalise=True,
)  # fmt: skip
WORLDS = 1_024


@dataclass(frozen=True)
class Args(off_policy.Args):
    num_envs: int = WORLDS
    updates_per_step: int = 2  # critic steps for each step of all worlds; over num_envs: the UTD
    batch_size: int = 32_768
    learning_starts: int = 10 * WORLDS  # environment steps of random actions before that
    buffer_size: int = 10_240 * WORLDS  # environment steps, of all worlds
    out: Path = Path("runs/fast_td3")
    agent: TD3 = FAST_TD3


main = off_policy.main

if __name__ == "__main__":
    cli.run(main, Args)
