"""Learning from replay, from scratch, on one task: SAC, or any agent with its methods.

python -m experiments.off_policy --agent sac --env HalfCheetah-v5 --steps 1000000 --seeds 3

sac.py, td3.py, crossq.py and simbav2.py are this with the settings of their papers.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agents.sac import SAC
from envs import Learnable
from experiments import cli, host, prior
from experiments.course import Course, Plan
from rl import buffer, norm, parallel, resources, rollout
from rl.agent import FromReplay
from rl.env import Env
from rl.policy import Policy, uniform
from rl.types import Array, Key, Metrics, PyTree, Transition


@dataclass(frozen=True)
class Args(host.Args):
    updates_per_step: int = 1  # critic steps for each step of all worlds; over num_envs: the UTD
    batch_size: int = 256
    n_step: int = 1  # rewards in a target
    learning_starts: int = 10_000  # environment steps of random actions before that
    buffer_size: int = 1_000_000  # environment steps
    demos: Path | None = None  # of experiments.make_data: half of every batch comes from them
    hindsight: float = 0.0  # share of what is replayed with a goal that was reached later
    return_bound: float = 0.0  # of returns that vary by 1, in units of which rewards are; 0: as is
    evals: int = 20
    eval_episodes: int = 10
    out: Path = Path("runs/off_policy")
    agent: Any = SAC()  # --agent NAME


class Run(NamedTuple):
    """All that training carries."""

    learner: PyTree  # the agent's state
    worlds: rollout.Worlds
    replay: buffer.Buffer
    returns: norm.Returns
    key: Key  # of the training to come
    iteration: Array  # [] int32


def explorer(args: Args, env: Env) -> Policy:
    return args.agent.policy(explore=True, action_dim=env.action_dim)


def begin(args: Args, env: Env, key: Key) -> Run:
    """Fresh worlds, and a replay of what random actions have seen of them."""
    agent_key, worlds_key, act_key, key = jax.random.split(key, 4)
    obs = jax.tree.map(jnp.zeros_like, env.reset(key).obs)
    learner = args.agent.init(agent_key, obs, jnp.zeros(env.action_dim))
    policy, params = explorer(args, env), args.agent.deploy(learner)
    policy = policy._replace(step=uniform(env.action_dim).step)  # it carries what it will need
    context = args.env.beginner()
    shards, count = args.shards, args.num_envs
    worlds = parallel.start(shards, env, policy, params, worlds_key, count, context)
    first = first_rows(args)
    worlds, seen, _ = parallel.collect(shards, env, policy, params, worlds, act_key, first)
    replay = buffer.init(args.buffer_size // args.num_envs, jax.tree.map(lambda x: x[0], seen))
    learner = args.agent.observe(learner, seen)
    returns = norm.earn(norm.returns(args.num_envs), seen, args.agent.gamma)
    return Run(learner, worlds, buffer.add(replay, seen), returns, key, jnp.int32(0))


def iterate(args: Args, env: Env, demos: prior.Demos, run: Run) -> tuple[Run, Any]:
    """A few steps of all worlds, and as many of learning as they are worth."""
    act_key, sample_key, learn_key = jax.random.split(jax.random.fold_in(run.key, run.iteration), 3)
    steps, updates = pace(args)
    policy, params = explorer(args, env), args.agent.deploy(run.learner)
    worlds, seen, ends = parallel.collect(
        args.shards, env, policy, params, run.worlds, act_key, steps
    )
    replay, learner = buffer.add(run.replay, seen), args.agent.observe(run.learner, seen)
    returns = norm.earn(run.returns, seen, args.agent.gamma)
    shape = updates, args.agent.delay, args.batch_size
    batch = prior.batch(args, env, (replay, *demos), sample_key, shape)
    if args.return_bound:
        batch = batch._replace(reward=batch.reward / norm.unit(returns, args.return_bound))

    def update(learner: PyTree, now: tuple[Transition, Key]) -> tuple[PyTree, Metrics]:
        return args.agent.update(learner, *now)

    learner, metrics = jax.lax.scan(update, learner, (batch, jax.random.split(learn_key, updates)))
    run = Run(learner, worlds, replay, returns, run.key, run.iteration + 1)
    return run, (metrics, ends)


class Pace(NamedTuple):
    steps: int  # of every world in an iteration
    updates: int  # in an iteration


def pace(args: Any) -> Pace:
    """As little in an iteration as lets the actor learn a whole time."""
    steps = args.agent.delay // math.gcd(args.agent.delay, args.updates_per_step)
    return Pace(steps, steps * args.updates_per_step // args.agent.delay)


def phase(args: Args, env: Env, demos: prior.Demos, run: Run) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, demos, run)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    metrics = jax.tree.map(jnp.mean, metrics)
    if "q" in metrics:
        unit = norm.unit(run.returns, args.return_bound) if args.return_bound else 1.0
        share = jnp.abs(metrics["q"]) * unit / jnp.maximum(run.returns.largest, unit)
        metrics |= {"q_over_return": share}
    updates = run.iteration * pace(args).updates * args.agent.delay  # of the critics, so far
    return run, metrics | {"updates": updates} | ends.means()


def plan(args: Any) -> Plan:
    """Phases short enough for so many evaluations."""
    total = -(-max(args.steps - args.learning_starts, 1) // (args.num_envs * pace(args).steps))
    phases = max(-(-total * pace(args).steps // args.looks), min(args.evals, total))
    return host.split(total, phases, total)


def course(args: Args, env: Learnable, demos: prior.Demos, about: dict[str, str]) -> Course:
    """What the host is to train, and what a manifest says of its demonstrations."""
    world = prior.world(env, args)
    return Course(
        agent=args.agent,
        begin=partial(begin, args, world),
        phase=partial(phase, args, world, demos),
        plan=plan(args),
        steps=lambda done: (first_rows(args) + done * pace(args).steps) * args.num_envs,
        facts={"utd": args.updates_per_step / args.num_envs} | about,
    )


def main(args: Args) -> None:
    env = host.world(args)
    demos, about = prior.demonstrations(env, args)
    host.train(check(args, env), env, lambda part: course(part, env, demos, about))


def first_rows(args: Any) -> int:
    """Steps of every world before learning starts; a window of them must fill a target."""
    return max(-(-args.learning_starts // args.num_envs), prior.window(args))


def room(args: Any, env: Learnable, first: int) -> None:
    """ValueError where a replay has no room for the `first` rows, which come before learning."""
    before = first * args.num_envs
    if args.n_step > env.horizon:
        asked = "--n-step is" if sets_windows(args) else "The base's plans take windows of"
        raise ValueError(
            f"{asked} {args.n_step}; an episode of {args.env_name} has {env.horizon} steps."
        )
    if args.buffer_size // args.num_envs < first:
        raise ValueError(
            f"--buffer-size is {args.buffer_size:,}; it must hold the {before:,} steps before "
            "learning starts."
        )
    if args.steps <= before:
        also = "--n-step or " * sets_windows(args) + "--num-envs where that needs more"
        raise ValueError(
            f"--steps is {args.steps:,}; learning starts after {before:,}: give at least "
            f"{before + 1:,}, or lower --learning-starts, or {also}."
        )


def sets_windows(args: Any) -> bool:
    """Whether a flag, --n-step, says how long a window is, and not a base's plans."""
    return "n_step" in vars(args)


def groups(args: Any, row: int, window: int) -> list[Any]:
    """Seeds in groups whose replays, of rows of so many bytes, fit in memory; so do the windows
    that an iteration reads of them."""
    rows = args.buffer_size // args.num_envs
    read = pace(args).updates * args.agent.delay * args.batch_size * window
    lower = "lower --batch-size" + " or --n-step" * sets_windows(args)
    return host.groups(
        args,
        2 * (rows + read // args.num_envs) * row,  # and copies
        f"a replay of {args.buffer_size:,} steps, of which {read:,} are read at a time,",
        "lower --buffer-size" if rows * args.num_envs > read else lower,
    )


def check(args: Args, env: Learnable) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "updates_per_step", "batch_size")
    cli.at_least(1, args, "n_step", "buffer_size", "eval_episodes")
    cli.at_least(0, args, "learning_starts", "evals", "save_s")
    parallel.check(args.shards, num_envs=args.num_envs, batch_size=args.batch_size)
    asked = [name for name in dir(FromReplay) if not name.startswith("_")]
    if lacking := [name for name in asked if not hasattr(args.agent, name)]:
        who = type(args.agent).__name__
        raise ValueError(f"{who} cannot learn from replay: it has no {', '.join(lacking)}.")
    if not 0 <= args.return_bound < math.inf:
        raise ValueError(f"--return-bound is {args.return_bound}; it takes a number above 0, or 0.")
    first = first_rows(args)
    room(args, env, first)
    least, world = replace(args, buffer_size=first * args.num_envs), prior.world(env, args)
    seen = jax.eval_shape(lambda key: begin(least, world, key), jax.random.key(0)).replay.data
    return groups(args, resources.size(seen) // first, prior.window(args))


if __name__ == "__main__":
    cli.run(main, Args)
