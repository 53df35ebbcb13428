"""The picture of a drive for a page: moments of it above the commands and what came of them.

python -m benchmarks.picture benchmarks/policies/go2-joystick-flat --to docs/demo.png
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np
import tyro
from matplotlib.figure import Figure

import envs
from benchmarks.process import guard
from envs import render
from envs.locomotion.joystick import Joystick
from experiments import cli, drive, drive_walker
from experiments.deploy import artefact_of
from rl import artefact, runs


@dataclass(frozen=True)
class Args:
    run: tyro.conf.Positional[Path]  # a run's directory
    to: Path = Path("picture.png")
    first: float = 3.0  # s, of the first moment
    every: float = 4.0  # s between two
    moments: int = 4


def main(args: Args) -> None:
    cli.at_least(1, args, "moments")
    facts = runs.read_manifest(args.run)
    if not isinstance(envs.make_task(facts["env"]), Joystick):
        raise ValueError(f"{args.run} is no run of a joystick task.")
    found = artefact.read(artefact_of(args.run, facts["seeds"][0]))
    with tempfile.TemporaryDirectory() as folder:
        drive.main(drive.Args(args.run, video=False, out=Path(folder)))
        log = dict(np.load(Path(folder) / "drive.npz"))
    dt, achieved = found.spec.control_dt, drive_walker.velocities(log["qpos"], log["qvel"])
    shown = [round((args.first + i * args.every) / dt) for i in range(args.moments)]
    if max(shown) >= len(achieved):
        raise ValueError(f"The drive has {len(achieved) * dt:.0f} s: lower --first or --every.")
    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    grid = figure.add_gridspec(4, args.moments, height_ratios=(3, 1, 1, 1))
    for column, picture in enumerate(render.frames(model, log["qpos"][shown])):
        axes = figure.add_subplot(grid[0, column])
        axes.imshow(picture)
        axes.set_title(f"{shown[column] * dt:.0f} s", fontsize=9)
        axes.axis("off")
    t = dt * np.arange(len(achieved))
    for row, channel in enumerate(found.spec.command):
        axes = figure.add_subplot(grid[1 + row, :])
        axes.plot(t, achieved[:, row], lw=0.8, label="achieved")
        axes.step(t, log["command"][:, row], where="post", color="k", lw=1, label="commanded")
        axes.set_ylabel(f"{channel.name}\n{channel.unit}", fontsize=8)
        axes.grid(alpha=0.3)
        axes.tick_params(labelsize=8, labelbottom=row == len(found.spec.command) - 1)
        if not row:
            axes.legend(loc="upper right", ncols=2, fontsize=8)
    figure.supxlabel("s", fontsize=8)
    figure.savefig(args.to, dpi=100)
    print(args.to)


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.picture")))
