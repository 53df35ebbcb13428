"""Fine-tuning of a policy that draws its plans, off-policy: in the world that it is to master.

python -m experiments.finetune --agent dsrl --base runs/flow --env.rewards dense
python -m experiments.finetune --agent fql --base runs/flow --data data/peg.npz

The policy of a run acts first, while what is to be better is learned of what it does, then that
acts.  With --data half of each batch is of demonstrations.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agents.dsrl import DSRL
from envs.simulation import Simulation
from experiments import base, cli, host, offline, play
from experiments.base import Base
from experiments.course import Course
from experiments.off_policy import first_rows, groups, pace, plan, room
from experiments.offline_to_online import check_data, mixed, shared
from rl import buffer, norm, parallel, record, resources, rollout
from rl.data import npz, sampling
from rl.data.dataset import Dataset
from rl.data.sampling import Sampler, Source, Uniform
from rl.policy import Policy
from rl.types import Array, Key, Metrics, PyTree, Transition


@dataclass(frozen=True)
class Args(host.Args):
    base: Path | None = None  # a run whose policy is begun with; its task, unless --env says other
    data: Path | None = None  # demonstrations that are learned from as well
    mix: float = 0.5  # share of each batch that comes from the data
    sampler: Sampler = Uniform()  # which steps of the data are learned from how often
    steps: int = 100_000  # environment steps per seed, those of the base included
    num_envs: int = 16
    learning_starts: int = 5_000  # environment steps before that, of the base
    warm: int = 10_000  # environment steps of the base while it is learned from
    updates_per_step: int = 4  # critic steps for each step of all worlds; over num_envs: the UTD
    batch_size: int = 256
    buffer_size: int = 300_000  # environment steps
    reward_scale: float = 1.0  # of rewards as they are learned from
    reward_shift: float = 0.0  # added to them then
    evals: int = 20
    eval_episodes: int = 50
    out: Path = Path("runs/finetune")
    agent: Any = DSRL()  # --agent NAME

    @property
    def n_step(self) -> int:
        """Steps of a window: those that an agent learns from as one."""
        return 1 + self.agent.ahead


class Run(NamedTuple):
    """All that training carries."""

    learner: PyTree  # the agent's state
    worlds: rollout.Worlds
    replay: buffer.Buffer
    returns: norm.Returns
    key: Key  # of the training to come
    iteration: Array  # [] int32


Sources = tuple[Source, ...]  # of the data, or none


def explorer(args: Args, env: Simulation, learner: PyTree, cold: Array) -> tuple[Policy, PyTree]:
    """Who acts, and its parameters: the base's policy while it is `cold`, then the learner's."""
    first, params = args.agent.beginner(learner, env.action_dim)
    own = args.agent.policy(True, env.action_dim)

    def step(params: PyTree, *now: Any) -> Any:
        one = lambda policy, params: lambda: policy.step(params, *now)  # noqa: E731
        cold, theirs, mine = params
        return jax.lax.cond(cold, one(first, theirs), one(own, mine))

    deployed = args.agent.deploy(learner)
    return Policy(lambda params: own.init(params[2]), step), (cold, params, deployed)


def begin(args: Args, env: Simulation, data: Sources, key: Key, learner: PyTree) -> Run:
    """Fresh worlds, and a replay of what the base has seen of them."""
    worlds_key, act_key, key = jax.random.split(key, 3)
    for source in data:
        learner = args.agent.observe(learner, offline.every(source))
    policy, params = explorer(args, env, learner, jnp.bool(True))
    context = args.env.beginner()
    worlds = parallel.start(args.shards, env, policy, params, worlds_key, args.num_envs, context)
    worlds, seen, _ = parallel.collect(
        args.shards, env, policy, params, worlds, act_key, first_rows(args)
    )
    seen = valued(args, seen)
    replay = buffer.init(args.buffer_size // args.num_envs, jax.tree.map(lambda x: x[0], seen))
    returns = norm.earn(norm.returns(args.num_envs), seen, args.agent.gamma)
    learner = args.agent.observe(learner, seen)
    return Run(learner, worlds, buffer.add(replay, seen), returns, key, jnp.int32(0))


def valued(args: Args, seen: Transition) -> Transition:
    """Steps with their rewards as they are learned from."""
    return seen._replace(reward=args.reward_scale * seen.reward + args.reward_shift)


def iterate(args: Args, env: Simulation, run: Run, data: Sources) -> tuple[Run, Any]:
    """A few steps of all worlds, and as many of learning as they are worth."""
    keys = jax.random.split(jax.random.fold_in(run.key, run.iteration), 4)
    steps, updates = pace(args)
    cold = run.iteration * steps * args.num_envs < args.warm
    policy, params = explorer(args, env, run.learner, cold)
    worlds, seen, ends = parallel.collect(
        args.shards, env, policy, params, run.worlds, keys[0], steps
    )
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
    return Run(learner, worlds, replay, returns, run.key, run.iteration + 1), (metrics, ends)


def phase(args: Args, env: Simulation, run: Run, data: Sources) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run, data)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    metrics = jax.tree.map(jnp.mean, metrics)
    share = jnp.abs(metrics["q"]) / jnp.maximum(run.returns.largest, 1)
    updates = run.iteration * pace(args).updates * args.agent.delay  # of the critics, so far
    return run, metrics | {"q_over_return": share, "updates": updates} | ends.means()


def course(args: Args, env: Simulation, found: Base, data: Dataset | None) -> Course:
    """What the host is to train, and what a manifest says of where it starts."""
    facts: dict[str, Any] = {"utd": args.updates_per_step / args.num_envs} | found.facts
    given: Sources = ()
    if data is not None:
        facts |= {"data_sha256": data.facts[npz.HASH]}
        given = (sampling.source(data, args.sampler),)
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env),
        phase=partial(phase, args, env),
        plan=plan(args),
        steps=lambda done: (first_rows(args) + done * pace(args).steps) * args.num_envs,
        facts=facts,
        given=(given,),
        start=(base.learners(args, env, found),),
        look=partial(compare, args, env, found),
    )


def compare(args: Any, env: Simulation, found: Base, log: record.Record) -> None:
    """Say what the base comes to from the starts that the policy was judged by."""
    policy = args.agent.base.policy(False, env.action_dim)
    returns, successes = play.verdict(env, policy, [found.params], args.eval_episodes)
    told = {"return": float(returns.mean())}
    now = {"return": jnp.mean(jnp.array(log.manifest["eval_returns"])).item()}
    if successes is not None:
        told["success"] = float(successes.mean())
        now["success"] = jnp.mean(jnp.array(log.manifest["eval_successes"])).item()
    log.update(finetuned={"base": told, "policy": now})
    name = [*told][-1]
    print(f"{name}  {told[name]:.4g} of the base, {now[name]:.4g} of what came of it")


def main(args: Args) -> None:
    env = host.simulated(args)
    base.require_able(args.agent, "beginner")
    offline.check_rewards(args)
    found = base.base(args, env)
    args = replace(args, agent=cli.found(args.agent, env.task))
    data = offline.prepared(args, env) if args.data else None
    parts = check(args, env, data)
    host.train(parts, env, lambda part: course(part, env, found, data))


def check(args: Args, env: Simulation, data: Dataset | None) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "updates_per_step", "batch_size")
    cli.at_least(1, args, "buffer_size", "eval_episodes")
    cli.at_least(0, args, "learning_starts", "warm", "evals", "save_s")
    offline.check_agent(args.agent)
    check_data(args, data, "all is of the world")
    first, each = first_rows(args), args.num_envs * pace(args).steps
    before = first * args.num_envs + -(-args.warm // each) * each
    if args.steps <= before:
        raise ValueError(
            f"--steps is {args.steps:,}, of which the base acts for {before:,}: give at least "
            f"{before + 1:,}, or lower --learning-starts or --warm."
        )
    room(args, env, first)
    least = replace(args, buffer_size=first * args.num_envs)

    def once(key: Key) -> Transition:
        learner = args.agent.init(key, base.blank(env), base.action(env))
        return begin(least, env, (), key, learner).replay.data

    seen = jax.eval_shape(once, jax.random.key(0))
    if data and jax.tree.leaves(seen.aux):
        raise ValueError(
            f"{type(args.agent).__name__} learns here of how it acted itself, of which "
            f"{args.data} tells nothing: leave --data out."
        )
    return groups(args, resources.size(seen) // first, args.n_step)


if __name__ == "__main__":
    cli.run(main, Args)
