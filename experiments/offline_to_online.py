"""Going on in the world from what data have taught.

python -m experiments.offline_to_online --start-from runs/calql --data data/hopper.npz
python -m experiments.offline_to_online --start-from runs/calql --agent sac
python -m experiments.offline_to_online --env panda-push-t --data data/push-t.npz --agent sac

The first goes on as it learned, half of each batch from the data (Cal-QL, arXiv:2303.05479; IQL,
arXiv:2110.06169).  The second keeps no data: its policy acts for a while before anything is learned
(WSRL: Zhou et al. 2025, arXiv:2412.07762).  The third starts from nothing but data (RLPD: Ball et
al. 2023, arXiv:2302.02948).
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from agents.sac import SAC
from envs.simulation import Simulation
from experiments import cli, host, offline, start
from experiments.course import Course
from experiments.off_policy import groups, pace, plan, room
from rl import buffer, parallel, resources, rollout
from rl.data import npz, sampling
from rl.data.dataset import Dataset
from rl.data.sampling import Sampler, Source, Uniform
from rl.policy import Policy, uniform
from rl.types import Array, Key, Metrics, PyTree, Transition

UNKNOWN = -1e9  # return of an episode that is not over, which no belief is below


@dataclass(frozen=True)
class Args(start.Args):
    data: Path | None = None  # a dataset that is learned from as well; none: nothing is retained
    mix: float = 0.5  # share of each batch that comes from the data
    sampler: Sampler = Uniform()  # which steps of the data are learned from how often
    steps: int = 250_000  # environment steps per seed, warm-up included
    learning_starts: int = 5_000  # environment steps before that: by who is started from, or chance
    updates_per_step: int = 1  # critic steps for each step of all worlds
    batch_size: int = 256
    n_step: int = 1  # rewards in a target
    buffer_size: int = 1_000_000  # environment steps
    evals: int = 20
    eval_episodes: int = 10
    out: Path = Path("runs/online")
    agent: Any = SAC()  # --agent NAME


class Run(NamedTuple):
    """All that training carries."""

    learner: PyTree  # the agent's state
    worlds: rollout.Worlds
    replay: buffer.Buffer  # of what was seen online
    key: Key  # of the training to come
    iteration: Array  # [] int32


Sources = tuple[Source, ...]  # of the data, or none


def explorer(args: Args, env: Simulation) -> Policy:
    return args.agent.policy(explore=True, action_dim=env.action_dim)


def begin(args: Args, env: Simulation, data: Sources, key: Key, learner: PyTree = None) -> Run:
    """Fresh worlds, and a replay of what the policy that is started from has seen of them."""
    agent_key, worlds_key, act_key, key = jax.random.split(key, 4)
    started = learner is not None
    if not started:
        learner = start.fresh(args.agent, env, agent_key)
        for source in data:
            learner = args.agent.observe(learner, offline.every(source))
    policy, params = explorer(args, env), args.agent.deploy(learner)
    if not started:
        policy = policy._replace(step=uniform(env.action_dim).step)
    context = args.env.beginner()
    worlds = parallel.start(args.shards, env, policy, params, worlds_key, args.num_envs, context)
    worlds, seen, _ = parallel.collect(
        args.shards, env, policy, params, worlds, act_key, first_rows(args)
    )
    seen = valued(args, seen)
    replay = buffer.init(args.buffer_size // args.num_envs, jax.tree.map(lambda x: x[0], seen))
    return Run(
        args.agent.observe(learner, seen), worlds, buffer.add(replay, seen), key, jnp.int32(0)
    )


def valued(args: Any, seen: Transition) -> Transition:
    """Steps with their rewards as they are learned from, and nothing of how they were acted."""
    return seen._replace(reward=args.reward_scale * seen.reward + args.reward_shift, aux=())


def iterate(args: Args, env: Simulation, run: Run, data: Sources) -> tuple[Run, Any]:
    """A few steps of all worlds, and as many of learning as they are worth."""
    keys = jax.random.split(jax.random.fold_in(run.key, run.iteration), 4)
    steps, updates = pace(args)
    policy, params = explorer(args, env), args.agent.deploy(run.learner)
    worlds, seen, ends = parallel.collect(
        args.shards, env, policy, params, run.worlds, keys[0], steps
    )
    seen = valued(args, seen)
    replay, learner = buffer.add(run.replay, seen), args.agent.observe(run.learner, seen)
    shape = updates, args.agent.delay
    own, drawn = (*shape, args.batch_size - shared(args)), partial(lately, args, env)
    parts = [parallel.draw(args.shards, replay, keys[1], own, drawn)]
    if shared(args):
        parts.append(recorded(args, data[0], keys[2], math.prod(shape) * shared(args)))
    batch = mixed(args, parts, shape)

    def update(learner: PyTree, now: tuple[Transition, Key]) -> tuple[PyTree, Metrics]:
        return args.agent.update(learner, *now)

    learner, metrics = jax.lax.scan(update, learner, (batch, jax.random.split(keys[3], updates)))
    return Run(learner, worlds, replay, run.key, run.iteration + 1), (metrics, ends)


def lately(args: Args, env: Simulation, replay: buffer.Buffer, key: Key, count: int) -> Transition:
    """Windows [count, n, ...] of what was seen online, and what it came to if that is asked."""
    length = window(args)
    at = buffer.places(replay, key, count, length)
    found = buffer.windows(replay, at, length)
    if not calibrated(args):
        return found
    returns = buffer.to_go(replay, at, args.agent.gamma, env.horizon, UNKNOWN)
    return found._replace(aux={"return": jnp.broadcast_to(returns[:, None], (count, length))})


def recorded(args: Args, source: Source, key: Key, count: int) -> Transition:
    """The same of the data."""
    found = sampling.sample(source, key, count, window(args))
    return found if calibrated(args) else found._replace(aux=())


def mixed(args: Any, parts: list[Transition], shape: tuple[int, int]) -> Transition:
    """Windows [*shape, some, n, ...] of what was seen, and flat ones [count, n, ...] of data, as
    batches [*shape, B, n, ...] of which each has some of both."""
    seen, *rest = parts
    split = [jax.tree.map(lambda x: x.reshape(*shape, -1, *x.shape[1:]), part) for part in rest]
    batch = jax.tree.map(lambda *xs: jnp.concatenate(xs, 2), seen, *split)
    return parallel.spread(args.shards, batch, 2)


def shared(args: Any) -> int:
    """Windows of a batch that come from the data."""
    return round(args.mix * args.batch_size) if args.data else 0


def window(args: Args) -> int:
    return args.n_step + getattr(args.agent, "ahead", 0)


def calibrated(args: Args) -> bool:
    """Whether the agent asks what steps came to."""
    return getattr(args.agent, "calibrated", False)


def phase(args: Args, env: Simulation, run: Run, data: Sources) -> tuple[Run, Metrics]:
    """As many iterations as the host leaves alone."""
    step = lambda run, _: iterate(args, env, run, data)  # noqa: E731
    run, (metrics, ends) = jax.lax.scan(step, run, length=plan(args).iterations)
    updates = run.iteration * pace(args).updates * args.agent.delay  # of the critics, so far
    return run, jax.tree.map(jnp.mean, metrics) | {"updates": updates} | ends.means()


def first_rows(args: Args) -> int:
    """Steps of every world before learning starts; a window of them must fill a target."""
    return max(-(-args.learning_starts // args.num_envs), window(args))


def course(args: Args, env: Simulation, data: Dataset | None, begins: start.Start) -> Course:
    """What the host is to train, and what a manifest says of where it starts."""
    facts: dict[str, Any] = {"utd": args.updates_per_step / args.num_envs} | begins.facts
    given: Sources = ()
    if data is not None:
        facts |= {"data_sha256": data.facts[npz.HASH]}
        given = (
            sampling.source(data, args.sampler, {"return": sampling.to_go(data, args.agent.gamma)}),
        )
    return Course(
        agent=args.agent,
        begin=partial(begin, args, env),
        phase=partial(phase, args, env),
        plan=plan(args),
        steps=lambda done: (first_rows(args) + done * pace(args).steps) * args.num_envs,
        facts=facts,
        given=(given,),
        start=begins.learners,
    )


def main(args: Args) -> None:
    env = host.simulated(args)
    offline.check_rewards(args)
    data = offline.prepared(args, env) if args.data else None
    parts, begins = check(args, env, data), start.start(args, env)
    host.train(parts, env, lambda part: course(part, env, data, begins.of(args, part)))


def check_data(args: Any, data: Dataset | None, without: str) -> None:
    """Raise ValueError unless each batch has a share of the data, if there are any, which fit in
    memory and can be drawn from."""
    if not 0 < args.mix < 1:
        raise ValueError(
            f"--mix is {args.mix}; it takes a share above 0 and below 1. Without --data {without}."
        )
    if data and not 0 < shared(args) < args.batch_size:
        raise ValueError(
            f"--mix is {args.mix}, of which a batch of {args.batch_size} has {shared(args)} steps "
            "of the data: give a share of which it has one of either."
        )
    parallel.check(args.shards, num_envs=args.num_envs, batch_size=args.batch_size)
    if (own := args.batch_size - shared(args)) % args.shards:
        of = f"--mix is {args.mix}, which leaves {own} steps of a batch to the world"
        raise ValueError(f"{of}: for --shards {args.shards} that is to be a multiple of it.")
    if data is None:
        return
    resources.require(2 * data.size, f"{args.data}", "take a part of it")
    args.sampler.weights(data)


def check(args: Args, env: Simulation, data: Dataset | None) -> list[Args]:
    """Refuse what makes no sense, before anything is made; seeds in groups that fit in memory."""
    cli.at_least(1, args, "steps", "seeds", "num_envs", "updates_per_step", "batch_size")
    cli.at_least(1, args, "n_step", "buffer_size", "eval_episodes")
    cli.at_least(0, args, "learning_starts", "evals", "save_s")
    offline.check_agent(args.agent)
    check_data(args, data, "nothing is retained")
    if args.data is None and args.start_from is None:
        raise ValueError("There is nothing to begin with: name a run with --start-from, or --data.")
    first = first_rows(args)
    room(args, env, first)
    least = replace(args, buffer_size=first * args.num_envs)

    def once(key: Key) -> Transition:
        return begin(least, env, (), key).replay.data

    seen = jax.eval_shape(once, jax.random.key(0))
    return groups(args, resources.size(seen) // first, window(args))


if __name__ == "__main__":
    cli.run(main, Args)
