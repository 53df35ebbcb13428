"""The peer: SBX's PPO with CleanRL's settings, timed and evaluated, in the peers' environment.

python benchmarks/peers/sbx_ppo.py --env HalfCheetah-v5 --num-envs 8 --steps 1000000 --seed 0

A line of JSON with the returns of `--episodes` deterministic episodes, the normaliser frozen, at
each of `--evals` moments, and a last one with those at the end and the seconds of learning (the
compile, the first rollout and its update, apart).
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

    def __init__(self, worlds: VecNormalize, env: str, every: int, episodes: int) -> None:
        super().__init__()
        self.worlds, self.env, self.every, self.episodes = worlds, env, every, episodes
        self.rollouts, self.compiled_at, self.judged = 0, 0.0, 0

    def _on_rollout_start(self) -> None:
        if self.rollouts == 1:
            self.compiled_at = time.perf_counter()
        self.rollouts += 1

    def _on_step(self) -> bool:
        if self.every and self.num_timesteps >= self.every * (self.judged + 1):
            self.judged += 1
            returns = judge(self.model, self.worlds, self.env, self.episodes)
            print(
                json.dumps({"eval": {"step": self.num_timesteps, "returns": returns}}), flush=True
            )
        return True


def judge(agent: PPO, worlds: VecNormalize, env: str, episodes: int) -> list[float]:
    """Returns of deterministic episodes from fixed starts."""
    world, returns = gymnasium.make(env), []
    for episode in range(episodes):
        (obs, _), done, total = world.reset(seed=10_000 + episode), False, 0.0
        while not done:
            action = agent.predict(worlds.normalize_obs(obs), deterministic=True)[0]
            obs, reward, terminated, truncated, _ = world.step(action)
            total, done = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", default="HalfCheetah-v5")
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--evals", type=int, default=0)
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
    every = args.steps // args.evals if args.evals else 0
    clock, start = Clock(worlds, args.env, every, args.episodes), time.perf_counter()
    agent.learn(args.steps, callback=clock)
    end = time.perf_counter()

    returns = judge(agent, worlds, args.env, args.episodes)
    told = {
        "peer": "sbx", **vars(args), "wall_seconds": end - start, "train_s": end - start,
        "seconds": (end - clock.compiled_at) * args.steps / (args.steps - ROLLOUT),
        "returns": returns, "return": float(np.mean(returns)),
    }  # fmt: skip
    print(json.dumps(told))


if __name__ == "__main__":
    main()
