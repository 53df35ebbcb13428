"""An arm's policy through the bridge against the same in training's process.

python -m benchmarks.armstep runs/sac

The same episodes twice, from the same starts for the same goals: stepped in this process, and by a
simulated robot in its own, in lock step with the exported policy in another.  They are stepped one
at a time: sums over a batch round otherwise, and where things touch rounding grows.
"""

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks import rows
from benchmarks.lockstep import bridged, states
from benchmarks.process import ROOT, Failed, guard
from envs.manipulation.tabletop import Tabletop
from envs.simulation import Simulation
from experiments import cli, drive_arm, play
from experiments.deploy import artefact_of
from rl import runs
from rl.env import State
from rl.policy import Carry, Policy
from rl.types import Array, Key, Params

ALIKE = 1e-4  # rad and m


@dataclass(frozen=True)
class Args:
    """Compare both ways of stepping a policy of an arm."""

    run: tyro.conf.Positional[Path]
    episodes: int = 100
    name: str = "bridge/arm"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    about = rows.about()
    env, policy, params = play.load(args.run)
    if not isinstance(getattr(env.task, "table", None), Tabletop):
        raise Failed(f"{args.run} is no run of an arm's task.")
    seed = runs.read_manifest(args.run)["seeds"][0]
    inside = lived(env, policy, params, jax.random.key(play.EVAL_SEED), args.episodes)
    path = artefact_of(args.run, seed)
    facts = compared(inside, driven(env, path, inside), env.control_dt)
    facts |= {"episodes": args.episodes, "env": runs.read_manifest(args.run)["env"]}
    print(json.dumps(facts, indent=1))
    rows.write(args.results, {"what": args.name, **facts, **about})


def compared(inside: Any, outside: Any, dt: float) -> dict[str, Any]:
    """How far poses are apart, and how many of both succeed."""
    apart = np.abs(inside["qpos"] - outside["qpos"]).max(2)  # [T, E]
    alike = np.cumsum(apart > ALIKE, 0) == 0
    return {
        "median": float(np.median(apart.max(0))),
        "worst": float(apart.max()),
        "alike": float(alike[-1].mean()),  # share of the episodes, to their end
        "alike_s": float(np.median(alike.sum(0)) * dt),
        "success": {"inside": float(inside["success"].mean()),
                    "bridge": float(outside["success"].mean())},
    }  # fmt: skip


def lived(env: Simulation, policy: Policy, params: Params, key: Key, episodes: int) -> Any:
    """In this process: starts [E, ...], and commands and poses [T, E, ...]; and which succeed."""

    def tick(params: Params, loop: tuple[State, Carry], key: Key) -> Any:
        state, carry = loop
        action, carry, _ = policy.step(params, carry, state.obs, key)
        after = env.step(state, action)
        return (after, carry), (asked(state.sim.command), after.sim.data, after.metrics["success"])

    def one(params: Params, key: Key) -> Any:
        start_key, key = jax.random.split(key)
        first, keys = env.reset(start_key), jax.random.split(key, env.horizon)
        begun = first, policy.init(params)
        return first.sim.data, jax.lax.scan(partial(tick, params), begun, keys)[1]

    # Parameters are given, as they are to the exported program: constants are folded, and rounded.
    whole = jax.jit(lambda params, keys: jax.lax.map(partial(one, params), keys))
    found = jax.device_get(whole(params, jax.random.split(key, episodes)))
    first, (command, data, success) = found
    qpos, qvel = states(env.task.model(), first.row)
    then = env.physics.qpos(data)
    return {
        "start": (qpos, qvel), "command": command.swapaxes(0, 1), "qpos": then.swapaxes(0, 1),
        "success": success[:, -1],
    }  # fmt: skip


def asked(command: Any) -> Array:
    return command if isinstance(command, jax.Array) else jnp.zeros(0)


def driven(env: Simulation, path: Path, inside: Any, *flags: str) -> Any:
    """The same through the bridge, by what its log says happened, of a robot with such `flags`."""
    qpos, qvel = inside["start"]
    log = bridged(env, path, qpos, qvel, inside["command"], None, *flags)
    there = drive_arm.by_episode(log, len(qpos))
    verdict = drive_arm.judged(env, there["qpos"], there["qvel"], inside["command"])
    return {"qpos": there["qpos"], "success": verdict.success[-1]}


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.armstep")))
