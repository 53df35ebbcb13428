"""Closing the last percents of a policy: a residual that learns above it in the world.

python -m experiments.residual --base runs/flow --env.rewards dense
python -m experiments.residual --base runs/flow --data data/peg.npz

The base, any run's policy, stays as it is and acts; what is learned is added to its actions
(agents/resfit.py).  With --data half of each batch is of demonstrations, along which the base is
asked what it would have done.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agents.resfit import ResFiT
from envs.simulation import Simulation
from experiments import base, cli, host, offline
from experiments.base import Base
from experiments.course import Course
from experiments.off_policy import first_rows, groups, pace, plan, room
from experiments.offline_to_online import check_data, mixed, shared, valued
from rl import buffer, norm, parallel, residual, resources, rollout
from rl.data import npz, sampling
from rl.data.dataset import Dataset
from rl.data.sampling import Sampler, Source, Uniform
from rl.policy import Policy
from rl.residual import Part, Trial
from rl.types import Array, Key, Metrics, PyTree, Transition


@dataclass(frozen=True)
class Args(host.Args):
    base: Path | None = None  # a run whose policy acts; its task, unless --env names another
    data: Path | None = None  # demonstrations that are learned from as well
    mix: float = 0.5  # share of each batch that comes from the data
    sampler: Sampler = Uniform()  # which steps of the data are learned from how often
    steps: int = 100_000  # environment steps per seed, warm-up included
    num_envs: int = 16
    learning_starts: int = 10_000  # environment steps before that: of the base, stirred
    stir: float = 0.2  # half the range of the noise on the base's actions in these
    updates_per_step: int = 8  # critic steps for each step of all worlds; over num_envs: the UTD
    batch_size: int = 256
    n_step: int = 3  # rewards in a target
    buffer_size: int = 300_000  # environment steps
    reward_scale: float = 0.01  # of rewards as they are learned from
    reward_shift: float = 0.0  # added to them then
    evals: int = 20
    eval_episodes: int = 50
    out: Path = Path("runs/residual")
    agent: Any = ResFiT()  # --agent NAME


class Run(NamedTuple):
    """All that training carries."""

    learner: PyTree  # the agent's state, the base's parameters within
    worlds: rollout.Worlds  # assisted
    replay: buffer.Buffer
    returns: norm.Returns
    trial: Trial  # of what is learned, against the base alone
    key: Key  # of the training to come
    iteration: Array  # [] int32


Sources = tuple[Source, ...]  # of the data, or none


def explorer(args: Args, env: Simulation) -> Policy:
    return residual.above(args.agent.learned(True, env.action_dim), args.agent.scale)


def stirred(args: Args, policy: Policy) -> Policy:
    """The base alone, with noise, of which an episode has its own share."""

    def step(params: Any, part: Part, obs: Any, key: Key) -> tuple[Array, Part, Any]:
        part_key, key = jax.random.split(key)
        part, action = residual.drawn(part, part_key, 1.0), obs[residual.BASE]
        noise = jax.random.uniform(key, action.shape, minval=-args.stir, maxval=args.stir)
        return action + part.level * noise, part, {"alone": part.alone}

    return policy._replace(step=step)


def begin(args: Args, env: Simulation, data: Sources, key: Key, learner: PyTree) -> Run:
    """Fresh worlds, and a replay of what the base has seen of them, stirred."""
    worlds_key, act_key, key = jax.random.split(key, 3)
    world = base.assisted(args, env, learner)
    for source in data:
        learner = args.agent.observe(learner, offline.every(source))
    policy, params = explorer(args, env), args.agent.deploy(learner)["learned"]
    context = args.env.beginner()
    worlds = parallel.start(args.shards, world, policy, params, worlds_key, args.num_envs, context)
    policy = stirred(args, policy)
    worlds, seen, _ = parallel.collect(
        args.shards, world, policy, params, worlds, act_key, first_rows(args)
    )
    seen = valued(args, seen)
    replay = buffer.init(args.buffer_size // args.num_envs, jax.tree.map(lambda x: x[0], seen))
    returns = norm.earn(norm.returns(args.num_envs), seen, args.agent.gamma)
    learner, trial = args.agent.observe(learner, seen), residual.trial(args.num_envs)
    return Run(learner, worlds, buffer.add(replay, seen), returns, trial, key, jnp.int32(0))


def iterate(args: Args, env: Simulation, run: Run, data: Sources) -> tuple[Run, Any]:
    """A few steps of all worlds, and as many of learning as they are worth."""
    keys = jax.random.split(jax.random.fold_in(run.key, run.iteration), 4)
    steps, updates = pace(args)
    policy, params = explorer(args, env), args.agent.deploy(run.learner)["learned"]
    world = base.assisted(args, env, run.learner)
    worlds, seen, ends = parallel.collect(
        args.shards, world, policy, params, run.worlds, keys[0], steps
    )
    ended = seen.terminated | seen.truncated
    alone = seen.aux["alone"] | (run.learner.steps <= args.agent.warm)  # nothing is added before
    done = ends.final.get("success")  # of a task that tells; else what is earned
    worth = seen.reward if done is None else jnp.where(ended, done, 0)
    trial = residual.tried(run.trial, worth, ended, alone)
    seen = valued(args, seen)
    replay, learner = buffer.add(run.replay, seen), args.agent.observe(run.learner, seen)
    returns = norm.earn(run.returns, seen, args.agent.gamma)
    shape = updates, args.agent.delay
    own = *shape, args.batch_size - shared(args)
    parts = [parallel.sample(args.shards, replay, keys[1], own, args.n_step)]
    if data:
        some = math.prod(shape) * shared(args)
        parts.append(sampling.sample(data[0], keys[2], some, args.n_step)._replace(aux=()))
    batch = mixed(args, parts, shape)

    def update(learner: PyTree, now: tuple[Transition, Key]) -> tuple[PyTree, Metrics]:
        return args.agent.update(learner, *now)

    learner, metrics = jax.lax.scan(update, learner, (batch, jax.random.split(keys[3], updates)))
    if args.agent.alone:
        learner = learner._replace(passed=trial.passed)
    run = Run(learner, worlds, replay, returns, trial, run.key, run.iteration + 1)
    return run, (metrics, ends)


def phase(args: Args, env: Simulation, run: Run, data: Sources) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run, data)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    metrics = jax.tree.map(jnp.mean, metrics)
    share = jnp.abs(metrics["q"]) / jnp.maximum(run.returns.largest, 1)
    updates = run.iteration * pace(args).updates * args.agent.delay  # of the critics, so far
    alone, together = run.trial.means
    passed = run.learner.passed.astype(jnp.float32)
    metrics |= {"worth_alone": alone, "worth_with": together, "passed": passed}
    return run, metrics | {"q_over_return": share, "updates": updates} | ends.means()


def course(args: Args, env: Simulation, found: Base, data: Dataset | None) -> Course:
    """What the host is to train, and what a manifest says of where it starts."""
    facts: dict[str, Any] = {"utd": args.updates_per_step / args.num_envs} | found.facts
    given: Sources = ()
    if data is not None:
        facts |= {"data_sha256": data.facts[npz.HASH]}
        policy = args.agent.base.policy(False, env.action_dim)
        given = (sampling.source(base.along(data, policy, found.params), args.sampler),)
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env),
        phase=partial(phase, args, env),
        plan=plan(args),
        steps=lambda done: (first_rows(args) + done * pace(args).steps) * args.num_envs,
        facts=facts,
        given=(given,),
        start=(base.learners(args, env, found),),
    )


def main(args: Args) -> None:
    env = host.simulated(args)
    base.require_able(args.agent, "alone")
    offline.check_rewards(args)
    found = base.base(args, env)
    args = replace(args, agent=cli.found(args.agent, env.task))
    data = offline.prepared(args, env) if args.data else None
    parts = check(args, env, data)
    host.train(parts, env, lambda part: course(part, env, found, data))


def check(args: Args, env: Simulation, data: Dataset | None) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "updates_per_step", "batch_size")
    cli.at_least(1, args, "n_step", "buffer_size", "eval_episodes")
    cli.at_least(0, args, "learning_starts", "evals", "save_s", "stir")
    offline.check_agent(args.agent)
    check_data(args, data, "all is of the world")
    first = first_rows(args)
    room(args, env, first)
    least = replace(args, buffer_size=first * args.num_envs)

    def once(key: Key) -> Transition:
        learner = args.agent.init(key, base.blank(env), base.action(env))
        return begin(least, env, (), key, learner).replay.data

    seen = jax.eval_shape(once, jax.random.key(0))
    return groups(args, resources.size(seen) // first, args.n_step)


if __name__ == "__main__":
    cli.run(main, Args)
