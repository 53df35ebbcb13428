"""Drive a trained robot: its artefact in one process, a simulated robot in another.

python -m experiments.drive runs/ppo

Neither process knows of training.  What comes of it is a video with the commands written into it
and a plot of what was asked for and what came of it, contacts and torques.  A walker does a tour,
an arm its task from one start after another.
"""

import contextlib
import errno
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

import mujoco
import numpy as np
import tyro

import envs
from envs import render
from envs.simulation import Simulation
from experiments import cli, drive_arm, drive_walker, play
from experiments.deploy import artefact_of
from rl import artefact, runs
from rl.artefact import Artefact
from rl.bridge import commands, wire
from rl.bridge.sim.simd import STARVED

WAIT = 60.0  # s for a policy to be ready, on a machine that has much else to do
LONGEST = 24 * 3600.0  # s, whose log fits in memory


@dataclass(frozen=True)
class Args:
    run: tyro.conf.Positional[Path]  # a run's directory, or an artefact
    seed: int | None = None  # of the run; None: its first
    script: Path | None = None  # a CSV file of times, s, and commands; None: a tour, or goals drawn
    seconds: float = 20.0  # of a walker; of an arm about, for its episodes are whole
    pace: Literal["real", "lockstep"] = "lockstep"
    runtime: Literal["jax", "numpy"] = "jax"
    video: bool = True
    meshes: Path | None = None  # a folder of the robot's, to be seen in the place of colliders
    out: Path | None = None  # where drive.npz, .csv, .png, .mp4 go; None: beside the artefact


class Driven(NamedTuple):
    """What came of a drive."""

    well: bool  # the policy was in control to the end
    film: Path  # of the video, which is written later
    qpos: np.ndarray  # [T, nq]
    captions: list[str]  # [T]
    marks: render.Marks = ()  # [T], if any


def main(args: Args) -> None:
    path = wanted(args)
    found = artefact.read(path)
    if not found.spec.control_dt <= args.seconds <= LONGEST:
        raise ValueError(f"--seconds is {args.seconds:g}; it takes at least a step, at most a day.")
    if args.script:  # whose faults are better told before it drives, as those of meshes are
        commands.script(found.spec, args.script)
    if args.video and args.meshes:
        play.looks(envs.make_task(found.spec.name), args.meshes)
    out = args.out or path.parent
    arm = drive_arm.arm_of(args.run, found.spec.name)
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        to = out / free(out)
    except OSError as error:
        raise ValueError(
            f"{out} cannot be written to: {error.strerror}. Name another folder with --out."
        ) from None
    made = handled(args, path, found, to, arm) if arm else walked(args, path, found, to)
    if args.video:
        filmed(args, found, made)
    if not made.well:
        sys.exit(1)  # the policy has said why


def walked(args: Args, path: Path, found: Artefact, to: Path) -> Driven:
    """A walker's tour, in TO.npz, .csv and .png."""
    script = drive_walker.tour(to.with_suffix(".csv"), len(found.spec.command), args.script)
    last = float(script.read_text().split()[-1].split(",")[0])
    if args.script and last > args.seconds:
        print(f"note     the script goes on to {last:g} s, the drive to --seconds {args.seconds:g}")
    well = together(path, script, to.with_suffix(".npz"), args)
    log = dict(np.load(to.with_suffix(".npz")))
    achieved = drive_walker.velocities(log["qpos"], log["qvel"])
    print(f"plot     {drive_walker.plot(to.with_suffix('.png'), found, log, achieved)}")
    if found.spec.command:
        off = np.sqrt(np.mean((achieved - log["command"]) ** 2, 0))
        each = zip(off, drive_walker.CHANNELS, strict=True)
        told = (f"{x:.2f} {unit} {name}" for x, (name, unit) in each)
        print(f"off by   {', '.join(told)}")
    dt = found.spec.control_dt
    if (short := round(args.seconds / dt) - len(achieved)) > 0:
        print(f"fell     {short * dt:.1f} s before the end")
    captions = [
        drive_walker.caption(found, *row) for row in zip(log["command"], achieved, strict=True)
    ]
    return Driven(well, to.with_suffix(".mp4"), log["qpos"], captions)


def handled(args: Args, path: Path, found: Artefact, to: Path, arm: Simulation) -> Driven:
    """Episodes of an arm's task, in the same."""
    lasts = arm.horizon * arm.control_dt
    count = max(round(args.seconds / lasts), 1)
    begun = drive_arm.starts(arm, count)
    first, script = drive_arm.written(to, begun, lasts, args.script)
    each = replace(args, seconds=lasts)
    more = "--starts", str(first)
    well = together(path, script, to.with_suffix(".npz"), each, *more)
    log = drive_arm.by_episode(dict(np.load(to.with_suffix(".npz"))), count)
    verdict = drive_arm.judged(arm, log["qpos"], log["qvel"], log["command"])
    print(f"plot     {drive_arm.plot(to.with_suffix('.png'), found, arm, log, verdict)}")
    print(f"success  {int(verdict.success[-1].sum())} of {count} episodes")
    qpos = drive_arm.line(log["qpos"])
    marks = [arm.task.marks(asked) for asked in drive_arm.line(log["command"])]
    captions = drive_arm.captions(found, log, verdict)
    return Driven(well, to.with_suffix(".mp4"), qpos, captions, marks)


def filmed(args: Args, found: Artefact, made: Driven) -> None:
    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    if args.meshes:
        model = play.looks(envs.make_task(found.spec.name), args.meshes)
    print(f"renders  {len(made.captions)} frames (--no-video: none)", flush=True)
    try:
        render.video(made.film, model, made.qpos, found.spec.control_dt, made.captions, made.marks)
        print(f"video    {made.film}")
    except render.CannotRender as error:
        print(f"no video: {error}")


def wanted(args: Args) -> Path:
    """The artefact to drive."""
    path = args.run
    if path.is_dir() or path.suffix != ".zip":
        told = runs.read_manifest(path)
        if told.get("physics") == "gymnasium":
            raise ValueError(f"{path} is of {told['env']}, of which no robot is known here.")
        seeds = told["seeds"]
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


def together(path: Path, script: Path, log: Path, args: Args, *more: str) -> bool:
    """Run the robot, with `more` flags, and its policy against each other, and wait for both.

    Whether the policy had it in hand to the end.
    """
    address = wire.free_address()
    bridge = [sys.executable, "-m", "rl.bridge"]
    begun: list[subprocess.Popen[bytes]] = []
    try:
        begun.append(robot := subprocess.Popen([
            *bridge, "sim", str(path), "--address", address, "--pace", args.pace,
            "--seconds", str(args.seconds), "--log", str(log), "--wait", str(WAIT), *more,
        ]))  # fmt: skip
        begun.append(policy := subprocess.Popen([
            *bridge, "run", str(path), "--robot", address, "--script", str(script),
            "--runtime", args.runtime,
        ]))  # fmt: skip
        code = policy.wait()
        end = robot.wait(WAIT)  # it gives up a lost policy sooner
    except subprocess.TimeoutExpired:  # but not one that never came
        code, end = 1, 1
    finally:
        for process in reversed(begun):
            process.terminate()  # it ends its own processes
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(WAIT)
            process.kill()
            process.wait()
    if end not in (0, STARVED):
        raise ValueError("The robot and its policy did not come to the end; they say why above.")
    return not (code or end)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave neither process behind
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.drive")))
