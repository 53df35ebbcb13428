"""Learning from a dataset alone, which no action of the learner ever adds to.

python -m experiments.offline --agent iql --env HalfCheetah-v5 --data data/half-cheetah-medium.npz

Steps are those of the critics; the environment judges.  `--env module:Name-v0` is Gymnasium's own.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from agents.iql import IQL
from envs.simulation import Simulation
from envs.task import Task
from experiments import cli, host, prior, start
from experiments.course import Course, Plan, Run
from rl import parallel, record, resources, runs
from rl.agent import FromReplay
from rl.data import dataset, held_out, npz, sampling, verdict
from rl.data.dataset import Dataset
from rl.data.sampling import Sampler, Source, Uniform
from rl.policy import uniform
from rl.types import Key, Metrics, PyTree, Transition

LOOKS = 10  # at least, of which a verdict is
Seen = dict[str, Transition]  # some of the data, of those learned from and those held out
WORLDS = 16  # of which the golden vectors of an artefact are


@dataclass(frozen=True)
class Args(start.Args):
    data: Path = Path("data.npz")  # a dataset (python -m rl.data convert makes one of others)
    steps: int = 50_000  # of the critics, per seed
    batch_size: int = 256
    n_step: int = 1  # rewards in a target
    num_envs: tyro.conf.Suppress[int] = 1  # in none of which anybody acts
    sampler: Sampler = Uniform()  # which steps are learned from how often
    held_out: float = 0.05  # share of the episodes that none is learned from, to measure with
    evals: int = 10
    eval_episodes: int = 10
    out: Path = Path("runs/offline")
    agent: Any = IQL()  # --agent NAME


def begin(args: Args, env: envs.World, source: Source, key: Key, learner: PyTree = None) -> Run:
    """A learner that has seen what the data look like, and worlds, where there may be an artefact
    of their readings, that nobody acts in."""
    agent_key, worlds_key, act_key, key = jax.random.split(key, 4)
    if learner is None:
        learner = args.agent.observe(start.fresh(args.agent, env, agent_key), every(source))
    worlds: Any = ()
    if isinstance(env, Simulation):
        given = args.shards, env, uniform(env.action_dim), ()
        worlds = parallel.start(*given, worlds_key, -(-WORLDS // args.shards) * args.shards)
        worlds, _, _ = parallel.collect(*given, worlds, act_key, min(WORLDS, env.horizon))
    return Run(learner, worlds, key, jnp.int32(0))


def every(source: Source) -> Transition:
    """All that data show, in its order."""
    return Transition(source.obs, source.action, source.reward, source.terminated,
                      source.truncated, source.obs)  # fmt: skip


def iterate(args: Args, run: Run, source: Source) -> tuple[Run, Metrics]:
    """An update of the learner."""
    sample_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    shape = args.agent.delay, args.batch_size
    steps = shape[0] * shape[1], args.n_step + getattr(args.agent, "ahead", 0)
    batch = sampling.sample(source, sample_key, *steps)
    batch = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), batch)
    batch = parallel.spread(args.shards, batch, 1)
    learner, metrics = args.agent.update(run.learner, batch, learn_key)
    return run._replace(learner=learner, iteration=run.iteration + 1), metrics


def phase(args: Args, run: Run, source: Source, seen: Seen) -> tuple[Run, Metrics]:
    """As many updates as the host leaves alone, and what the learner makes of some of the data."""
    step = lambda run, _: iterate(args, run, source)  # noqa: E731
    run, metrics = jax.lax.scan(step, run, length=plan(args).iterations)
    metrics = jax.tree.map(jnp.mean, metrics) | {"updates": run.iteration * args.agent.delay}
    for name, some in seen.items():
        found = held_out.measured(args.agent, run.learner, some, jax.random.key(0))
        metrics |= {f"{name}_{key}": x for key, x in found.items()}
    return run, metrics


def plan(args: Args) -> Plan:
    """Phases short enough for so many evaluations, and for a verdict."""
    total = -(-args.steps // args.agent.delay)
    most = max(args.evals, LOOKS)
    return host.split(total, max(-(-args.steps // args.looks), min(most, total)), total)


def course(args: Args, env: envs.World, data: Dataset, begins: start.Start) -> Course:
    """What the host is to train, and what a manifest says of its data."""
    parts = parted(args, data)
    aux = {name: {"return": sampling.to_go(x, args.agent.gamma)} for name, x in parts.items()}
    source = sampling.source(parts["train"], args.sampler, aux["train"])
    seen = {"train": held_out.glimpse(source, jax.random.key(0))}
    if args.held_out:
        held = sampling.source(parts["held"], Uniform(), aux["held"])
        seen["held"] = held_out.glimpse(held, jax.random.key(1))
    return Course(
        agent=args.agent,
        begin=lambda source, _, *each: begin(args, env, source, *each),
        phase=partial(phase, args),
        plan=plan(args),
        steps=lambda done: done * args.agent.delay,
        facts={"data_sha256": data.facts[npz.HASH]} | begins.facts,
        given=(source, seen),
        start=begins.learners,
        look=partial(
            look, verdict.bounds(parts["train"], args.agent.gamma), args.sampler == Uniform()
        ),
    )


def parted(args: Args, data: Dataset) -> dict[str, Dataset]:
    """What is learned from, and what is held out if anything is."""
    if not args.held_out:
        return {"train": data}
    return dict(zip(("train", "held"), held_out.split(data, args.held_out, 0), strict=True))


def look(within: tuple[float, float], alike: bool, log: record.Record) -> None:
    """Say of each seed what it says of itself, and what may mend it."""
    rows, seeds = runs.read_metrics(log.out), log.manifest["seeds"]
    found = [verdict.judge(verdict.of_rows(rows, i), within, alike) for i in range(len(seeds))]
    for seed, (word, why, mend) in zip(seeds, found, strict=True):
        print(f"verdict  {word}" + f" (seed {seed})" * (len(seeds) > 1) + f": {why}.")
        if mend:
            print(f"         Try this: {mend}")
    log.update(verdict=[{"word": x.word, "why": x.why} for x in found])


def main(args: Args) -> None:
    resources.use_threads(args.threads)
    env = envs.world(args.env, args.physics, threads=args.threads)
    check_rewards(args)
    data = prepared(args, env)
    parts, begins = check(args, env, data), start.start(args, env)
    host.train(parts, env, lambda part: course(part, env, data, begins.of(args, part)))


def prepared(args: Any, env: envs.World) -> Dataset:
    """The dataset, its rewards as they are learned from; ValueError unless it is of this task."""
    found = npz.read(args.data)
    told = runs.read_manifest(args.out) if args.resume else {}
    if told.get("data_sha256", found.facts[npz.HASH]) != found.facts[npz.HASH]:
        raise ValueError(f"{args.out} was begun with other data than are in {args.data} now.")
    above = getattr(args, "base", None) is not None
    judges = hasattr(args.agent, "critic") or hasattr(args.agent, "critics")
    found = of_task(args.data, found, args.env_name, env, above, judges)
    if found.facts.get("reward") == "none" and judges:
        raise ValueError(f"{args.data} tells no rewards: BC alone learns from it.")
    rewards = args.reward_scale * found.steps["reward"] + args.reward_shift
    return found._replace(steps=found.steps | {"reward": rewards.astype(np.float32)})


def of_task(
    path: Path, found: Dataset, name: str, env: envs.World, above: bool = False, judges: bool = True
) -> Dataset:
    """What a task of this name, it may be that of what is learned `above`, sees of a file's
    dataset, which may lack what only critics see if none `judges`; ValueError if it's another's."""
    if made := found.facts.get("task"):
        prior.same_task(path, found.facts, name, env.task, above)
    takes = limits(env)
    if takes and not made and "action_low" in found.facts:
        told = [found.facts[f"action_{end}"] for end in ("low", "high")]
        if np.shape(told) == np.shape(takes) and not np.allclose(told, takes):
            raise ValueError(
                f"{path} has actions of which -1 and 1 stand for {told[0]} and {told[1]}, and "
                f"{name} takes {takes[0]} to {takes[1]}: tell convert, with --low and --high."
            )
    like = jax.eval_shape(env.reset, jax.random.key(0)).obs
    if isinstance(like, dict) and not judges and "obs/critic" not in found.steps:
        like = {name: x for name, x in like.items() if name != "critic"}
    return dataset.fitted(str(path), found, like, env.action_dim)


def limits(env: envs.World) -> tuple[list[float], list[float]] | None:
    """What -1 and 1 of an action stand for, where they stand for a number each."""
    if not isinstance(env, Simulation):
        return env.low.tolist(), env.high.tolist()
    spec, plain = env.task.spec, type(env.task).control is Task.control
    return (list(spec.low), list(spec.high)) if plain and spec.rescale else None


def check(args: Args, env: envs.World, data: Dataset) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "batch_size", "n_step", "eval_episodes")
    cli.at_least(0, args, "evals", "save_s")
    parallel.check(args.shards, batch_size=args.batch_size)
    check_agent(args.agent)
    if not 0 <= args.held_out < 1:
        raise ValueError(f"--held-out is {args.held_out}; it takes a share in [0, 1).")
    if args.held_out:
        held_out.counts(data, args.held_out)
    who, longest = type(args.agent).__name__, int(data.episodes["length"].max())
    if args.n_step > 1 and not hasattr(args.agent, "critic"):
        raise ValueError(f"--n-step is of targets of steps, and {who} has none: leave it out.")
    if hasattr(args.agent, "chunks") and args.agent.chunks.horizon > longest:
        raise ValueError(
            f"{who} plans {args.agent.chunks.horizon} actions, and the longest episode of "
            f"{args.data} has {longest}: lower --agent.chunks.horizon."
        )
    resources.require(2 * data.size, f"{args.data}", "take a part of it")
    if args.sampler != Uniform():
        args.sampler.weights(parted(args, data)["train"])
    some = data.chosen(np.arange(1))

    def once(key: Key) -> Run:
        return begin(args, env, sampling.source(some, Uniform()), key)

    each = 4 * resources.size(jax.eval_shape(once, jax.random.key(0)))
    return host.groups(args, each, "its networks", "lower --agent.hidden or --batch-size")


def check_rewards(args: Any) -> None:
    """Raise ValueError unless rewards as they are learned from are numbers that tell something."""
    for name in ("reward_scale", "reward_shift"):
        if not np.isfinite(value := getattr(args, name, 0.0)):
            raise ValueError(f"--{name.replace('_', '-')} is {value}; it takes a finite number.")
    if args.reward_scale <= 0:
        raise ValueError(f"--reward-scale is {args.reward_scale}; it takes a number above 0.")


def check_agent(agent: Any) -> None:
    """Raise ValueError unless it learns from windows of steps, and has a base if it needs one."""
    asked = [name for name in dir(FromReplay) if name[0] != "_"]

    def able(agent: Any) -> bool:
        return all(hasattr(agent, x) for x in asked) and getattr(agent, "base", agent) is not None

    if not able(agent):
        every = ", ".join(name for name in cli.agent_names() if able(cli.agent(name)))
        raise ValueError(f"{type(agent).__name__} cannot learn from data; {every} can.")


if __name__ == "__main__":
    cli.run(main, Args)
