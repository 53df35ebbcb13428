"""Drive a trained robot: its artefact in one process, a simulated robot in another.

python -m experiments.drive runs/ppo

Neither process knows of training.  What comes of it is a video with the commands written into it
and a plot of commanded and achieved velocity, contacts and torques.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import mujoco
import numpy as np
import tyro

import envs
from envs import render
from experiments import cli, play
from experiments.deploy import artefact_of
from rl import artefact, runs
from rl.artefact import Artefact
from rl.bridge import runner

# s, then forward in m/s, left in m/s, and a turn to the left in rad/s.
TOUR = (
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 0.8, 0.0, 0.0),
    (5.0, 0.5, 0.0, 1.0),
    (9.0, 0.0, 0.4, 0.0),
    (12.0, -0.5, 0.0, 0.0),
    (15.0, 0.0, 0.0, -1.0),
    (18.0, 0.0, 0.0, 0.0),
)
CHANNELS = ("forward", "m/s"), ("left", "m/s"), ("turn left", "rad/s")  # of `velocities`
LONGEST = 24 * 3600.0  # s, whose log fits in memory


@dataclass(frozen=True)
class Args:
    run: tyro.conf.Positional[Path]  # a run's directory, or an artefact
    seed: int | None = None  # of the run; None: its first
    script: Path | None = None  # a CSV file of times, s, and commands; None: a tour
    seconds: float = 20.0
    pace: Literal["real", "lockstep"] = "lockstep"
    runtime: Literal["jax", "numpy"] = "jax"
    video: bool = True
    meshes: Path | None = None  # a folder of the robot's, to be seen in the place of colliders
    out: Path | None = None  # where drive.npz, .csv, .png, .mp4 go; None: beside the artefact


def main(args: Args) -> None:
    path = wanted(args)
    found = artefact.read(path)
    if not found.spec.control_dt <= args.seconds <= LONGEST:
        raise ValueError(f"--seconds is {args.seconds:g}; it takes at least a step, at most a day.")
    if args.script:  # whose faults are better told before it drives, as those of meshes are
        runner.script(found.spec, args.script)
    out = args.out or path.parent
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        name = free(out)
        script = args.script or tour(out / f"{name}.csv", len(found.spec.command))
    except OSError as error:
        raise ValueError(
            f"{out} cannot be written to: {error.strerror}. Name another folder with --out."
        ) from None
    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    if args.meshes:
        model = play.looks(envs.make_task(found.spec.name), args.meshes)
    well = together(path, script, out / f"{name}.npz", args)
    log = dict(np.load(out / f"{name}.npz"))
    achieved = velocities(log["qpos"], log["qvel"])
    print(f"plot     {plot(out / f'{name}.png', found, log, achieved)}")
    if found.spec.command:
        off = np.sqrt(np.mean((achieved - log["command"]) ** 2, 0))
        told = (f"{x:.2f} {unit} {name}" for x, (name, unit) in zip(off, CHANNELS, strict=True))
        print(f"off by   {', '.join(told)}")
    if (short := args.seconds - len(achieved) * found.spec.control_dt) > 1e-6:
        print(f"fell     {short:.1f} s before the end")
    if args.video:
        captions = [caption(found, *row) for row in zip(log["command"], achieved, strict=True)]
        print(f"renders  {len(captions)} frames", flush=True)
        try:
            film, dt = out / f"{name}.mp4", found.spec.control_dt
            render.video(film, model, log["qpos"], dt, captions)
            print(f"video    {film}")
        except render.CannotRender as error:
            print(f"no video: {error}")
    if not well:
        sys.exit(1)  # the policy has said why


def wanted(args: Args) -> Path:
    """The artefact to drive."""
    path = args.run
    if path.is_dir() or path.suffix != ".zip":
        seeds = runs.read_manifest(path)["seeds"]
        seed = seeds[0] if args.seed is None else args.seed
        if seed not in seeds:
            raise ValueError(f"{path} has no seed {seed}; it has {seeds}.")
        path = artefact_of(path, seed)
        if not path.exists():
            raise ValueError(
                f"{args.run} has no {path.name}: training writes it where the policy reads only "
                "what a robot measures. A Go1's does with --env.measured, a teacher's does not."
            )
    elif args.seed is not None:
        raise ValueError(f"--seed is for the directory of a run; {path} is none.")
    return path


def free(out: Path) -> str:
    """`drive`, or the first of drive-2, drive-3, ... that no file in `out` has for a stem."""
    taken = {path.stem for path in out.iterdir()}
    return next(x for i in count(1) if (x := f"drive-{i}" if i > 1 else "drive") not in taken)


def together(
    path: Path, script: Path, log: Path, args: Args, *more: str, limits: Sequence[str] = ()
) -> bool:
    """Run the robot, with `more` flags, and its policy against each other, and wait for both.

    Whether the policy had it in hand to the end.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    bridge = [sys.executable, "-m", "rl.bridge"]
    robot = subprocess.Popen([
        *bridge, "sim", str(path), "--address", address, "--pace", args.pace,
        "--seconds", str(args.seconds), "--log", str(log), *more,
    ])  # fmt: skip
    policy = subprocess.Popen([
        *bridge, "run", str(path), "--robot", address, "--script", str(script),
        "--runtime", args.runtime, *limits,
    ])  # fmt: skip
    try:
        codes = [process.wait() for process in (robot, policy)]  # each gives up a lost other
    finally:
        for process in (robot, policy):
            process.kill()
            process.wait()
    if codes[0]:
        raise ValueError("The robot and its policy did not come to the end; they say why above.")
    return not codes[1]


def tour(path: Path, size: int) -> Path:
    """A script that shows what a walker does; of zeros for a robot with other commands."""
    rows = TOUR if size == len(TOUR[0]) - 1 else [(0.0, *[0.0] * size)]
    runs.write(path, "".join(",".join(map(str, row)) + "\n" for row in rows).encode())
    return path


def velocities(qpos: np.ndarray, qvel: np.ndarray) -> np.ndarray:
    """Of the trunk [T, 3], in its own frame: forward, left, m/s, and turning left, rad/s."""
    achieved = np.zeros((len(qpos), 3))
    inverse, local = np.zeros(4), np.zeros(3)
    for t, (pose, speed) in enumerate(zip(qpos, qvel, strict=True)):
        mujoco.mju_negQuat(inverse, pose[3:7])
        mujoco.mju_rotVecQuat(local, speed[:3], inverse)
        achieved[t] = *local[:2], speed[5]
    return achieved


def caption(found: Artefact, asked: np.ndarray, achieved: np.ndarray) -> str:
    """What is asked, and in brackets what came of it; nothing for a task without a command."""
    return "   ".join(
        f"{c.name} {x:+.1f} ({round(y, 1) + 0:+.1f}) {c.unit}"
        for c, x, y in zip(found.spec.command, asked, achieved, strict=False)
    )


def plot(path: Path, found: Artefact, log: dict[str, Any], achieved: np.ndarray) -> Path:
    """Commanded and achieved velocity, feet on the ground, and torques against their limits."""
    from matplotlib.figure import Figure  # slow to import

    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    t = found.spec.control_dt * np.arange(len(achieved))
    figure = Figure(figsize=(9, 9), layout="constrained")
    axes = figure.subplots(5, 1, sharex=True)
    for i, (name, unit) in enumerate(CHANNELS):
        axes[i].plot(t, achieved[:, i], lw=0.8, label="achieved")
        if found.spec.command:
            axes[i].step(t, log["command"][:, i], where="post", color="k", lw=1, label="commanded")
        axes[i].set_ylabel(f"{name}\n{unit}")
    axes[0].legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False)
    limbs: dict[str, Any] = {}  # a leg's geoms begin with its name, as FR and FR_calf
    for geom in np.flatnonzero(model.geom_bodyid):
        on = log["contact"][:, geom] > 0
        limb = model.geom(geom).name.partition("_")[0]
        limbs[limb] = limbs.get(limb, False) | on
    for row, on in enumerate(limbs.values()):
        axes[3].fill_between(t, row, row + 0.8, where=on, step="post", lw=0)
    axes[3].set_yticks(np.arange(len(limbs)) + 0.4, limbs)
    axes[3].set_ylim(0, len(limbs))
    axes[3].set_ylabel("contacts")
    limits = np.array([actuator.torque for actuator in found.spec.actuators])
    axes[4].plot(t, 100 * np.abs(log["torque"] / limits), lw=0.5)
    axes[4].set_ylabel("torque,\n% of limit")
    axes[4].set_xlabel("s")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return path


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave neither process behind
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.drive")))
