"""Closing the last percents of a policy in many worlds: a residual above it, by PPO.

python -m experiments.residual_ppo --base runs/diffusion --env.rewards dense

The base, any run's policy, stays as it is and acts; what is learned is added to its actions
(agents/resip.py).
"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from agents.ppo import PPO
from agents.resip import ResiP
from envs.simulation import Simulation
from experiments import base, cli, host
from experiments.base import Base
from experiments.course import Course, Plan, Run
from experiments.ppo import MOST_PER_PHASE, PHASES, groups
from rl import parallel, residual, rollout
from rl.policy import Policy
from rl.residual import Assisted
from rl.types import Key, Metrics, PyTree

CAREFUL = PPO(
    hidden=(256, 256), critic_hidden=(256, 256), std=0.37, out_gain=0.0, epochs=5, minibatches=16,
    target_kl=0.01,
)  # fmt: skip


@dataclass(frozen=True)
class Args(host.Args):
    base: Path | None = None  # a run whose policy acts; its task, unless --env names another
    steps: int = 2_000_000  # environment steps per seed
    num_envs: int = 64
    unroll: int = 64  # steps of each world per iteration
    warm: int = 2  # iterations in which the critic alone learns
    evals: int = 20
    eval_episodes: int = 50
    out: Path = Path("runs/residual_ppo")
    agent: ResiP = ResiP(ppo=CAREFUL)


def explorer(args: Args, env: Simulation) -> Policy:
    return residual.above(args.agent.learned(True, env.action_dim), args.agent.scale)


def begin(args: Args, env: Simulation, key: Key, learner: PyTree) -> Run:
    """Fresh worlds with the base in them, each somewhere in its episode's time."""
    worlds_key, key = jax.random.split(key)
    world, policy = base.assisted(args, env, learner), explorer(args, env)
    params, context = args.agent.deploy(learner)["learned"], args.env.beginner()
    worlds = parallel.start(args.shards, world, policy, params, worlds_key, args.num_envs, context)
    worlds = rollout.staggered(world, worlds, jax.random.fold_in(worlds_key, 0))
    return Run(learner, worlds, key, jnp.int32(0))


def iterate(args: Args, env: Simulation, run: Run) -> tuple[Run, tuple[Metrics, rollout.Episodes]]:
    """Collect a batch with the present policy and learn from it."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    world: Assisted = base.assisted(args, env, run.learner)
    policy, params = explorer(args, env), args.agent.deploy(run.learner)["learned"]
    worlds, batch, ends = parallel.collect(
        args.shards, world, policy, params, run.worlds, act_key, args.unroll
    )
    learner, metrics = args.agent.update(run.learner, batch, learn_key, args.shards)
    before, after = run.learner.ppo, learner.ppo
    cold = run.iteration < args.warm
    kept = jax.tree.map(
        lambda old, new: jnp.where(cold, old, new),
        (before.actor, before.lr),
        (after.actor, after.lr),
    )
    learner = learner._replace(ppo=after._replace(actor=kept[0], lr=kept[1]))
    return Run(learner, worlds, run.key, run.iteration + 1), (metrics, ends)


def phase(args: Args, env: Simulation, run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    return run, jax.tree.map(jnp.mean, metrics) | ends.means()


def plan(args: Args) -> Plan:
    total = -(-args.steps // (args.num_envs * args.unroll))
    return host.split(total, max(min(PHASES, total), args.evals), MOST_PER_PHASE)


def course(args: Args, env: Simulation, found: Base) -> Course:
    """What the host is to train, and what a manifest says of where it starts."""
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env),
        phase=partial(phase, args, env),
        plan=plan(args),
        steps=lambda done: done * args.num_envs * args.unroll,
        facts=found.facts,
        start=(base.learners(args, env, found),),
    )


def main(args: Args) -> None:
    env = host.simulated(args)
    found = base.base(args, env)
    args = replace(args, agent=cli.found(args.agent, env.task))
    host.train(check(args, env), env, lambda part: course(part, env, found))


def check(args: Args, env: Simulation) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "unroll", "eval_episodes")
    parallel.check(args.shards, num_envs=args.num_envs)
    cli.at_least(0, args, "evals", "save_s", "warm")

    def once(key: Key) -> Any:
        learner = args.agent.init(key, base.blank(env), base.action(env))
        run = begin(args, env, key, learner)
        world, params = base.assisted(args, env, learner), args.agent.deploy(learner)["learned"]
        collected = rollout.collect(
            world, explorer(args, env), params, run.worlds, key, args.unroll
        )
        return run, collected[1]

    return groups(args, once, shards=args.shards)


if __name__ == "__main__":
    cli.run(main, Args)
