"""Play a trained policy: its return over fixed episodes, and a video or a window.

python -m experiments.play runs/ppo
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro

import envs
from envs import World, render
from envs.simulation import Simulation
from envs.task import Task
from experiments import cli
from rl import checkpoint, manifest, record, rollout, runs
from rl.env import Env
from rl.policy import Policy
from rl.types import Key, Params

EVAL_SEED = 2**31 - 1
FILM = 20.0  # s of an episode in a video, at most


@dataclass(frozen=True)
class Args:
    run: tyro.conf.Positional[Path]  # a run's directory
    seed: int | None = None  # which of the run's seeds; None: all, and its first in the video
    episodes: int = 32
    video: bool = True  # write RUN/video.mp4, or video-SEED.mp4 where a seed is named
    viewer: bool = False  # a window instead
    meshes: Path | None = None  # a folder of a quadruped's, to be seen in the place of colliders


def load(
    run: Path, seed: int | None = None, explore: bool = False
) -> tuple[Simulation, Policy, Params]:
    """The simulation, evaluation policy and parameters of a run's `seed`, or of its first."""
    env, policy, params = load_all(run, seed, most=1, explore=explore)
    if not isinstance(env, Simulation):
        raise ValueError(f"{run} is of {env.task.id}, of which there is no simulation here.")
    return env, policy, params[0]


def load_all(
    run: Path, seed: int | None = None, most: int | None = None, explore: bool = False
) -> tuple[World, Policy, list[Params]]:
    """The same, be it a simulation or not, with the parameters of `seed` alone, or of each of a
    run's first `most` seeds."""
    found = runs.read_manifest(run)
    try:
        config, seeds, status = (found[name] for name in ("config", "seeds", "status"))
        agent = cli.learned_by(found["algorithm"], config["agent"])
        task = manifest.made(envs.named(found["env"]), config["env"])
        env = envs.world(task, config["physics"])
        if config.get("mirror"):
            agent = replace(agent, mirror=True)
        agent = cli.found(agent, env.task)
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{run / 'manifest.json'} is damaged or of another version: {error!r}."
        ) from error
    if seed is not None and seed not in seeds:
        raise ValueError(f"{run} has no seed {seed}; it has {seeds}.")

    def deployed(key: Key) -> Params:
        obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
        return agent.deploy(agent.init(key, obs, jnp.zeros(env.action_dim)))

    like, params = jax.eval_shape(deployed, jax.random.key(0)), []
    hashes = found.get("parameters_sha256")  # of a run that is done
    for one in seeds[:most] if seed is None else [seed]:
        saved = run / f"policy-{one}.safetensors"
        if not saved.exists():
            raise ValueError(f"{run} has no {saved.name}; the run's status is {status!r}.")
        params.append(checkpoint.load_params(saved, like))
        if hashes and hashes[seeds.index(one)] != checkpoint.fingerprint(params[-1]):
            raise ValueError(f"{saved} is damaged: it is not what its manifest tells.")
    return env, agent.policy(explore, env.action_dim), params


class Episode(NamedTuple):
    poses: np.ndarray  # [T, nq]
    commands: np.ndarray  # [T, C]
    total: float  # return


def episode(env: Simulation, policy: Policy, params: Params, key: Key) -> Episode:

    def tick(worlds: rollout.Worlds, key: Key) -> Any:
        asked = worlds.state.sim.command if env.task.spec.command else jnp.zeros((1, 0))
        worlds, seen, _ = rollout.collect(env, policy, params, worlds, key, 1)
        return worlds, (worlds.state.sim.data, asked, seen)

    def whole(key: Key) -> Any:
        start_key, key = jax.random.split(key)
        worlds = rollout.start(env, policy, params, start_key, 1)
        first = worlds.state.sim.data
        return first, jax.lax.scan(tick, worlds, jax.random.split(key, env.horizon))[1]

    first, (data, asked, seen) = jax.device_get(jax.jit(whole)(key))
    poses = np.concatenate([env.physics.qpos(first), env.physics.qpos(data)[:, 0]])
    over = (seen.terminated | seen.truncated).ravel()
    length = int(over.argmax()) + 1 if over.any() else env.horizon
    return Episode(poses[:length], asked[:length, 0], float(seen.reward.ravel()[:length].sum()))


def looks(task: Task, meshes: Path | None) -> mujoco.MjModel:
    """The task's model, as it is to be seen."""
    return task.model() if meshes is None else task.dressed(meshes)


def film(run: Path, seed: int | None, meshes: Path | None = None) -> None:
    """Write run/video.mp4, of `seed` if named, and say so, or why it cannot be."""
    env, policy, params = load_all(run, seed, most=1)
    path = run / ("video.mp4" if seed is None else f"video-{seed}.mp4")
    if not isinstance(env, Simulation):
        print(env.task.film(path, env, policy, params[0], FILM))
        return
    model = looks(env.task, meshes)
    found = episode(env, policy, params[0], jax.random.key(0))
    shown = found.poses[: math.ceil(FILM / env.control_dt)]
    channels = env.task.spec.command
    captions = [
        "   ".join(
            f"{name} {x:+.2f} {unit}" for (name, unit, *_), x in zip(channels, row, strict=True)
        )
        for row in found.commands[: len(shown)]
    ]
    print(
        f"filming  {len(shown) * env.control_dt:.0f} s; it may take a minute (--no-video: none)",
        flush=True,
    )
    try:
        marks = [env.task.marks(row) for row in found.commands[: len(shown)]]
        render.video(path, model, shown, env.control_dt, captions if channels else (), marks)
        print(f"video    {path} (return {found.total:.1f})")
    except render.CannotRender as error:
        print(f"no video: {error}")


def judged(env: Env, policy: Policy, params: Params, episodes: int) -> rollout.Episodes:
    """Episodes [episodes] from the starts that every policy is judged on.

    Made anew for each, and not once for all seeds: a world of Gymnasium's serves one.
    """
    key, params = jax.lax.optimization_barrier((jax.random.key(EVAL_SEED), params))
    return rollout.evaluate(env, policy, params, key, episodes)


def outcomes(episodes: rollout.Episodes) -> tuple[Any, Any, Any]:
    """Returns, lengths, and whether each had done its task in the end, if that can be."""
    return episodes.returns, episodes.lengths, episodes.final.get("success")


def judge(env: Simulation, policy: Policy, params: Params, episodes: int) -> np.ndarray:
    """Returns [episodes] from those starts."""
    return verdict(env, policy, [params], episodes)[0][0]


def verdict(
    env: Env, policy: Policy, params: Sequence[Params], episodes: int
) -> tuple[np.ndarray, np.ndarray | None]:
    """Of S parameters, returns [S, episodes] from those starts, and who had done the task at last.

    One after the other, and not side by side: whoever is judged alone has the same returns.
    """
    judging = jax.jit(lambda one: judged(env, policy, one, episodes))
    found = [jax.device_get(judging(one)).sound() for one in params]
    returns, _, done = zip(*map(outcomes, found), strict=True)
    return np.stack(returns), None if done[0] is None else np.stack(done)


def report(returns: np.ndarray, successes: np.ndarray | None) -> None:
    """Say how good a run's policies are."""
    print(f"eval_return: {np.mean(returns):.1f}")
    if successes is not None:
        print(f"eval_success: {np.mean(successes):.1%} of {np.size(successes)} episodes")


def conclude(log: record.Record, episodes: int, video: bool) -> None:
    """Draw the curve, judge the saved policies, film one, and say where all is."""
    run = log.out
    title = f"{log.manifest['algorithm'].upper()} on {log.manifest['env']}"
    if log.manifest["status"] != "done" and sys.stdout.isatty():
        print()  # ends the bar's line
    if (run / "metrics.jsonl").exists():
        log.attempt("curve", lambda: print(f"curve    {runs.curve(run, title)}"))
    if (status := log.manifest["status"]) != "done":
        if status.startswith("stopped"):
            experiment = Path(log.manifest["argv"][0]).stem
            print(f"go on    python -m experiments.{experiment} --resume {run}")
            sys.exit(f"{status}; its parameters are in {run}")
        kept = "the last good" if len(runs.read_metrics(run)) > 1 else "only the first"
        sys.exit(
            f"{status}; {run / 'diverged.json'} tells where, docs/broken.md how to read it, and "
            f"{kept} parameters are beside it."
        )
    print(f"judges   {episodes} episodes", flush=True)
    env, policy, params = load_all(run)
    returns, successes = verdict(env, policy, params, episodes)
    log.update(
        eval_seed=EVAL_SEED, eval_returns=returns, peak_memory_gb=manifest.peak_memory_gb(),
        parameters_sha256=[checkpoint.fingerprint(one) for one in params],
        **({} if successes is None else {"eval_successes": successes}),
    )  # fmt: skip
    log.spent("evaluate")
    if runs.read_manifest(run).get("eval_returns") is None:
        sys.exit(f"The returns {np.mean(returns, 1)} are not in the manifest: make room for it.")
    if video:
        log.attempt("video", lambda: film(run, seed=None))
    print(f"play it  python -m experiments.play {run}")
    if any(run.glob("artefact-*.zip")):
        print(f"drive it python -m experiments.drive {run}")
    report(returns, successes)


def main(args: Args) -> None:
    if args.episodes < 1:
        raise ValueError(f"--episodes is {args.episodes}; it needs at least 1.")
    env, policy, params = load_all(args.run, args.seed)
    if args.viewer and not isinstance(env, Simulation):
        raise ValueError(f"--viewer shows worlds of ours, and {env.task.id} is another's.")
    facts = runs.read_manifest(args.run)
    if (status := facts.get("status", "done")) != "done":
        print(f"note     the run is not done but {status}: this is the policy it has so far")
    returns, successes = verdict(env, policy, params, args.episodes)
    if len(params) > 1:
        means = zip(facts["seeds"], np.mean(returns, 1), strict=True)
        print("seeds    " + ", ".join(f"{s}: {r:.1f}" for s, r in means))
    report(returns, successes)
    if args.viewer and isinstance(env, Simulation):
        found = episode(env, policy, params[0], jax.random.key(0))
        marks = [env.task.marks(row) for row in found.commands]
        render.view(looks(env.task, args.meshes), found.poses, env.control_dt, marks)
    elif args.video:
        film(args.run, args.seed, args.meshes)


if __name__ == "__main__":
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.play")))
