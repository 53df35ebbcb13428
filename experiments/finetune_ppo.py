"""Fine-tuning of a policy that draws its plans, on-policy in many worlds: PPO of the steps from
noise to plan.

python -m experiments.finetune_ppo --agent reinflow --base runs/flow --env.rewards sparse
python -m experiments.finetune_ppo --agent dppo --base runs/diffusion --env.rewards sparse

One step of training is a plan; the steps by which it is drawn have likelihoods: those of a flow
(agents/reinflow.py) and of a diffusion (agents/dppo.py).
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from agents.reinflow import ReinFlow
from envs.simulation import Simulation
from experiments import base, cli, host, offline
from experiments.base import Base
from experiments.course import Course, Plan, Run
from experiments.finetune import compare
from experiments.ppo import MOST_PER_PHASE, PHASES, groups
from rl import parallel, rollout
from rl.planned import Planned
from rl.types import Key, Metrics, PyTree


@dataclass(frozen=True)
class Args(host.Args):
    base: Path | None = None  # a run whose policy is begun with; its task, unless --env says other
    steps: int = 1_000_000  # environment steps per seed
    num_envs: int = 64
    unroll: int = 32  # plans of each world per iteration
    reward_scale: float = 1.0  # of rewards as they are learned from
    evals: int = 20
    eval_episodes: int = 50
    out: Path = Path("runs/finetune_ppo")
    agent: Any = ReinFlow()  # --agent NAME


def world(args: Args, env: Simulation) -> Planned:
    return Planned(env, args.agent.chunks.execute, args.agent.chunks.history)


def begin(args: Args, env: Simulation, key: Key, learner: PyTree) -> Run:
    """Fresh worlds, each somewhere in its episode's time."""
    worlds_key, key = jax.random.split(key)
    policy, params = args.agent.planner(), args.agent.planning(learner)
    context = args.env.beginner()
    worlds = parallel.start(
        args.shards, world(args, env), policy, params, worlds_key, args.num_envs, context
    )
    worlds = rollout.staggered(world(args, env), worlds, jax.random.fold_in(worlds_key, 0))
    return Run(learner, worlds, key, jnp.int32(0))


def iterate(args: Args, env: Simulation, run: Run) -> tuple[Run, tuple[Metrics, rollout.Episodes]]:
    """Collect a batch of plans with the present policy and learn from it."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    policy, params = args.agent.planner(), args.agent.planning(run.learner)
    worlds, batch, ends = parallel.collect(
        args.shards, world(args, env), policy, params, run.worlds, act_key, args.unroll
    )
    batch = batch._replace(reward=args.reward_scale * batch.reward)
    learner, metrics = args.agent.update(run.learner, batch, learn_key, args.shards)
    return Run(learner, worlds, run.key, run.iteration + 1), (metrics, ends)


def phase(args: Args, env: Simulation, run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    return run, jax.tree.map(jnp.mean, metrics) | ends.means()


def batch_steps(args: Args) -> int:
    """Steps of the environment in an iteration, but for those that an episode's end leaves out."""
    return args.num_envs * args.unroll * args.agent.chunks.execute


def plan(args: Args) -> Plan:
    total = -(-args.steps // batch_steps(args))
    return host.split(total, max(min(PHASES, total), args.evals), MOST_PER_PHASE)


def course(args: Args, env: Simulation, found: Base) -> Course:
    """What the host is to train, and what a manifest says of where it starts."""
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env),
        phase=partial(phase, args, env),
        plan=plan(args),
        steps=lambda done: done * batch_steps(args),
        facts=found.facts,
        start=(base.learners(args, env, found),),
        look=partial(compare, args, env, found),
    )


def main(args: Args) -> None:
    env = host.simulated(args)
    base.require_able(args.agent, "planner")
    offline.check_rewards(args)
    found = base.base(args, env)
    args = replace(args, agent=cli.found(args.agent, env.task))
    host.train(check(args, env), env, lambda part: course(part, env, found))


def check(args: Args, env: Simulation) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "unroll", "eval_episodes")
    parallel.check(args.shards, num_envs=args.num_envs)
    cli.at_least(0, args, "evals", "save_s")
    if args.steps < (batch := batch_steps(args)):
        print(f"--steps is {args.steps:,}; an iteration, which is done whole, has {batch:,}")

    def once(key: Key) -> Any:
        learner = args.agent.init(key, base.blank(env), base.action(env))
        run = begin(args, env, key, learner)
        policy, params = args.agent.planner(), args.agent.planning(learner)
        collected = rollout.collect(world(args, env), policy, params, run.worlds, key, args.unroll)
        return run, collected[1]

    return groups(args, once, "plans", shards=args.shards)


if __name__ == "__main__":
    cli.run(main, Args)
