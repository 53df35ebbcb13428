"""What training starts from: the learner of another run, whole or its actor alone."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

import envs
from envs import World, checks
from experiments import cli, host
from rl import manifest, runs
from rl.checkpoint import Checkpoints, fingerprint, named
from rl.env import Env
from rl.train import Trainable
from rl.types import Key, PyTree


@dataclass(frozen=True)
class Args(host.Args):
    """Flags of what starts from another run."""

    start_from: Path | None = None  # a run: its agent and task, unless named, and what it learned
    # by its end, or by one of its checkpoints/STEP
    take: Literal["all", "actor"] = "all"  # actor: critics begin afresh (critic-free pre-training)
    reward_scale: float = 1.0  # of rewards as they are learned from
    reward_shift: float = 0.0  # added to them then


def fresh(agent: Any, env: Env, key: Key) -> PyTree:
    """A state of an agent that has learned nothing of a task."""
    like = jax.eval_shape(env.reset, key).obs
    obs = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)
    return agent.init(key, obs, jnp.zeros(env.action_dim))


class Start(NamedTuple):
    learners: tuple[PyTree, ...]  # what each seed begins with, leaves [seeds, ...], if anything
    facts: dict[str, Any]  # that a manifest has of it

    def of(self, args: Args, part: Args) -> "Start":
        """Of some of the seeds of `args`."""
        first = part.seed - args.seed
        cut = jax.tree.map(lambda x: x[first : first + part.seeds], self.learners)
        return self._replace(learners=cut)


def start(args: Args, env: World) -> Start:
    """What every seed begins with; ValueError where it does not fit."""
    run = args.start_from
    if run is None:
        if args.take != "all":
            raise ValueError("--take actor is for a run that --start-from names.")
        return Start((), {})
    keys = jax.vmap(jax.random.key)(jnp.arange(args.seed, args.seed + args.seeds))
    mine = jax.jit(jax.vmap(partial(fresh, args.agent, env)))(keys)
    if host.goes_on(args):
        return Start((mine,), {})
    theirs = learned(args, run, env)
    found, names = taken(args, mine, theirs, args.take == "actor")
    rest = [name for name in mine._fields if name not in names]
    print(f"start    {', '.join(names)} of {run}" + f"; fresh: {', '.join(rest)}" * bool(rest))
    return Start((found,), {"start": {"taken": names, "sha256": fingerprint(found)}})


def learned(args: Args, path: Path, env: World) -> PyTree:
    """The learners of a run's checkpoint, the newest unless `path` is of another, of the seeds of
    `args`: leaves [seeds, ...]."""
    run, step = runs.run_of(path), runs.step_of(path)
    facts = runs.read_manifest(run)
    config, seeds = facts["config"], facts["seeds"]
    agent = cli.learned_by(facts["algorithm"], config["agent"])
    asked = range(args.seed, args.seed + args.seeds)
    if missing := [seed for seed in asked if seed not in seeds]:
        raise ValueError(f"{run} has no seed {missing[0]}; it has {seeds}: --seed and --seeds.")
    task = manifest.made(envs.named(facts["env"]), config["env"])
    their_env = envs.world(task, args.physics)
    checks.same_actions(str(run), their_env, env)
    for name in ("reward_scale", "reward_shift"):
        then, now = config.get(name, getattr(args, name)), getattr(args, name)
        if then != now:
            flag = f"--{name.replace('_', '-')}"
            raise ValueError(
                f"{run} learned with {flag} {then}, and this has {now}: give the same."
            )
    then, now = (getattr(x, "normalise", None) for x in (agent, args.agent))
    if then != now:
        flag = "--agent.normalise" if then else "--agent.no-normalise"
        raise ValueError(
            f"{run} learned with{'' if then else 'out'} normalised observations, and this is with"
            f"{'' if now else 'out'} them: {flag}."
        )
    keys = jax.ShapeDtypeStruct((len(seeds),), jax.random.key(0).dtype)
    like = jax.eval_shape(jax.vmap(partial(fresh, agent, their_env)), keys)
    about = {name: facts[name] for name in ("algorithm", "env", "config", "seeds")}
    kept = Checkpoints(run / "checkpoints", about) if (run / "checkpoints").is_dir() else None
    if kept is None or not kept.steps():
        raise ValueError(
            f"{run} has no checkpoint, and a policy alone tells no more than how to act: name a "
            "run that has its checkpoints."
        )
    which = jnp.array([seeds.index(seed) for seed in asked])
    steps = kept.steps()
    step = steps[-1] if step is None else step
    if step not in steps:
        raise ValueError(f"{run} has no checkpoint {step}; it has {steps}.")
    try:
        found = kept.part("learner", like, step)
    except ValueError as error:
        others = [f" Another: --start-from {run}/checkpoints/{x}" for x in steps if x != step]
        raise ValueError(f"{error}{''.join(others[-1:])}") from error
    return jax.tree.map(lambda x: x[which], found)


def taken(args: Args, mine: PyTree, theirs: PyTree, actor: bool) -> tuple[PyTree, list[str]]:
    """`mine` with what `theirs` has of it, or its actor alone; and the names of that."""
    names = [name for name in mine._fields if hasattr(theirs, name)]
    acting = [name for name in names if "actor" in name or name == "obs"]
    if actor:
        names = acting
    return mine._replace(
        **{n: fitted(args, n, getattr(mine, n), getattr(theirs, n), acting) for n in names}
    ), names


def fitted(args: Args, name: str, mine: PyTree, theirs: PyTree, acting: list[str]) -> PyTree:
    """Theirs, or its parameters alone where they were learned by another optimiser."""
    if shapes(mine) == shapes(theirs):
        return jax.tree.unflatten(jax.tree.structure(mine), jax.tree.leaves(theirs))
    if isinstance(mine, Trainable) and shapes(mine.params) == shapes(theirs.params):
        return mine._replace(params=theirs.params)
    mend = " --take actor leaves it out." if acting and name not in acting else ""
    raise ValueError(f"The {name} of {args.start_from} does not fit: {unlike(args)}.{mend}")


def unlike(args: Args) -> str:
    """What may make the learner of a run another than that of `args`."""
    facts = runs.read_manifest(runs.run_of(Path(args.start_from or "")))
    mine, theirs = type(args.agent).__name__.lower(), facts["algorithm"]
    if facts["env"] != args.env_name:
        return f"it learned {facts['env']}, and this is {args.env_name}"
    sizes = "hidden", "critic_hidden", "critics", "layer_norm", "nets"
    now, then = manifest.plain(args.agent), facts["config"]["agent"]
    for size in sizes:
        if size in now and size in then and now[size] != then[size]:
            flag = f"--agent.{size.replace('_', '-')}"
            return f"it has {flag} {then[size]}, and this has {now[size]}: give the same"
    if mine != theirs:
        return f"{mine.upper()} has another kind of it than {theirs.upper()}"
    return manifest.difference("agent", then, now)


def shapes(tree: PyTree) -> list[tuple[str, str]]:
    return [(name, f"{x.dtype}{list(x.shape[1:])}") for name, x in named(tree)]
