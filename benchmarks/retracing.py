"""A rollout with a trained policy, and bare physics on the very same path.

python -m benchmarks.retracing {rollout,bare} benchmarks/policies/go1-joystick-flat

`rollout` is all that training steps: policy, observation, reward, restarts.  `bare` gives
`mujoco.batch.Batch` the same targets from the same states, and nothing else.  One line of JSON;
`value` is the best rate over the world counts, environment steps/s.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jax
import numpy as np
import tyro
from mujoco.batch import Batch

from benchmarks.stepping import rate
from envs.physics.native import Native
from envs.simulation import Simulation
from experiments import play
from rl import rollout
from rl.types import Key

LENGTH = 64  # control steps of a path


@dataclass(frozen=True)
class Args:
    mode: Annotated[Literal["rollout", "bare"], tyro.conf.Positional]
    run: tyro.conf.Positional[Path]
    worlds: tuple[int, ...] = (64, 256, 1024)
    seconds: float = 5.0  # s of measuring for each world count
    seed: int = 0


def walked(
    env: Simulation, policy: Any, params: Any, worlds: int, key: Key
) -> tuple[Any, Any, float]:
    """A phase of collecting, worlds that have walked for a while, and seconds of compiling."""

    def phase(worlds: rollout.Worlds, key: Key) -> Any:
        return rollout.collect(env, policy, params, worlds, key, LENGTH)

    begin = time.perf_counter()
    start = jax.jit(lambda key: rollout.start(env, policy, params, key, worlds))
    fresh = start(key)
    ready = jax.jit(phase).lower(fresh, key).compile()
    spent = time.perf_counter() - begin
    for _ in range(4):
        key = jax.random.fold_in(key, 0)
        fresh = ready(fresh, key)[0]
    return ready, fresh, spent


def retrace(env: Simulation, policy: Any, params: Any, worlds: rollout.Worlds, key: Key) -> Any:
    """What the bare physics is given: rows [N, S] to begin with, and of every step targets
    [T, N, A], the rows that it led to [T, N, S] and which of the worlds had ended [T, N]."""

    def tick(worlds: rollout.Worlds, key: Key) -> Any:
        after, seen, ends = rollout.collect(env, policy, params, worlds, key, 1)
        sim = worlds.state.sim
        targets, _ = jax.vmap(env.task.control)(seen.action[0], sim.told, sim.memory)
        return after, (targets, after.state.sim.data.row, ends.ended[0])

    keys = jax.random.split(key, LENGTH)
    _, (targets, rows, ended) = jax.device_get(
        jax.jit(lambda worlds: jax.lax.scan(tick, worlds, keys))(worlds)
    )
    first = np.asarray(worlds.state.sim.data.row)
    return flat(first), targets.astype(float), flat(rows), ended


def flat(words: np.ndarray) -> np.ndarray:
    """Words [..., S, 2] as rows [..., S] of float64."""
    return np.ascontiguousarray(words).view(np.float64)[..., 0]


def bare(env: Simulation, first: np.ndarray, targets: Any, rows: Any, ended: Any) -> Callable:
    """Goes the path once more, from the start."""
    assert isinstance(env.physics, Native)
    batch = Batch(env.task.model(), len(first), env.physics.threads)
    again = [np.flatnonzero(now) for now in ended]
    kept = batch.state[:, : first.shape[1]]  # a quadruped's rows lack only what comes last

    def path(state: Any, key: Key) -> tuple[Any, ...]:
        kept[:] = first
        for t in range(LENGTH):
            batch.bind("ctrl")[:] = targets[t]
            batch.step(nstep=env.task.spec.substeps)
            if len(again[t]):
                kept[again[t]] = rows[t][again[t]]
        return (batch.state.copy(),)

    return path


def main(args: Args) -> None:
    env, policy, params = play.load(args.run)
    rates: dict[int, float] = {}
    compiles: list[float] = []
    for worlds in args.worlds:
        key = jax.random.key(args.seed)
        advance, state, spent = walked(env, policy, params, worlds, key)
        if args.mode == "bare":
            path = retrace(env, policy, params, state, key)
            advance, state = bare(env, *path), None
        compiles.append(spent)
        rates[worlds] = rate(advance, state, worlds * LENGTH, args.seconds)
    told = {"compile_s": max(compiles), "substeps": env.task.spec.substeps, "rates": rates}
    print(json.dumps({"value": max(rates.values()), **told}))


if __name__ == "__main__":
    main(tyro.cli(Args))
