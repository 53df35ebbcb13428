"""How well a run's policy walks: python -m benchmarks.walking runs/ppo

Return, how far off its commands it is, and how often it falls, over many episodes at once; and
after how long its training had come to a return.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
import tyro

import envs
from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard
from envs.locomotion.joystick import Joystick
from envs.locomotion.push import Pushes
from envs.locomotion.sim_to_real import KICKS
from envs.simulation import Simulation
from experiments import cli, play
from rl import runs
from rl.policy import Policy
from rl.types import Params


@dataclass(frozen=True)
class Args:
    """Judge a policy that walks on command."""

    run: tyro.conf.Positional[Path]
    episodes: int = 512
    seed: int | None = None  # of the run; None: its first
    physics: Literal["native", "mjx", "warp"] = "native"
    kicked: bool = False  # with Playground's kicks
    ground: Literal["", "flat", "rough"] = ""  # the task's if empty
    level: int = -1  # of rough ground; -1: any
    timestep: float = 0.0  # s, of physics; 0: the task's
    target: float = 20.0  # a return: when its training came to it
    name: str = ""  # of a row to write
    results: Path = ROOT / "benchmarks" / "results" / "walking.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "episodes")
    about = rows.about()
    env, policy, params = play.load(args.run, args.seed)
    if not isinstance(env.task, Joystick):
        raise Failed(f"{args.run} is no run of a joystick task.")
    task = changed(env.task, args)
    found, facts = judged(envs.simulate(task, args.physics), policy, params, args.episodes)
    facts |= {
        "env": runs.read_manifest(args.run)["env"],
        "ground": task.ground,
        "physics": args.physics,
        "kicked": bool(task.pushes),
        "level": args.level,
        "velocity_error": rms(found.metrics["velocity_error2"], found.lengths),  # m/s
        "turn_error": rms(found.metrics["turn_error2"], found.lengths),  # rad/s
        "falls": facts.pop("ended_early"),
        "reached": reached(args.run, args.target),
    }
    tell(facts, about, args.name, args.results)


def judged(
    env: Simulation, policy: Policy, params: Params, episodes: int
) -> tuple[Any, dict[str, Any]]:
    """`play.judged` on the host, and what of it is told of any task."""
    try:
        found = jax.device_get(
            jax.jit(lambda params: play.judged(env, policy, params, episodes))(params)
        ).sound()
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        raise Failed(f"{episodes} episodes do not fit in memory: lower --episodes.") from error
    early = float((found.lengths < env.horizon).mean())
    told = {"episodes": episodes, "return": float(found.returns.mean()), "ended_early": early}
    return found, told


def tell(facts: dict[str, Any], about: dict[str, Any], name: str, path: Path) -> None:
    """Print facts, and write them with `rows.about` as a row of `path` if it has a name."""
    print(json.dumps(facts))
    if name:
        rows.write(path, {"what": name, **facts, **about})


def changed(task: Joystick, args: Args) -> Joystick:
    """The task of the run, elsewhere, kicked or not."""
    told: dict[str, Any] = {"ground": args.ground, "timestep": args.timestep}
    pushes = KICKS if args.kicked else Pushes()
    return replace(
        task, level=args.level, pushes=pushes, **{name: x for name, x in told.items() if x}
    )


def reached(run: Path, target: float) -> dict[str, float] | None:
    """The first of a run's evaluations, as it trained, with such a return or more."""
    for row in runs.read_rows(run / "evals.jsonl"):
        if np.mean(row.get("eval_return", -np.inf)) >= target:  # lacking: it was no number
            return {"return": target, "step": row["step"], "wall_s": row["wall_s"]}
    return None


def rms(squares: np.ndarray, lengths: np.ndarray) -> float:
    """Root of the mean over all steps of episodes with these means."""
    return float(np.sqrt(np.average(squares, weights=lengths)))


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.walking")))
