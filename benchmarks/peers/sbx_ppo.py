"""The peer: SBX's PPO with CleanRL's settings, timed and evaluated, in the peers' environment.

python benchmarks/peers/sbx_ppo.py --env HalfCheetah-v5 --num-envs 8 --steps 1000000 --seed 0

One line of JSON: seconds of learning (the compile, the first rollout and its update, apart) and the
return of `--episodes` deterministic episodes with the normaliser frozen.
"""

import argparse
import json
import time

import gymnasium
import numpy as np
from sbx import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

ROLLOUT = 2048  # steps per iteration over all worlds: CleanRL's


class Clock(BaseCallback):
    """Wall time at the start of the second iteration: everything is compiled by then."""

    def _on_training_start(self) -> None:
        self.rollouts, self.compiled_at = 0, 0.0

    def _on_rollout_start(self) -> None:
        if self.rollouts == 1:
            self.compiled_at = time.perf_counter()
        self.rollouts += 1

    def _on_step(self) -> bool:
        return True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20)
    args = parser.parse_args()

    worlds = DummyVecEnv([lambda: gymnasium.make(args.env)] * args.num_envs)
    worlds = VecNormalize(worlds, gamma=0.99)
    agent = PPO(
        "MlpPolicy",
        worlds,
        learning_rate=lambda left: 3e-4 * left,
        n_steps=ROLLOUT // args.num_envs,
        batch_size=64,
        n_epochs=10,
        seed=args.seed,
    )
    clock, start = Clock(), time.perf_counter()
    agent.learn(args.steps, callback=clock)
    end = time.perf_counter()

    world = gymnasium.make(args.env)
    returns = []
    for episode in range(args.episodes):
        (obs, _), done, total = world.reset(seed=10_000 + episode), False, 0.0
        while not done:
            action = agent.predict(worlds.normalize_obs(obs), deterministic=True)[0]
            obs, reward, terminated, truncated, _ = world.step(action)
            total, done = total + reward, terminated or truncated
        returns.append(total)
    learned = args.steps - ROLLOUT
    print(
        json.dumps(
            {
                "peer": "sbx",
                **vars(args),
                "seconds": (end - clock.compiled_at) * args.steps / learned,
                "wall_seconds": end - start,
                "return": float(np.mean(returns)),
            }
        )
    )


if __name__ == "__main__":
    main()
