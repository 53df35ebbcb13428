"""A policy through the bridge against the same in training's process: python -m benchmarks.lockstep

The same episodes twice, from the same starts under the same commands: stepped by the evaluator,
and by a simulated robot in its own process, in lock step with the exported policy in another.
"""

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro

import envs
from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard
from envs.locomotion.joystick import Joystick
from envs.physics.native import KEPT
from envs.simulation import Simulation
from experiments import cli, play
from experiments.deploy import artefact_of
from experiments.drive import Args as Drive
from experiments.drive import together
from rl import rollout, runs
from rl.policy import Policy
from rl.types import Array, Key, Params

ERRORS = "velocity_error2", "turn_error2"
HZ = 500.0  # steps of physics a second, on both sides


@dataclass(frozen=True)
class Args:
    """Compare both ways of stepping a policy that walks on command."""

    run: tyro.conf.Positional[Path]
    episodes: int = 100
    rate: float | None = None  # ticks of the wire a second; None: the policy's
    name: str = "bridge/lockstep"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    about = rows.about()
    env, policy, params = play.load(args.run)
    if not isinstance(env.task, Joystick):
        raise Failed(f"{args.run} is no run of a joystick task.")
    # As the simulated robot is: what its sensors say, at once; no pushes, no other robots.
    kept = "measured", "history", "action_scale", "playground_timing"
    fields: dict[str, Any] = {field: getattr(env.task, field) for field in kept}
    task = Joystick(env.task.robot, env.task.ground, noise=0.0, timestep=1 / HZ, **fields)
    env = envs.simulate(task, "native")
    inside = lived(env, policy, params, jax.random.key(play.EVAL_SEED), args.episodes)
    seed = runs.read_manifest(args.run)["seeds"][0]
    outside = driven(task, env, artefact_of(args.run, seed), inside, args.rate)
    facts: dict[str, Any] = {"episodes": args.episodes, "inside": summary(inside)}
    facts |= {"rate": args.rate or 1 / env.control_dt}
    facts |= {"bridge": summary(outside), "env": f"{task.robot}-joystick-{task.ground}"}
    facts["difference"] = {
        name: facts["bridge"][name] / x - 1 for name, x in facts["inside"].items() if x
    }
    print(json.dumps(facts, indent=1))
    rows.write(args.results, {"what": args.name, **facts, **about})


def lived(env: Simulation, policy: Policy, params: Params, key: Key, episodes: int) -> Any:
    """In this process: starts [E, ...], and commands, rewards and metrics [T, E, ...]."""

    def tick(worlds: rollout.Worlds, key: Key) -> Any:
        before = worlds.state
        keys = jax.random.split(key, episodes)
        action, carry, _ = jax.vmap(policy.step, (None, 0, 0, 0))(
            params, worlds.carry, before.obs, keys
        )
        state = jax.vmap(env.step)(before, action)
        alive = ~worlds.state.done  # a world that is over stays over
        state = state._replace(terminated=state.terminated | ~alive)
        seen = before.sim.command, state.reward, state.metrics, alive
        return worlds._replace(state=state, carry=carry), seen

    def whole(params: Params, key: Key) -> Any:
        start_key, key = jax.random.split(key)
        worlds = rollout.start(env, policy, params, start_key, episodes)
        first = worlds.state.sim.data
        keys = jax.random.split(key, env.horizon)
        return first, jax.lax.scan(tick, worlds, keys)[1]

    first, (command, reward, metrics, alive) = jax.device_get(jax.jit(whole)(params, key))
    qpos, qvel = states(env.task.model(), first.row)
    errors = {name: metrics[name] for name in ERRORS}
    found = {"qpos": qpos, "qvel": qvel, "command": command, "reward": reward, "alive": alive}
    return found | errors


def states(model: mujoco.MjModel, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """qpos [E, nq] and qvel [E, nv] of rows [E, S, 2] of native physics."""
    data, found = mujoco.MjData(model), []
    for row in np.ascontiguousarray(rows).reshape(len(rows), -1).view(np.float64):
        mujoco.mj_setState(model, data, row, KEPT)
        found.append((data.qpos.copy(), data.qvel.copy()))
    qpos, qvel = map(np.stack, zip(*found, strict=True))
    return qpos, qvel


def driven(
    task: Joystick, env: Simulation, path: Path, inside: Any, rate: float | None, *flags: str
) -> Any:
    """The same through the bridge: rewards and errors [T, E] of what its log says happened."""
    log = bridged(env, path, inside["qpos"], inside["qvel"], inside["command"], rate, *flags)
    return judged(task, env, log, len(inside["qpos"]))


def bridged(
    env: Simulation, path: Path, qpos: np.ndarray, qvel: np.ndarray, command: np.ndarray,
    rate: float | None, *flags: str,
) -> dict[str, np.ndarray]:  # fmt: skip
    """The log of an artefact and a simulated robot: episodes begun at [E, ...] one after another,
    under commands [T, E, C], over a wire of so many ticks a second, a robot with such `flags`."""
    dt, hz = env.control_dt, 1 / float(env.task.model().opt.timestep)
    with tempfile.TemporaryDirectory() as folder:
        starts, script, log = (Path(folder) / name for name in ("s.npz", "c.csv", "log.npz"))
        np.savez(starts, qpos=qpos, qvel=qvel)
        asked = command.swapaxes(0, 1).reshape(len(qpos) * env.horizon, -1)
        times = dt * np.arange(len(asked))
        np.savetxt(script, np.column_stack([times, asked]), "%.9g", ",")
        more = ["--starts", str(starts), "--hz", str(hz)]
        more += [*(["--rate", str(rate)] if rate else []), *flags]
        together(path, script, log, Drive(path, seconds=env.horizon * dt), *more)
        return dict(np.load(log))


def judged(task: Joystick, env: Simulation, log: Any, episodes: int) -> Any:
    """Rewards and errors [T, E] of logged states, by the task's own account."""
    physics = env.physics

    def read(qpos: Array, qvel: Array, force: Array) -> Any:
        raw = physics.read(physics.reset(physics.blank(), jnp.bool(True), qpos, qvel, {}))
        return raw | {"actuator_force": force}

    def tick(episode: Any, now: Any) -> Any:
        after, targets, command = now
        action = (targets - task.legged.pose) / task.action_scale
        reward, metrics = task.reward(after, after, action, command, episode)
        _, episode, _ = task.advance(jax.random.key(0), after, action, command, episode)
        return episode, (reward, *(metrics[name] for name in ERRORS))

    @jax.jit
    def replay(qpos: Array, qvel: Array, force: Array, targets: Array, command: Array) -> Any:
        start = task.reset(jax.random.key(0), task.context())
        after = jax.vmap(read)(qpos, qvel, force)
        return jax.lax.scan(tick, start.episode, (after, targets, command))[1]

    shape, told = (env.horizon, episodes), ("reward", *ERRORS)
    found = {name: np.zeros(shape) for name in told}
    found["alive"] = np.zeros(shape, bool)
    for e in range(episodes):
        mine = log["episode"] == e
        count = int(mine.sum())
        logged = [log[name][mine] for name in ("qpos", "qvel", "torque", "targets", "command")]
        whole = [np.concatenate([x, x[-1:].repeat(env.horizon - count, 0)]) for x in logged]
        for name, x in zip(told, replay(*whole), strict=True):
            found[name][:, e] = x
        found["alive"][:count, e] = True
    return found


def summary(found: Any) -> dict[str, float]:
    """Mean return, root mean square errors, and how many steps were lived."""
    alive = found["alive"]
    return {
        "return": float((found["reward"] * alive).sum(0).mean()),
        "velocity_error": float(np.sqrt(found["velocity_error2"][alive].mean())),
        "turn_error": float(np.sqrt(found["turn_error2"][alive].mean())),
        "length": float(alive.sum(0).mean()),
    }


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.lockstep")))
