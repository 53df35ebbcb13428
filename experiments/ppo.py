"""PPO from scratch on one task: seeds side by side, every phase one compiled program.

python -m experiments.ppo --env HalfCheetah-v5 --steps 1000000 --seeds 3
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from agents.ppo import PPO
from envs import checks
from experiments import cli, host, play
from experiments.course import Course, Plan, Run
from rl import parallel, resources, rollout
from rl.env import Env
from rl.policy import Policy
from rl.types import Key, Metrics, Params

PHASES = 100  # times the host looks in, about: to log, to save, to notice trouble
MOST_PER_PHASE = 32  # iterations


@dataclass(frozen=True)
class Args(host.Args):
    num_envs: int = 64
    unroll: int = 64  # steps of each world per iteration
    start_from: Path | None = None  # a run on a like task, whose mean every seed begins with
    mirror: bool = False  # left and right are alike, if they are to the task
    stagger: bool = False  # worlds begin anywhere in their time: no batch is of one age alone
    anneal: bool = True  # the learning rate falls to zero, unless agent.target_kl steers it
    out: Path = Path("runs/ppo")
    agent: PPO = PPO()


def explorer(args: Args, env: Env) -> Policy:
    return args.agent.policy(explore=True, action_dim=env.action_dim)


def begin(args: Args, env: Env, actor: Params | None, key: Key) -> Run:
    """Fresh worlds, and an agent that knows nothing, or acts as `actor` does."""
    agent_key, worlds_key, key = jax.random.split(key, 3)
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    learner = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    policy, params = explorer(args, env), args.agent.deploy(learner)
    context = args.env.beginner()
    worlds = parallel.start(args.shards, env, policy, params, worlds_key, args.num_envs, context)
    if args.stagger:
        worlds = rollout.staggered(env, worlds, jax.random.fold_in(worlds_key, 0))
    if actor is not None:
        learner = args.agent.warm(learner, actor)
    return Run(learner, worlds, key, jnp.int32(0))


def iterate(args: Args, env: Env, run: Run) -> tuple[Run, tuple[Metrics, rollout.Episodes]]:
    """Collect a batch with the present policy and learn from it."""
    act_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration))
    learner = run.learner
    if args.anneal and not args.agent.target_kl:
        learner = learner._replace(lr=args.agent.lr * (1 - run.iteration / math.prod(plan(args))))
    policy, params = explorer(args, env), args.agent.deploy(learner)
    worlds, batch, episodes = parallel.collect(
        args.shards, env, policy, params, run.worlds, act_key, args.unroll
    )
    learner, metrics = args.agent.update(learner, batch, learn_key, args.shards)
    return Run(learner, worlds, run.key, run.iteration + 1), (metrics, episodes)


def phase(args: Args, env: Env, run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run)  # noqa: E731
    run, (metrics, episodes) = jax.lax.scan(step, run, length=plan(args).iterations)
    return run, jax.tree.map(jnp.mean, metrics) | episodes.means()


def plan(args: Args) -> Plan:
    total = -(-args.steps // (args.num_envs * args.unroll))
    return host.split(total, PHASES, MOST_PER_PHASE)


def course(args: Args, env: Env, actor: Params | None) -> Course:
    """What the host is to train; `actor` is that of --start-from."""
    if args.mirror:
        args = replace(args, agent=replace(args.agent, mirror=args.env.mirror))
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env, actor),
        phase=partial(phase, args, env),
        plan=plan(args),
        steps=lambda done: done * args.num_envs * args.unroll,
    )


def main(args: Args) -> None:
    env = host.world(args)
    actor = actor_of(args, env)
    host.train(check(args, env), env, lambda part: course(part, env, actor))


def actor_of(args: Args, env: Env) -> Params | None:
    """The actor of --start-from and its normaliser; ValueError if this task needs another."""
    if args.start_from is None or host.goes_on(args):
        return None
    theirs, _, params = play.load(args.start_from)
    fresh = lambda key: args.agent.deploy(begin(args, env, None, key).learner)  # noqa: E731
    shapes = jax.eval_shape(fresh, jax.random.key(0)), jax.eval_shape(lambda: params)
    wanted, found = (jax.tree.map(lambda x: x.shape, one) for one in shapes)
    if wanted != found:
        sees = [one["obs"].mean[-1] if "obs" in one else "none" for one in (wanted, found)]
        why = "its layers or actions are others" if sees[0] == sees[1] else (
            f"{args.env_name} shows {sees[0]} numbers, and it sees {sees[1]}"
        )  # fmt: skip
        raise ValueError(
            f"--start-from {args.start_from} has another network than is asked for: {why}. Give a "
            "run of PPO with the same observations and actions, and the same --agent.hidden."
        )
    checks.same_actions(f"--start-from {args.start_from}", theirs, env)
    return params


def check(args: Args, env: Env) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    if args.mirror and args.env.mirror is None:
        raise ValueError(
            f"--mirror needs a task that is its own mirror image; {args.env_name} is none: "
            "give --no-mirror."
        )
    cli.at_least(1, args, "steps", "seeds", "num_envs", "unroll", "eval_episodes")
    cli.at_least(0, args, "evals", "save_s")
    parallel.check(args.shards, num_envs=args.num_envs)

    def once(key: Key) -> Any:
        run = begin(args, env, None, key)
        policy, params = explorer(args, env), args.agent.deploy(run.learner)
        return run, rollout.collect(env, policy, params, run.worlds, key, args.unroll)[1]

    return groups(args, once, shards=args.shards)


def groups(args: Any, once: Callable[[Key], Any], what: str = "steps", **how: int) -> list[Any]:
    """Seeds in groups that fit in memory, each with what it carries and a batch, as `once` gives
    them of a key; an update is told `how`."""
    key = jax.random.key(0)
    run, seen = jax.eval_shape(once, key)
    parts = host.groups(
        args,
        4 * resources.size(run, seen),  # the batch, its samples, both shuffled
        f"{args.num_envs:,} worlds x {args.unroll} {what}",
        "lower --num-envs or --unroll",
    )
    update = partial(args.agent.update, **how)
    jax.eval_shape(update, run.learner, seen, key)  # says what its batch is too small for
    return parts


if __name__ == "__main__":
    cli.run(main, Args)
