"""How many contacts a task's worlds come to: python -m benchmarks.contacts [TASK ...]

Motors are pushed about at random, and from end to end; whatever floats begins in any pose.  What is
counted on MuJoCo is next to the room that MJX-Warp's buffers have and, where that is less than the
geoms could fill, to what Warp finds in the fullest of those poses: pairs looked at, and contacts.
"""

import heapq
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import tyro
from mujoco.mjx.warp.collision_driver import collision

import envs
from benchmarks import rows
from benchmarks.process import ROOT, guard
from envs.physics import warp_model
from envs.physics.mjx import mjx
from envs.task import Task
from experiments import cli

HOLD = 10  # control steps between targets
FULLEST = 16  # poses that Warp is shown
AMPLE = 512  # contacts, for which it has room then


@dataclass(frozen=True)
class Args:
    """Count the contacts that worlds of tasks come to, for the room that Warp is given."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = ()  # none: all
    worlds: int = 24
    steps: int = 400  # of control, in each
    results: Path = ROOT / "benchmarks" / "results" / "contacts.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "worlds", "steps")
    about = rows.about()
    for name in args.tasks or envs.names():
        task = envs.make_task(name)
        if warp_model.unsupported(model := task.model(), task.spec):
            continue
        contacts, found, poses = crowded(task, model, args)
        put = warp_model.put(model, False, task.spec.contacts)
        room = warp_model.room(put, model, task.spec.contacts)
        facts: dict[str, Any] = {
            "contacts": contacts, "rows": found, "room": room._asdict(), "worlds": args.worlds,
            "steps": args.steps,
        }  # fmt: skip
        if room.contacts == task.spec.contacts:
            facts["warp"] = near(model, put, poses)
        print(name, json.dumps(facts), flush=True)
        rows.write(args.results, {"what": name, **facts, **about})


def crowded(task: Task, model: mujoco.MjModel, args: Args) -> tuple[int, int, np.ndarray]:
    """The most contacts and constraints at once, and the fullest poses [FULLEST, nq]."""
    rng, data, most, fullest = np.random.default_rng(0), mujoco.MjData(model), 0, []
    keys = jax.random.split(jax.random.key(0), args.worlds)
    start = jax.jit(jax.vmap(lambda key: task.reset(key, task.context())))(keys)
    low, high = np.array(task.spec.low), np.array(task.spec.high)
    for world in range(args.worlds):
        mujoco.mj_resetData(model, data)
        data.qpos[:], data.qvel[:] = start.qpos[world], start.qvel[world]
        if world % 3 == 0:
            turn(model, data, rng)
        for t in range(args.steps):
            if t % HOLD == 0:
                ends = np.where(rng.random(len(low)) < 0.5, low, high)
                data.ctrl[:] = rng.uniform(low, high) if world % 2 else ends
            for _ in range(task.spec.substeps):
                mujoco.mj_step(model, data)
                most = max(most, data.nefc)
            heapq.heappush(fullest, (data.ncon, world * args.steps + t, data.qpos.copy()))
            if len(fullest) > FULLEST:
                heapq.heappop(fullest)
    return max(fullest)[0], most, np.stack([pose for _, _, pose in fullest])


def turn(model: mujoco.MjModel, data: mujoco.MjData, rng: np.random.Generator) -> None:
    """Turn what floats into any orientation."""
    for joint in np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE):
        at, quat = model.jnt_qposadr[joint], rng.normal(size=4)
        data.qpos[at + 3 : at + 7] = quat / np.linalg.norm(quat)


def near(model: mujoco.MjModel, put: mjx.Model, poses: np.ndarray) -> dict[str, int]:
    """The most pairs that Warp looks at in one of the poses, and contacts that it finds."""
    blank = mjx.make_data(model, impl="warp", naconmax=AMPLE, njmax=1)

    def count(qpos: jax.Array) -> Any:
        found: Any = collision(put, mjx.kinematics(put, blank.replace(qpos=qpos)))._impl
        return found.ncollision[0], found.nacon[0]

    pairs, contacts = jax.jit(lambda x: jax.lax.map(count, x))(jnp.asarray(poses, jnp.float32))
    return {"pairs": int(pairs.max()), "contacts": int(contacts.max())}


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.contacts")))
