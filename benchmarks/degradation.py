"""What becomes of policies as their wire gets worse: python -m benchmarks.degradation

Each robot's episodes in lock step, from the same starts under the same commands, with commands that
come later and later, and with more and more states and commands that never do.  The picture is of
all that are on record.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro
from matplotlib.figure import Figure

import envs
from benchmarks import armstep, lockstep, rows
from benchmarks.process import ROOT, guard
from envs.locomotion.joystick import Joystick
from experiments import cli, play
from experiments.deploy import artefact_of

POLICIES = ROOT / "benchmarks" / "policies"
ROBOTS = (
    "go2-joystick-flat", "panda-reach", "panda-pick-cube", "panda-push-t", "panda-peg-insertion",
)  # fmt: skip
DELAYS = 0, 10, 20, 40, 60, 80  # ms, from a state to its command
LOSSES = 0, 2, 5, 10, 20  # per cent, of states and of commands
KEPT = "measured", "history", "action_scale", "playground_timing"  # of the task that was trained on


@dataclass(frozen=True)
class Args:
    """Measure how returns and successes fall."""

    robots: tuple[str, ...] = ROBOTS
    episodes: int = 20  # at each delay and each loss
    name: str = "bridge/degradation"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"
    picture: Path = ROOT / "docs" / "degradation.png"


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    about = rows.about()
    for robot in args.robots:
        told = measured(robot, args.episodes)
        rows.write(args.results, {"what": f"{args.name}-{robot}", **told, **about})
    found = {x: told for x in ROBOTS if (told := rows.read(args.results).get(f"{args.name}-{x}"))}
    picture(found).savefig(args.picture, dpi=120)


def measured(robot: str, episodes: int) -> dict[str, Any]:
    """What a robot reaches at each delay and each loss: a return, or a share of successes."""
    run, walks = POLICIES / robot, robot == ROBOTS[0]
    env, policy, params = play.load(run)
    key, path = jax.random.key(play.EVAL_SEED), artefact_of(run, 0)
    if walks:
        task = env.task
        assert isinstance(task, Joystick)
        fields: dict[str, Any] = {field: getattr(task, field) for field in KEPT}
        dt = 1 / lockstep.HZ
        task = Joystick(task.robot, task.ground, noise=0.0, timestep=dt, **fields)
        env = envs.simulate(task, "native")
        inside = lockstep.lived(env, policy, params, key, episodes)
    else:
        task, inside = None, armstep.lived(env, policy, params, key, episodes)

    def reached(*flags: str) -> float:
        if task is None:
            return float(np.mean(armstep.driven(env, path, inside, *flags)["success"]))
        told = lockstep.driven(task, env, path, inside, lockstep.HZ, *flags)
        return lockstep.summary(told)["return"]

    delay = {str(ms): reached("--delay", str(1e-3 * ms)) for ms in DELAYS}
    loss = {str(share): reached("--loss", str(1e-2 * share)) for share in LOSSES}
    print(f"{robot:22} delay {delay}\n{'':22} loss  {loss}", flush=True)
    return {"of": "return" if walks else "success", "episodes": episodes, "delay_ms": delay,
            "loss_percent": loss}  # fmt: skip


def picture(found: dict[str, dict[str, Any]]) -> Figure:
    """Both curves of each robot's row, as shares of what it reaches on a good wire."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    labels = {"delay_ms": "commands late by, ms", "loss_percent": "states and commands lost, %"}
    for column, (name, label) in enumerate(labels.items()):
        axes = figure.add_subplot(1, 2, column + 1)
        for robot, told in found.items():
            best = max(told["delay_ms"]["0"], 1e-9)
            axes.plot([float(x) for x in told[name]], [y / best for y in told[name].values()],
                      "o-", ms=3, lw=1.2, label=f"{robot}, {told['of']}")  # fmt: skip
        axes.set_xlabel(label)
        axes.set_ylim(-0.05, 1.15)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("of that of a good wire")
    figure.axes[1].legend(fontsize=7, loc="lower left")
    return figure


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.degradation")))
