"""The peer: SBX's SAC or TD3 at its defaults, an update for each transition, in its environment.

python benchmarks/peers/sbx_off_policy.py sac --env HalfCheetah-v5 --num-envs 8 --seed 0

A line of JSON with the returns of `--episodes` deterministic episodes at each of `--evals` moments,
and a last one with those at the end and `value`, environment steps/s while it learns (collecting
and learning, from a thousand steps after the compile on).
"""

import argparse
import json
import time

import gymnasium
import numpy as np
from sbx import SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

WARM = 1_000  # environment steps of learning before the clock: everything is compiled by then


class Clock(BaseCallback):
    """Wall time and steps when learning has gone on for a while; evaluations every so often."""

    def __init__(self, env: str, every: int, episodes: int) -> None:
        super().__init__()
        self.env, self.every, self.episodes = env, every, episodes
        self.judged = 0
        self.began = self.steps = 0

    def _on_step(self) -> bool:
        if not self.began and self.num_timesteps >= self.model.learning_starts + WARM:
            self.began, self.steps = time.perf_counter(), self.num_timesteps
        if self.every and self.num_timesteps >= self.every * (self.judged + 1):
            self.judged += 1
            returns = judge(self.model, self.env, self.episodes)
            print(
                json.dumps({"eval": {"step": self.num_timesteps, "returns": returns}}), flush=True
            )
        return True


def judge(agent: SAC | TD3, env: str, episodes: int) -> list[float]:
    """Returns of deterministic episodes from fixed starts."""
    world, returns = gymnasium.make(env), []
    for episode in range(episodes):
        (obs, _), done, total = world.reset(seed=10_000 + episode), False, 0.0
        while not done:
            action = agent.predict(obs, deterministic=True)[0]
            obs, reward, terminated, truncated, _ = world.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("agent", choices=["sac", "td3"])
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--learning-starts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10)
    parser.add_argument("--evals", type=int, default=0)
    args = parser.parse_args()

    worlds = DummyVecEnv([lambda: gymnasium.make(args.env)] * args.num_envs)
    agent = {"sac": SAC, "td3": TD3}[args.agent](
        "MlpPolicy", worlds, learning_starts=args.learning_starts, train_freq=1,
        gradient_steps=args.num_envs, seed=args.seed,
    )  # fmt: skip
    every = args.steps // args.evals if args.evals else 0
    clock, start = Clock(args.env, every, args.episodes), time.perf_counter()
    agent.learn(args.steps, callback=clock)
    end = time.perf_counter()

    returns = judge(agent, args.env, args.episodes)
    told = {
        "peer": "sbx", **vars(args), "wall_seconds": end - start,
        "value": (args.steps - clock.steps) / (end - clock.began),
        "train_s": end - start, "returns": returns, "return": float(np.mean(returns)),
    }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    main()
