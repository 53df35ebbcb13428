"""What off-policy learning reads besides its own replay: demonstrations, and goals in hindsight."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import envs
from envs import Learnable
from envs.revealed import Revealed, in_hindsight, without_world
from envs.simulation import Simulation
from rl import buffer, manifest, parallel, runs
from rl.buffer import Buffer
from rl.data import dataset, npz
from rl.data.dataset import Dataset
from rl.env import Env
from rl.types import Key, Transition

Demos = tuple[Buffer, ...]  # one replay, or none


def world(env: Learnable, args: Any) -> Env:
    """`env`, revealed if hindsight needs it; ValueError where its task's command is no goal."""
    if not 0 <= args.hindsight <= 1:
        raise ValueError(f"--hindsight is {args.hindsight}; it takes a share in [0, 1].")
    if args.demos and args.batch_size % 2:
        raise ValueError(f"--batch-size is {args.batch_size}; with --demos it takes an even one.")
    if not args.hindsight:
        return env
    if not isinstance(env, Simulation) or not env.task.spec.achieved:
        raise ValueError(
            "--hindsight needs a task whose command is a place that something is to reach; "
            f"{args.env_name} has none."
        )
    return Revealed(env)


def same_task(
    path: Path, facts: Mapping[str, Any], name: str, task: Any, above: bool = False
) -> None:
    """Raise ValueError where a dataset of these facts was made of another task, which is that of a
    base where it is to be `above` one."""
    made = manifest.first({"task": facts.get("task"), "env": facts.get("env")})
    asked = manifest.first({"task": name, "env": manifest.plain(task)})
    if made == asked:
        return
    what, make = manifest.difference("its task", made, asked), "python -m experiments.make_data"
    if above:
        plain = manifest.first({"env": manifest.plain(envs.named(name))})
        make = f"{make} --env {name} {manifest.flags(asked['env'], plain['env'])}".rstrip()
        flags = manifest.flags(made["env"], asked["env"])
        other = f"learn on that by {flags}, or " if made["task"] == name else ""
        mend = f"Above a base the task is its own: {other}give data of it"
    elif made["task"] == name:
        mend = f"Give {manifest.flags(made['env'], asked['env'])}, or data of this task"
    else:
        mend = f"Give --env {made['task']}, or data of {name}" if made["task"] else "Make some"
    raise ValueError(f"{path} was made of another task: {what}. {mend}; {make} makes them.")


def demonstrations(env: Learnable, args: Any) -> tuple[Demos, dict[str, str]]:
    """The dataset of this very task as a replay of one world, and what a manifest says of it."""
    path, told = args.demos, runs.read_manifest(args.out) if args.resume else {}
    if path is None:
        return (), {}
    if not isinstance(env, Simulation):
        raise ValueError(f"--demos are of tasks of ours, and {args.env_name} is none: leave it.")
    found = npz.read(path)
    same_task(path, found.facts, args.env_name, env.task)
    sha256 = found.facts[npz.HASH]  # of the file, whose schema may be older than what is read
    if told.get("demos_sha256", sha256) != sha256:
        raise ValueError(
            f"{args.out} was begun with other demonstrations than are in {path} now: make those "
            "again by the command that made them."
        )

    def step(key: Key) -> Transition:
        obs, off = Revealed(env).reset(key).obs, jnp.bool(False)
        return Transition(obs, jnp.zeros(env.action_dim), jnp.float32(0), off, off, obs)

    like = jax.eval_shape(step, jax.random.key(0))
    seen = shaped(path, found, like)
    seen = seen if args.hindsight else without_world(seen)
    rows = jax.tree.map(lambda x: jnp.asarray(x[:, None]), seen)
    return (Buffer(rows, jnp.int32(len(seen.reward))),), {"demos_sha256": sha256}


def shaped(path: Path, data: Dataset, like: Transition) -> Transition:
    """Its steps as transitions, shaped as `like` (one step); what `like` lacks is left out.

    A step after which nothing has a value counts as terminated.
    """
    ends = np.cumsum(data.episodes["length"]) - 1

    def after(name: str) -> np.ndarray | None:
        own, last = data.steps.get(name), data.episodes.get(f"last_{name}")
        if own is None or last is None:
            return None
        found = np.roll(own, -1, axis=0)
        found[ends] = last
        return found

    def leaf(where: Any, want: Any) -> np.ndarray:
        name = jax.tree_util.keystr(where, simple=True, separator="/")
        x = data.steps.get(name)
        if name == "terminated":
            x = ~data.steps["mask"]
        elif name.split("/")[0] == "next_obs":
            x = after(name.removeprefix("next_"))
        if x is None:
            mend = f"{dataset.MEND}." if name == "action" else "was it made of this task?"
            raise ValueError(f"{path} has no {name}, which is needed: {mend}")
        if x.shape[1:] != want.shape:
            raise ValueError(f"{path} has {name} of {x.shape[1:]}, and {want.shape} is needed.")
        return x

    return jax.tree_util.tree_map_with_path(leaf, like)


def window(args: Any) -> int:
    """Steps of a world that are read for one target: its rewards, and those an agent that remembers
    sees before."""
    return args.n_step + getattr(args.agent, "history", 0)


def batch(
    args: Any, env: Env, replays: tuple[Buffer, ...], key: Key, shape: tuple[int, ...]
) -> Transition:
    """Windows [*shape, n, ...], as many of each replay, interleaved (symmetric sampling: Ball et
    al. 2023, arXiv:2302.02948), a share of them with another goal."""
    *lead, size = shape

    def one(replay: Buffer, key: Key, count: int) -> Transition:
        if not args.hindsight:
            return buffer.sample(replay, key, count, window(args))
        task = env.task  # type: ignore[attr-defined]  # Revealed, then
        return in_hindsight(task, replay, key, count, window(args), args.hindsight, env.horizon)

    keys = jax.random.split(key, len(replays)) if len(replays) > 1 else [key]
    apart = (args.shards, *[1] * (len(replays) - 1))  # each device has demonstrations whole
    each = [
        parallel.draw(*x, (*lead, size // len(replays)), one)
        for x in zip(apart, replays, keys, strict=True)
    ]
    return parallel.spread(args.shards, buffer.mix(each, len(lead)), len(lead))
