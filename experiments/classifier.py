"""Whether a task is done, learned of what robots did: a network where no program can tell.

python -m experiments.classifier runs/hil --out runs/classifier
python -m experiments.hil --success runs/classifier --out runs/hil-2

What was seen last in episodes that ended as done, as a human or a program said, is told from all
else that was seen (Luo et al. 2024, arXiv:2410.21845).  A call that is wrong ends an episode and
rewards it, so the network is held back until it hardly makes any in episodes it has not seen.
"""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro

import envs
from experiments import cli
from experiments.judge import FILE, Known, logit, network
from experiments.lived import hil_serl
from experiments.taken import EXPLORER, Intake, task_of
from rl import artefact, checkpoint, nets, norm
from rl.record import Record
from rl.train import descend, trainable
from rl.types import Array, Key, Obs, Params

FOLDS = 5  # each episode is judged by a network that has learned of the other folds
LEAST = 1e-4  # of a variance: what hardly varied tells nothing where it does
MADE = 0.25  # share of a batch that is made up
EVERY = 100  # updates between two lines of the record


@dataclass(frozen=True)
class Args:
    """Learn whether a task is done of a run's ledger."""

    run: tyro.conf.Positional[Path]  # of experiments.hil
    last: int = 5  # observations at the end of what was called done, in which it is done already
    false: float = 0.02  # share of episodes not seen that may be called done too early, at most
    steps: int = 2_000  # updates
    batch_size: int = 256
    hidden: tuple[int, ...] = (64, 64)
    lr: float = 1e-3
    decay: float = 0.1  # of weights
    seed: int = 0
    out: Path = Path("runs/classifier")


class Rows(NamedTuple):
    """What was seen, leaves [N, ...], episode by episode."""

    obs: Obs
    done: np.ndarray  # [N] bool
    episode: np.ndarray  # [N] whole numbers, from 0 on


class Worth(NamedTuple):
    """How well it tells of episodes that it has not seen, each of which its first call ends."""

    precision: float  # share of calls that are right
    recall: float  # share of what was done that is called so
    early: float  # steps that a right call comes before the end
    step_precision: float  # of all steps, not of first calls
    step_recall: float


def main(args: Args) -> None:
    check(args)
    name, found = lived(args.run)
    rows = labelled(found, args.last)
    require(args, rows)
    facts = {"algorithm": "classifier", "env": name, "config": args, "episodes": len(found)}
    with Record(args.out, args.steps, **facts) as log:
        logits, fold = unseen(args, rows)
        worth = worth_of(args, rows, logits, fold)
        known, losses = learned(args, rows, np.ones(len(rows.done), bool))
        known = known._replace(bar=jnp.float32(bar(args, rows, logits, fold >= 0)))
        for at in range(0, args.steps, EVERY):
            log.log(min(at + EVERY, args.steps), {"loss": losses[at : at + EVERY].mean()})
        checkpoint.save_params(log.out / FILE, jax.device_get(known))
        log.spent("train")
        told = worth._asdict() | {"bar": float(known.bar), "done": int(rows.done.sum())}
        log.update(status="done", sha256=checkpoint.fingerprint(known), **told)
    print(
        f"episodes {len(found)}, each judged by a network that has not seen it\n"
        f"calls    {worth.precision:.0%} of them right, of {worth.recall:.0%} of what was done, "
        f"{worth.early:.1f} steps before its end\nsteps    precision {worth.step_precision:.0%}, "
        f"recall {worth.step_recall:.0%}"
    )
    if worth.recall:
        print(f"success  --success {log.out}")
    else:
        print("success  none: it calls nothing done yet; practise on, and learn again")


def check(args: Args) -> None:
    """Refuse what makes no sense, before anything is read."""
    cli.at_least(1, args, "last", "steps", "batch_size")
    cli.at_least(0, args, "seed", "lr", "decay")
    if not 0 <= args.false < 1:
        raise ValueError(f"--false is {args.false}; it takes a share of at least 0, below 1.")
    if not args.hidden or min(args.hidden) < 1:
        raise ValueError(f"--hidden is {args.hidden}; it takes sizes of at least 1.")
    if not (args.run / "ledger").is_dir() or not (args.run / EXPLORER).is_file():
        raise ValueError(f"{args.run} is no run of experiments.hil: it has no ledger.")


def lived(run: Path) -> tuple[str, list[tuple[Obs, bool]]]:
    """A run's task, and what was seen in each episode, leaves [T, ...], and whether it ended as
    done."""
    name, task = task_of(run)
    env, spec = envs.simulate(task), artefact.read(run / EXPLORER).spec
    episodes, latest = list[list[Any]](), dict[str, int]()
    under_way = dict[str, int]()  # the episode that each robot is in, as its bridge counts
    for robot, piece, one in Intake(hil_serl, env, spec, run / "ledger").lived():
        if under_way.get(robot) != (now := piece.steps[0].episode):
            latest[robot] = len(episodes)
            episodes.append([])
        under_way[robot] = 0 if piece.done or piece.fell or piece.over else now
        episodes[latest[robot]].append((one.seen, piece.done))
    return name, [_whole(parts) for parts in episodes]


def _whole(parts: list[Any]) -> tuple[Obs, bool]:
    """An episode of its pieces."""
    (last, done), seen = parts[-1], [part.obs for part, _ in parts]
    end = jax.tree.map(lambda x: x[-1:], last.next_obs)
    return jax.tree.map(lambda *xs: np.concatenate(xs), *seen, end), done


def labelled(found: list[tuple[Obs, bool]], last: int) -> Rows:
    sizes = [len(jax.tree.leaves(obs)[0]) for obs, _ in found]
    done = [(np.arange(n) >= n - last) & end for n, (_, end) in zip(sizes, found, strict=True)]
    if not found:
        return Rows((), np.zeros(0, bool), np.zeros(0, int))
    obs = jax.tree.map(lambda *xs: np.concatenate(xs), *(obs for obs, _ in found))
    return Rows(obs, np.concatenate(done), np.repeat(np.arange(len(sizes)), sizes))


def require(args: Args, rows: Rows) -> None:
    """ValueError where there is too little of one kind to learn from some and judge the rest."""
    done, undone = (len(np.unique(rows.episode[x])) for x in (rows.done, ~rows.done))
    if min(done, undone) < FOLDS:
        raise ValueError(
            f"{args.run} has {done} episodes that ended as done, and {undone} with more than "
            f"--last {args.last} observations or another end: {FOLDS} of each are needed at least, "
            "so practise on, and say what is done (key y)."
        )


def unseen(args: Args, rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Logits [N] of networks that have not seen the row's episode, and the fold [N] of that."""
    ends = np.unique(rows.episode[rows.done])
    mixed = np.random.default_rng(args.seed).permutation(rows.episode[-1] + 1)
    order = np.argsort(~np.isin(mixed, ends), kind="stable")  # each fold has as many that are done
    fold = np.zeros(len(mixed), int)
    fold[mixed[order]] = np.arange(len(mixed)) % FOLDS
    fold, logits = fold[rows.episode], np.zeros(len(rows.done))
    for k in range(FOLDS):
        known, _ = learned(args, rows, fold != k)
        logits[fold == k] = np.asarray(logit(args.hidden, known, rows.obs))[fold == k]
    return logits, fold


def learned(args: Args, rows: Rows, taken: np.ndarray) -> tuple[Known, np.ndarray]:
    """A network of the rows that are `taken` [N], and its losses [steps]."""
    one = jax.tree.map(lambda x: x[0], rows.obs)
    seen = norm.update(norm.init(one), jax.tree.map(lambda x: x[taken], rows.obs))
    seen = seen._replace(var=jax.tree.map(lambda x: jnp.maximum(x, LEAST), seen.var))
    # As many of either kind are drawn, however rare what is done may be.
    share = [taken & kind for kind in (rows.done, ~rows.done)]
    chance = sum(x / (2 * x.sum()) for x in share)
    x = nets.flatten(norm.normalise(seen, rows.obs))
    params, losses = descended(args, x, rows.done, jnp.asarray(chance), jax.random.key(args.seed))
    return Known(params, seen, jnp.float32(0)), np.asarray(losses)


@partial(jax.jit, static_argnames="args")
def descended(args: Args, x: Array, done: Array, chance: Array, key: Key) -> tuple[Params, Array]:
    """Parameters that have learned of rows [N, O], each drawn with its `chance` [N], and losses.

    Of what was never seen nothing is known, and it is not done: rows whose numbers are each of
    another step stand for that.
    """
    net, tx = network(args.hidden), optax.adamw(args.lr, weight_decay=args.decay)
    begin, key = jax.random.split(key)
    made = int(MADE * args.batch_size)

    def loss(params: Params, seen: Array, label: Array) -> tuple[Array, Array]:
        logits = nets.apply(net, params, seen)[:, 0]
        value = optax.sigmoid_binary_cross_entropy(logits, label.astype(x.dtype)).mean()
        return value, value

    def step(state: Any, key: Key) -> Any:
        keys = jax.random.split(key)
        rows = jax.random.choice(keys[0], len(x), (args.batch_size - made,), p=chance)
        mixed = jax.random.choice(keys[1], len(x), (made, x.shape[1]), p=chance)
        seen = jnp.concatenate([x[rows], jnp.take_along_axis(x, mixed, 0)])
        label = jnp.concatenate([done[rows], jnp.zeros(made, bool)])
        return descend(tx, loss, state, seen, label)

    state = trainable(net.init(begin, x[0]), tx)
    state, losses = jax.lax.scan(step, state, jax.random.split(key, args.steps))
    return state.params, losses


def bar(args: Args, rows: Rows, logits: np.ndarray, of: np.ndarray) -> float:
    """The logit from which on it is called done, by the rows `of` [N] episodes not seen: where
    that is as likely as not, and above what but a few of the episodes come to too early."""
    done, wrong = rows.done[of], of & ~rows.done
    rare = math.log(max((~done).sum(), 1) / max(done.sum(), 1))  # half of what was drawn is done
    highest = np.sort([logits[wrong & (rows.episode == e)].max(initial=-np.inf)
                       for e in np.unique(rows.episode[of])])[::-1]  # fmt: skip
    return max(rare, float(np.nextafter(highest[int(args.false * len(highest))], np.inf)))


def worth_of(args: Args, rows: Rows, logits: np.ndarray, fold: np.ndarray) -> Worth:
    """Of each fold by a bar that the others have set."""
    called = np.zeros(len(logits), bool)
    for k in range(FOLDS):
        called[fold == k] = logits[fold == k] >= bar(args, rows, logits, fold != k)
    each = [(called[of], rows.done[of]) for e in range(rows.episode[-1] + 1)
            if (of := rows.episode == e).any()]  # fmt: skip
    calls = [(done[at := int(call.argmax())], len(call) - 1 - at) for call, done in each
             if call.any()]  # fmt: skip
    early = [left for right, left in calls if right]
    ends = sum(done.any() for _, done in each)
    both = (called & rows.done).sum()
    return Worth(
        len(early) / max(len(calls), 1), len(early) / ends, float(np.mean(early or [0])),
        float(both / max(called.sum(), 1)), float(both / rows.done.sum()),
    )  # fmt: skip


if __name__ == "__main__":
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.classifier")))
