"""Flights as a task's own learners take them: what its policy sees, and actions of its own.

python -m rl.bridge convert a.mcap b.mcap --out flights.npz
python -m experiments.flown --env panda-reach --data flights.npz --out data.npz
python -m experiments.imitate --env panda-reach --data data.npz

The task's own `observe` and `control` live through what was measured and told.  What a policy
remembers is of what was done, by itself or by a human.  An action is the one whose targets are
nearest to what the motors were told: the limits of a bridge, and a hand that jogs single joints,
may lead where no action does, and how far off each is, is in the data.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from envs.task import Task
from experiments import cli
from rl import manifest
from rl.data import npz
from rl.data.dataset import Dataset
from rl.types import Array, PyTree, Readings

STEPS = 8  # of Gauss and Newton, to an action
START = 0.5  # of each of its numbers, whence it is looked for
SHARES = 0.0, 0.02, 0.1, 0.3, 0.6, 1.0  # of a step, of which the best is taken
DAMPING = 1e-6  # of a step, as a share of its squares
INSIDE = 0.999  # of an action, where its slope is taken: at its ends there is none
KEPT = "human", "planned", "limited", "time"  # of a flight's steps, beside all that data have


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("panda-reach"))  # --env NAME
    env_name: tyro.conf.Suppress[str] = "panda-reach"
    data: Path = Path("flights.npz")  # of python -m rl.bridge convert
    out: Path = Path("data.npz")  # a new file
    most: float = float("inf")  # rad or m that a step may be off; an episode that is more is left


def main(args: Args) -> None:
    npz.require_writable(args.out)
    if not args.most > 0:
        raise ValueError(f"--most is {args.most:g}; it takes a number above 0.")
    flown = npz.read(args.data)
    sizes = check(args, flown)
    made = relived(args, flown, sizes)
    worst = np.maximum.reduceat(made.steps["off"], made.starts)
    if not (good := worst <= args.most).any():
        raise ValueError(f"--most {args.most:g} leaves nothing: all are {worst.min():.2g} off.")
    made = made.chosen(good)
    sha256, off = npz.write(args.out, made), made.steps["off"]
    print(f"episodes {len(made.starts)} of {len(off):,} steps; {int((~good).sum())} were left out")
    print(f"off      {np.median(off):.2g} rad or m of a joint's target (99%: "
          f"{np.quantile(off, 0.99):.2g}, most: {off.max():.2g})")  # fmt: skip
    print(f"sha256   {sha256}\ndata     {args.out}")


def check(args: Args, flown: Dataset) -> dict[str, int]:
    """The sizes of the sensors in a flight's observations; ValueError if it is none of the task."""
    facts, spec = flown.facts, args.env.spec
    if facts.get("format") != "flight":
        raise ValueError(f"{args.data} is no flight's: python -m rl.bridge convert makes them.")
    public = [name for name in spec.sensors if name not in spec.privileged]
    if (theirs := [*facts["sensors"]]) != public:
        odd = sorted({*theirs} ^ {*public}) or ["their order"]
        raise ValueError(
            f"{args.data} is of {facts['robot']}, whose sensors are not those of {args.env_name}: "
            f"{', '.join(odd[:4])}."
        )
    if facts["action_names"] != [*spec.actuators] or facts["control_dt"] != spec.control_dt:
        raise ValueError(f"{args.data} is of other motors, or another rate, than {args.env_name}.")
    return facts["sensors"]


def relived(args: Args, flown: Dataset, sizes: Mapping[str, int]) -> Dataset:
    """The flight's episodes, as the task sees and acts."""
    steps, episodes = flown.steps, flown.episodes
    ends = np.cumsum(episodes["length"])
    rows = np.insert(steps["obs"], ends, episodes["last_obs"], axis=0)  # an episode has one more
    told = np.insert(steps["targets"], ends, steps["targets"][ends - 1], axis=0)
    last = ends + np.arange(len(ends))
    begins = np.insert(last[:-1] + 1, 0, 0)
    cuts = np.cumsum([*sizes.values()])
    parts = np.split(rows, cuts, axis=1)
    readings, command = dict(zip(sizes, parts[:-1], strict=True)), parts[-1]
    first = np.zeros(len(rows), bool)
    first[begins] = True
    obs, action, off = jax.device_get(
        jax.jit(lambda *x: live(args.env, *x))(readings, command, told, first)
    )
    whole = np.delete(np.arange(len(rows)), last)
    kept = {n: steps[n] for n in (*KEPT, "reward", "terminated", "truncated", "mask")}
    facts = {"task": args.env_name, "env": manifest.plain(args.env), "by": "flight"}
    facts |= {n: flown.facts[n] for n in ("control_dt", "reward", "flights", "why", "cut")
              if n in flown.facts}  # fmt: skip
    facts["flight_sha256"] = flown.facts[npz.HASH]
    name = "obs/policy" if args.env.privileged.__func__ is not Task.privileged else "obs"
    seen = {name: obs[whole], "action": action[whole], "off": off[whole]}
    after = {n: x for n, x in episodes.items() if n != "last_obs"} | {f"last_{name}": obs[last]}
    return Dataset(kept | seen, after, facts)


def live(
    task: Task, readings: Readings, command: Array, targets: Array, begins: Array
) -> tuple[Array, Array, Array]:
    """What the policy sees [R, O] in all rows [R, ...], the actions [R, n], and how far the targets
    [R, A] that they lead to are from those that were told, at most [R]."""
    blank = jax.tree.map(jnp.asarray, task.memory())

    def row(memory: PyTree, now: Any) -> tuple[PyTree, Any]:
        readings, command, told, fresh = now
        memory = jax.tree.map(lambda new, old: jnp.where(fresh, new, old), blank, memory)
        obs, memory = task.observe(readings, command, memory)
        action = nearest(task, readings, memory, told)
        found, memory = task.control(action, readings, memory)
        return memory, (obs, action, jnp.abs(found - told).max())

    return jax.lax.scan(row, blank, (readings, command, targets, begins))[1]


def nearest(task: Task, readings: Readings, memory: PyTree, told: Array) -> Array:
    """The action in [-1, 1] whose targets are nearest to those that were told."""
    size = len(task.spec.actions or task.spec.actuators)
    miss = lambda action: told - task.control(action, readings, memory)[0]  # noqa: E731
    worth = jax.vmap(lambda action: jnp.sum(miss(action) ** 2))

    def step(action: Array, _: None) -> tuple[Array, None]:
        slope, off = jax.jacfwd(miss)(INSIDE * action), miss(action)
        square = slope.T @ slope
        square += (DAMPING * jnp.trace(square) + 1e-12) * jnp.eye(size)
        by = jnp.linalg.solve(square, slope.T @ off)
        tried = jnp.clip(action - jnp.outer(jnp.array(SHARES), by), -1, 1)
        return tried[worth(tried).argmin()], None

    def found(start: Array) -> Array:
        return jax.lax.scan(step, start, None, length=STEPS)[0]

    starts = jnp.concatenate([jnp.zeros((1, size)), START * jnp.eye(size), -START * jnp.eye(size)])
    ends = jax.vmap(found)(starts)  # what motors may do has corners, in which one may be stuck
    return ends[worth(ends).argmin()]


if __name__ == "__main__":
    cli.run(main, Args)
