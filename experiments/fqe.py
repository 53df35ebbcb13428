"""What policies are worth by data alone (fitted-Q evaluation), and how wrong that is.

python -m experiments.fqe runs/a runs/b --data data.npz --judge 32

Without --judge nobody acts.  The value is of a mean action, discounted by --fqe.gamma, from where
the data's episodes begin; a clock that cuts episodes ends no value.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from envs import World
from experiments import cli, host, offline, play
from rl import manifest, resources, runs
from rl.data import fqe, npz, sampling
from rl.data.dataset import Dataset
from rl.data.fqe import FQE
from rl.data.sampling import Source, Uniform
from rl.policy import Policy
from rl.types import Array, Key, Metrics, Params, PyTree

LOOKS = 10  # lines that tell of an estimate on its way
PHASE = 500  # updates in a compiled program, at most: Ctrl-C is heard between them
UNDONE = 0.01  # share of a value that is worth a word


@dataclass(frozen=True)
class Args:
    runs: tyro.conf.Positional[tuple[Path, ...]]  # directories of runs, whose policies are judged
    data: Path = Path("data.npz")  # a dataset of their task
    run_seed: int | None = None  # which of a run's seeds; None: its first
    seed: int = 0  # of the estimate
    steps: int = 50_000  # updates, rounded up to whole phases
    batch_size: int = 256
    judge: int = 0  # episodes of the simulator to hold the estimate to
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    fqe: FQE = field(default_factory=FQE)


class Judged(NamedTuple):
    """A policy, and the task it is of."""

    run: Path
    env: World
    policy: Policy
    params: Params


class Estimate(NamedTuple):
    """Of one policy, from the starts that the data have."""

    value: float  # mean over starts and critics
    spread: float  # std of the critics' means


class Measured(NamedTuple):
    """The same in the simulator, from starts of its own."""

    value: float  # mean discounted return
    error: float  # standard error of that mean


@dataclass(frozen=True, eq=False)
class Discounted:
    """`env` with rewards that are worth less the later they come, so that returns are values."""

    env: World
    gamma: float

    @property
    def horizon(self) -> int:
        return self.env.horizon

    def reset(self, key: Key, context: PyTree = None) -> Any:
        return self.env.reset(key, context)

    def step(self, state: Any, action: Array) -> Any:
        after = self.env.step(state, action)
        return after._replace(reward=after.reward * self.gamma**state.t)


def main(args: Args) -> None:
    resources.use_threads(args.threads)
    check(args)
    judged = [loaded(run, args.run_seed) for run in args.runs]
    data = prepared(args, judged)
    source = sampling.source(data, Uniform())
    tell(args, data, judged[0].env)
    found: list[tuple[Estimate, Measured | None]] = []
    for one in judged:
        status = runs.read_manifest(one.run).get("status", "done")
        so_far = f" ({status}: the policy it has so far)" * (status != "done")
        print(f"run      {one.run}{so_far}", flush=True)
        estimate = estimated(args, one, source)
        truth = measured(args, one) if args.judge else None
        report(args, estimate, truth)
        found.append((estimate, truth))
    if len(found) > 1 and args.judge:
        pairs = [(estimate.value, truth.value) for estimate, truth in found if truth]
        rank = spearman(*np.array(pairs).T)
        print(f"ranks    Spearman {rank:+.2f} between estimates and measured, {len(pairs)} runs")


def loaded(run: Path, seed: int | None) -> Judged:
    env, policy, params = play.load_all(run, seed, most=1)
    return Judged(run, env, policy, params[0])


def check(args: Args) -> None:
    """Refuse what makes no sense, before anything is read."""
    if not args.runs:
        raise ValueError("Name at least one run whose policy is to be judged.")
    cli.at_least(1, args, "steps", "batch_size")
    cli.at_least(0, args, "judge", "seed")
    if args.judge == 1:
        raise ValueError("--judge is 1; an error needs 2 episodes at least, and 0 judges nothing.")


def prepared(args: Args, judged: list[Judged]) -> Dataset:
    """The dataset; ValueError unless all runs are of its task and it tells what they earn."""
    data, plain = npz.read(args.data), manifest.plain(judged[0].env.task)
    for one in judged[1:]:
        if (other := manifest.plain(one.env.task)) != plain:
            what = manifest.difference("its task", other, plain)
            raise ValueError(f"{one.run} is of another task than {judged[0].run}: {what}.")
    name = runs.read_manifest(judged[0].run)["env"]
    data = offline.of_task(args.data, data, name, judged[0].env)
    if data.facts.get("reward") == "none":
        raise ValueError(f"{args.data} tells no rewards: no value can be learned from it.")
    if args.fqe.gamma == 1 and data.steps["mask"].all():
        raise ValueError(
            f"No step of {args.data} ends what comes after: with --fqe.gamma 1 values have no "
            "bound. Give one below 1."
        )
    resources.require(2 * data.size, f"{args.data}", "take a part of it")
    return data


def estimated(args: Args, judged: Judged, source: Source) -> Estimate:
    """The value of a policy by the data, and lines that tell how it comes about."""
    init_key, learn_key = jax.random.split(jax.random.key(args.seed))
    acts = jax.jit(partial(fqe.acts, judged.policy))
    try:
        after, last = acts(judged.params, source.obs), acts(judged.params, source.last_obs)
    except ValueError as error:
        raise ValueError(f"{judged.run} cannot be judged: {error}") from None
    source = source._replace(aux=next_actions(source, after, last))
    starts = jax.tree.map(lambda x: x[source.first], source.obs)
    state = begun(args.fqe, init_key, source.obs, source.action[0])
    plan = host.split(args.steps, max(LOOKS, -(-args.steps // PHASE)), PHASE)
    every, found = -(-plan.phases // LOOKS), Estimate(math.nan, math.nan)
    for done in range(1, plan.phases + 1):
        key = jax.random.fold_in(learn_key, done)
        state, metrics = phase(args.fqe, plan.iterations, args.batch_size, state, source, key)
        if done % every and done < plan.phases:
            continue
        each = np.asarray(value(args.fqe, state, starts, after[source.first]), np.float64).mean(1)
        found = Estimate(float(each.mean()), float(each.std()))
        if not math.isfinite(found.value):
            raise ValueError(f"The critics of {judged.run} diverged: lower --fqe.lr or --fqe.tau.")
        print(f"step     {done * plan.iterations:,} of {plan.phases * plan.iterations:,}: "
              f"loss {metrics['loss']:.3g}, value {told(found.value, found.spread)}",
              flush=True)  # fmt: skip
    return found


def next_actions(source: Source, after: Array, last: Array) -> Array:
    """What the policy does after each step [S, A], of what it does in each step's observation
    [S, A] and after each episode [E, A]."""
    ends = source.first + source.length - 1
    return jnp.roll(after, -1, axis=0).at[ends].set(last)


# Compiled once for all runs: of a policy they know no more than what it does.
begun = jax.jit(FQE.init, static_argnums=0)
value = jax.jit(FQE.value, static_argnums=0)


@partial(jax.jit, static_argnums=(0, 1, 2))
def phase(
    agent: FQE, length: int, batch_size: int, state: fqe.State, source: Source, key: Key
) -> tuple[fqe.State, Metrics]:
    """So many updates on steps drawn evenly; `source.aux` is what the policy does after each."""

    def step(state: fqe.State, key: Key) -> tuple[fqe.State, Metrics]:
        batch = sampling.sample(source, key, batch_size, 1)
        return agent.update(state, batch, batch.aux[:, 0])

    state, metrics = jax.lax.scan(step, state, jax.random.split(key, length))
    return state, jax.tree.map(jnp.mean, metrics)


def measured(args: Args, judged: Judged) -> Measured:
    """Discounted returns from the starts that every policy is judged on."""
    world: Any = Discounted(judged.env, args.fqe.gamma)
    returns = jax.jit(lambda params: play.judged(world, judged.policy, params, args.judge).returns)
    found = np.asarray(returns(judged.params), np.float64)
    return Measured(float(found.mean()), float(found.std() / math.sqrt(len(found))))


def tell(args: Args, data: Dataset, env: World) -> None:
    """Of which starts the numbers speak, and what is known to be wrong with them."""
    gamma, count = args.fqe.gamma, len(data.starts)
    starts = f"starts   the first observations of the data's {count:,} episodes"
    starts += f"; measured from {args.judge:,} of the simulator's own" * bool(args.judge)
    print(starts)
    undone = math.exp(-args.steps * args.fqe.tau * (1 - gamma * data.steps["mask"].mean()))
    if undone > UNDONE:
        print(f"note     values will be about {undone:.0%} short of where they go, which slow "
              "targets take long to: more --steps, or more --fqe.tau")  # fmt: skip
    if args.judge and (beyond := gamma**env.horizon) > UNDONE:
        print(f"note     the clock cuts episodes at {env.horizon} steps: up to {beyond:.0%} of a "
              "value is not measured, and counts as error")  # fmt: skip


def report(args: Args, estimate: Estimate, truth: Measured | None) -> None:
    gamma = args.fqe.gamma
    each = f", {(1 - gamma) * estimate.value:.3g} a step" * (gamma < 1)
    print(f"estimate {told(*estimate)} over {args.fqe.critics} critics{each}")
    if truth:
        off = estimate.value - truth.value
        share = f" ({off / abs(truth.value):+.1%})" if truth.value else ""
        print(f"measured {told(*truth)} (standard error) over {args.judge:,} episodes")
        print(f"error    {off:+.4g}{share}")


def told(value: float, spread: float) -> str:
    return f"{value:.4g} +- {spread:.2g}"


def spearman(one: np.ndarray, other: np.ndarray) -> float:
    """Rank correlation of two lists [N], those that are equal sharing a rank; NaN if all are."""
    ranks = [(x[:, None] > x).sum(1) + (x[:, None] == x).sum(1) / 2 for x in (one, other)]
    if not all(np.ptp(x) for x in ranks):
        return math.nan
    return float(np.corrcoef(*ranks)[0, 1])


if __name__ == "__main__":
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.fqe")))
