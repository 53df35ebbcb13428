"""Actions for episodes that were recorded without, by inverse dynamics learned from some with.

python -m experiments.label --labelled small.npz --unlabelled big.npz --out labelled.npz
python -m rl.data join both.npz small.npz labelled.npz
python -m experiments.offline --agent iql --env HalfCheetah-v5 --data both.npz

SS-ORL (Zheng et al. 2023, arXiv:2210.06518), whose model learns for 100,000 steps.  What the
labels are worth is measured on labelled episodes that are held out.
"""

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from experiments import cli
from rl import manifest, resources
from rl.data import dataset, held_out, inverse, join, npz
from rl.data.dataset import Dataset
from rl.data.inverse import InverseDynamics, Seen, State
from rl.types import Array, Key, Metrics

PHASE = 500  # updates between two lines of progress
BLOCK = 8_192  # steps that are labelled together
POOR = 0.5  # R^2 below which labels are warned of
SAME = "task", "env", "control_dt"  # facts that two datasets of one task share
LIMITS = "action_low", "action_high"  # those of the labelled set are what labels are in


@dataclass(frozen=True)
class Args:
    labelled: Path  # a dataset with actions, to learn from
    unlabelled: Path  # one of the same task without
    out: Path  # a new .npz: the unlabelled episodes, with actions
    steps: int = 20_000  # updates of the model
    batch_size: int = 1024
    hidden: tuple[int, ...] = (1024, 1024)
    dropout: float = 0.1
    lr: float = 1e-4
    held_out: float = 0.1  # share of the labelled episodes, to measure with
    seed: int = 0


class Known(NamedTuple):
    """Steps whose actions are known; leaves [S, ...]."""

    seen: Seen
    action: Array


class Worth(NamedTuple):
    mse: float  # of an action's numbers
    r2: float  # share of their variance that is explained


def main(args: Args) -> None:
    model = checked(args)
    labelled, unlabelled = npz.read(args.labelled), npz.read(args.unlabelled)
    check(args, labelled, unlabelled)
    learned, held = held_out.split(labelled, args.held_out, args.seed)
    steps = len(learned.steps["reward"])
    print(f"learning from {len(learned.starts):,} episodes of {steps:,} steps, "
          f"{len(held.starts):,} held out", flush=True)  # fmt: skip
    state = learn(args, model, known(learned), held)
    found = worth(model, state, held)
    if not np.isfinite(found.mse):
        raise ValueError(
            "The model's error is no finite number: lower --lr, or look for outliers in "
            f"{args.labelled} (python -m rl.data info)."
        )
    print(f"held out mean squared error {found.mse:.4g}, R^2 {found.r2:.3f}")
    if found.r2 < 0:
        raise ValueError(
            "Its labels would be worse than the same action everywhere, and none is written: lower "
            "--lr, or learn from more episodes, or for more --steps."
        )
    if found.r2 < POOR:
        print(
            f"warning: R^2 on held-out episodes is {found.r2:.2f}, so labels tell little of what "
            "was done: learn from more episodes, or for more --steps.",
            file=sys.stderr,
        )
    like = labelled.steps["action"]
    action = labels(model, state, unlabelled, like.shape[1]).astype(like.dtype)
    data = Dataset(
        unlabelled.steps | {"action": action},
        unlabelled.episodes,
        about(args, model, labelled, unlabelled, found),
    )
    sha256 = npz.write(args.out, data)
    print(f"episodes {len(data.starts):,} of {len(action):,} steps")
    print(f"sha256   {sha256}\ndata     {args.out}")


def checked(args: Args) -> InverseDynamics:
    """The model, once the numbers make sense and there is a place for what comes of it."""
    cli.at_least(1, args, "steps", "batch_size")
    cli.at_least(0, args, "seed")
    if not 0 < args.held_out < 1:
        raise ValueError(f"--held-out is {args.held_out}; it takes a share in (0, 1).")
    npz.require_writable(args.out)
    return InverseDynamics(args.hidden, args.dropout, args.lr)


def check(args: Args, labelled: Dataset, unlabelled: Dataset) -> None:
    """Refuse what cannot be learned from, or is not to be labelled."""
    if not labelled.has_actions:
        raise ValueError(f"{args.labelled} has no actions: --labelled takes a dataset with some.")
    dataset.require_actions(str(args.labelled), labelled)
    if unlabelled.has_actions:
        raise ValueError(
            f"{args.unlabelled} has actions: --unlabelled takes a dataset without "
            "(python -m rl.data convert --no-actions leaves them out)."
        )
    if len(labelled.starts) < 2:
        raise ValueError(
            f"{args.labelled} has one episode, and two are needed: one to learn from, one to "
            "measure with."
        )
    both = f"{args.labelled} and {args.unlabelled}"
    for fact in SAME:
        one, other = (x.facts.get(fact) for x in (labelled, unlabelled))
        if None not in (one, other) and one != other:
            what = manifest.difference(fact, one, other)
            raise ValueError(f"{both} are of different tasks: {what}.")
    one, other = (
        ", ".join(f"{n}{[*x.shape[1:]]}" for n, x in dataset.named(seen).items())
        for seen in ({"obs": inverse.watched(data)} for data in (labelled, unlabelled))
    )
    if one != other:
        raise ValueError(f"{both} are of different tasks: a policy sees {one}, and {other}.")
    needed = 32 * sum(x.size for x in jax.tree.leaves(inverse.watched(labelled)))  # three, twice
    resources.require(needed, f"{args.labelled}", "take a part of it")


def known(data: Dataset) -> Known:
    rows = inverse.recorded(data)
    return Known(inverse.around(data, rows), jnp.asarray(data.steps["action"][rows]))


def learn(args: Args, model: InverseDynamics, data: Known, held: Dataset) -> State:
    """A model that has learned from `data`; what it is worth of `held` is said on the way."""
    init_key, key = jax.random.split(jax.random.key(args.seed))
    seen, action = jax.tree.map(lambda x: x[0], tuple(data))
    state = model.observe(model.init(init_key, seen, action), data.seen)
    for done in range(0, args.steps, PHASE):
        numbers = jnp.arange(done, min(done + PHASE, args.steps))
        state, metrics = phase(model, args.batch_size, state, data, key, numbers)
        print(
            f"update   {done + len(numbers):,} of {args.steps:,}: mean squared error "
            f"{metrics['mse'].mean():.4g}, held out {worth(model, state, held).mse:.4g}",
            flush=True,
        )
    return state


@partial(jax.jit, static_argnames=("model", "batch_size"))
def phase(
    model: InverseDynamics, batch_size: int, state: State, data: Known, key: Key, numbers: Array
) -> tuple[State, Metrics]:
    """Updates of these `numbers`, which tell what each draws."""

    def step(state: State, number: Array) -> tuple[State, Metrics]:
        rows_key, learn_key = jax.random.split(jax.random.fold_in(key, number))
        rows = jax.random.randint(rows_key, (batch_size,), 0, len(data.action))
        seen, action = jax.tree.map(lambda x: x[rows], tuple(data))
        return model.update(state, seen, action, learn_key)

    return jax.lax.scan(step, state, numbers)


def labels(model: InverseDynamics, state: State, data: Dataset, action_dim: int) -> np.ndarray:
    """The model's actions [S, A] in the steps of a dataset, which may be larger than memory."""
    count, found = len(data.steps["reward"]), []
    for first in range(0, count, BLOCK):
        rows = np.arange(first, first + BLOCK)  # always as many, to be compiled once
        seen = inverse.around(data, np.minimum(rows, count - 1))
        found.append(np.asarray(predicted(model, action_dim, state, seen)))
    return np.concatenate(found)[:count]


@partial(jax.jit, static_argnames=("model", "action_dim"))
def predicted(model: InverseDynamics, action_dim: int, state: State, seen: Seen) -> Array:
    return model.predict(state, seen, action_dim)


def worth(model: InverseDynamics, state: State, held: Dataset) -> Worth:
    """How near to their actions the labels of episodes come that the model never saw."""
    rows, dim = inverse.recorded(held), held.steps["action"].shape[1]
    action = held.steps["action"][rows].astype(np.float64)
    mse = float(((labels(model, state, held, dim)[rows] - action) ** 2).mean())
    return Worth(mse, 1 - mse / max(float(action.var(0).mean()), 1e-8))


def about(
    args: Args, model: InverseDynamics, labelled: Dataset, unlabelled: Dataset, found: Worth
) -> dict[str, Any]:
    """Where the episodes come from, and their actions."""
    drop = {"schema", npz.HASH, *LIMITS}
    theirs = {name: x for name, x in unlabelled.facts.items() if name not in drop}
    ours = {name: labelled.facts[name] for name in (*SAME, *LIMITS) if name in labelled.facts}
    labels = {
        "labelled_sha256": labelled.facts[npz.HASH],
        "unlabelled_sha256": unlabelled.facts[npz.HASH],
        "labelled": join.told(labelled.facts),
        "held_out": args.held_out,
        "held_out_mse": found.mse,
        "held_out_r2": found.r2,
        "model": manifest.plain(model),
        "steps": args.steps,
        "batch_size": args.batch_size,
        "seed": args.seed,
    }
    return theirs | ours | {"action": "inverse dynamics", "labels": labels}


if __name__ == "__main__":
    args = partial(tyro.cli, Args, prog="python -m experiments.label", description=__doc__)
    cli.guard(lambda: main(args()))
