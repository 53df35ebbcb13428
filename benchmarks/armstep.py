"""An arm's policy through the bridge against the same in training's process.

python -m benchmarks.armstep runs/sac

The same episodes twice, from the same starts for the same goals: stepped by the evaluator, and by a
simulated robot in its own process, in lock step with the exported policy in another.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from benchmarks import rows
from benchmarks.lockstep import states
from benchmarks.process import ROOT, Failed, guard
from envs.manipulation.tabletop import Tabletop
from envs.simulation import Simulation
from experiments import drive_arm, play
from experiments.deploy import artefact_of
from experiments.drive import Args as Drive
from experiments.drive import together
from rl import rollout, runs
from rl.policy import Policy
from rl.types import Array, Key, Params

ALIKE = 1e-4  # rad and m
# As in training, whose motors cut their torque themselves.
UNCUT = "--limits.torque", "100", "--limits.acceleration", "100"


@dataclass(frozen=True)
class Args:
    """Compare both ways of stepping a policy of an arm."""

    run: tyro.conf.Positional[Path]
    episodes: int = 100
    name: str = "bridge/arm"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


def main(args: Args) -> None:
    if args.episodes < 1:
        raise Failed(f"--episodes is {args.episodes}; it needs at least 1.")
    env, policy, params = play.load(args.run)
    if not isinstance(getattr(env.task, "table", None), Tabletop):
        raise Failed(f"{args.run} is no run of an arm's task.")
    seed = runs.read_manifest(args.run)["seeds"][0]
    inside = lived(env, policy, params, jax.random.key(play.EVAL_SEED), args.episodes)
    path = artefact_of(args.run, seed)
    facts = compared(inside, driven(env, path, inside, UNCUT), env.control_dt)
    limited = driven(env, path, inside, ())["success"].mean()
    facts["success"]["limited"] = float(limited)
    facts |= {"episodes": args.episodes, "env": runs.read_manifest(args.run)["env"]}
    print(json.dumps(facts, indent=1))
    about = {"commit": rows.commit(ROOT), "machine": rows.machine()}
    rows.write(args.results, {"what": args.name, **facts, **about})


def compared(inside: Any, outside: Any, dt: float) -> dict[str, Any]:
    """How far poses are apart, and how many of both succeed.

    Rounding, of 1e-8 rad in the first step, grows where things touch.
    """
    apart = np.abs(inside["qpos"] - outside["qpos"]).max(2)  # [T, E]
    alike = np.cumsum(apart > ALIKE, 0) == 0
    return {
        "median": float(np.median(apart.max(0))),
        "alike": float(alike[-1].mean()),  # share of the episodes, to their end
        "alike_s": float(np.median(alike.sum(0)) * dt),
        "success": {"inside": float(inside["success"].mean()),
                    "bridge": float(outside["success"].mean())},
    }  # fmt: skip


def lived(env: Simulation, policy: Policy, params: Params, key: Key, episodes: int) -> Any:
    """In this process: starts [E, ...], and commands and poses [T, E, ...]; and which succeed."""

    def tick(worlds: rollout.Worlds, key: Key) -> Any:
        before = worlds.state
        keys = jax.random.split(key, episodes)
        action, carry, _ = jax.vmap(policy.step, (None, 0, 0, 0))(
            params, worlds.carry, before.obs, keys
        )
        state = jax.vmap(env.step)(before, action)
        seen = asked(before.sim.command, episodes), state.sim.data, state.metrics["success"]
        return worlds._replace(state=state, carry=carry), seen

    def whole(params: Params, key: Key) -> Any:
        start_key, key = jax.random.split(key)
        worlds = rollout.start(env, policy, params, start_key, episodes)
        keys = jax.random.split(key, env.horizon)
        return worlds.state.sim.data, jax.lax.scan(tick, worlds, keys)[1]

    first, (command, data, success) = jax.device_get(jax.jit(whole)(params, key))
    qpos, qvel = states(env.task.model(), first.row)
    then = env.physics.qpos(data)
    return {"start": (qpos, qvel), "command": command, "qpos": then, "success": success[-1]}


def asked(command: Any, episodes: int) -> Array:
    return command if isinstance(command, jax.Array) else jnp.zeros((episodes, 0))


def driven(env: Simulation, path: Path, inside: Any, limits: Sequence[str]) -> Any:
    """The same through the bridge, by what its log says happened."""
    (qpos, qvel), dt = inside["start"], env.control_dt
    episodes, horizon = len(qpos), env.horizon
    with tempfile.TemporaryDirectory() as folder:
        starts, script, log = (Path(folder) / name for name in ("s.npz", "c.csv", "log.npz"))
        np.savez(starts, qpos=qpos, qvel=qvel)
        command = inside["command"].swapaxes(0, 1).reshape(episodes * horizon, -1)
        times = dt * np.arange(len(command))
        np.savetxt(script, np.column_stack([times, command]), "%.9g", ",")
        hz = 1 / float(env.task.model().opt.timestep)
        more = "--starts", str(starts), "--hz", str(hz)
        together(path, script, log, Drive(path, seconds=horizon * dt), *more, limits=limits)
        found = dict(np.load(log))
    shape = episodes, horizon
    there = {n: found[n].reshape(*shape, -1).swapaxes(0, 1) for n in ("qpos", "qvel")}
    verdict = drive_arm.judged(env, there["qpos"], there["qvel"], inside["command"])
    return {"qpos": there["qpos"], "success": verdict.success[-1]}


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.armstep")))
