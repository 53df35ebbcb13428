"""Play a trained policy: its return over fixed episodes, and a video or a window.

python -m experiments.play runs/ppo
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from agents.ppo import PPO
from envs import render
from envs.simulation import Simulation
from rl import checkpoint, rollout
from rl.policy import Policy
from rl.types import Key, Params

AGENTS = {"ppo": PPO}


@dataclass(frozen=True)
class Args:
    run: tyro.conf.Positional[Path]  # a run's directory
    seed: int | None = None  # which of the run's seeds; None: its first
    episodes: int = 16
    viewer: bool = False  # a window instead of a video


def save(run: Path, seed: int, params: Params) -> None:
    """Write the policy of `seed`."""
    checkpoint.save_params(run / f"policy-{seed}.safetensors", params)


def load(run: Path, seed: int | None = None) -> tuple[Simulation, Policy, Params]:
    """The environment, evaluation policy and parameters of a run's `seed`."""
    try:
        manifest = json.loads((run / "manifest.json").read_text())
        config = manifest["config"]
        agent = AGENTS[manifest["algorithm"]](**_tuples(config["agent"]))
        env = envs.make(manifest["env"], config["physics"], **_tuples(config["env"]))
    except FileNotFoundError as error:
        raise ValueError(f"{run} is no run: it has no manifest.json.") from error
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{run / 'manifest.json'} is damaged or of another version: {error}") from error
    seed = manifest["seeds"][0] if seed is None else seed
    if seed not in manifest["seeds"]:
        raise ValueError(f"{run} has no seed {seed}; it has {manifest['seeds']}.")

    def deployed(key: Key) -> Params:
        obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
        return agent.deploy(agent.init(key, obs, jnp.zeros(env.action_dim)))

    like = jax.eval_shape(deployed, jax.random.key(0))
    params = checkpoint.load_params(run / f"policy-{seed}.safetensors", like)
    return env, agent.policy(explore=False, action_dim=env.action_dim), params


def episode(env: Simulation, policy: Policy, params: Params, key: Key) -> tuple[np.ndarray, float]:
    """Poses [T, nq] of one episode and its return."""

    def tick(worlds: rollout.Worlds, key: Key) -> Any:
        worlds, seen, _ = rollout.collect(env, policy, params, worlds, key, 1)
        return worlds, (worlds.state.sim.data, seen)

    def whole(key: Key) -> Any:
        worlds = rollout.start(env, policy, params, key, 1)
        first = worlds.state.sim.data
        return first, jax.lax.scan(tick, worlds, jax.random.split(key, env.horizon))[1]

    first, (data, seen) = jax.device_get(jax.jit(whole)(key))
    poses = np.concatenate([env.physics.qpos(first), env.physics.qpos(data)[:, 0]])
    over = (seen.terminated | seen.truncated).ravel()
    length = int(over.argmax()) + 1 if over.any() else env.horizon
    return poses[:length], float(seen.reward.ravel()[:length].sum())


def film(run: Path, seed: int) -> None:
    """Write run/video.mp4 and say so, or why it cannot be."""
    env, policy, params = load(run, seed)
    poses, total = episode(env, policy, params, jax.random.key(0))
    try:
        pictures = render.frames(env.task.model(), poses)
        render.video(run / "video.mp4", pictures, env.control_dt)
        print(f"video    {run / 'video.mp4'} (return {total:.1f})")
    except render.CannotRender as error:
        print(f"no video: {error}")


def main(args: Args) -> None:
    env, policy, params = load(args.run, args.seed)
    if args.viewer:
        poses, _ = episode(env, policy, params, jax.random.key(0))
        render.view(env.task.model(), poses, env.control_dt)
    else:
        film(args.run, args.seed)
    judged = jax.jit(lambda p: rollout.evaluate(env, policy, p, jax.random.key(0), args.episodes))
    print(f"eval_return: {judged(params).returns.mean():.1f}")


def _tuples(config: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in config.items()}


if __name__ == "__main__":
    try:
        main(tyro.cli(Args))
    except (ValueError, render.CannotRender) as error:
        sys.exit(f"error: {error}")
