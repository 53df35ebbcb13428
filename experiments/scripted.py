"""A task's own program as a run: python -m experiments.scripted --agent.mistake 0.01

Nothing is learned.  What is left is a run like any other, to be judged, filmed, driven on a robot,
and built upon: --base of experiments.residual and residual_ppo takes it.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import jax
import tyro

import envs
from agents.scripted import Scripted
from experiments import cli, play
from experiments.deploy import Deployer, acted
from rl import resources
from rl.record import Record


@dataclass(frozen=True)
class Args:
    env: Any = field(default_factory=lambda: envs.make_task("panda-peg-insertion"))
    env_name: tyro.conf.Suppress[str] = "panda-peg-insertion"
    physics: Literal["auto", "native", "mjx", "warp"] = "auto"  # auto: native on CPU, else mjx
    threads: int = 0  # for physics and XLA alike; 0: all this process has
    eval_episodes: int = 100  # that it is judged by
    video: bool = True  # film an episode
    out: Path = Path("runs/scripted")  # directory of the run; -2, -3, ... if there is one already
    agent: Scripted = Scripted()


def shown(task: Any) -> Any:
    """`task` showing what its program reads; ValueError where it has none."""
    if not hasattr(task, "program"):
        able = ", ".join(n for n in envs.names() if hasattr(envs.make_task(n), "program"))
        raise ValueError(f"There is no program for this task; there are for {able}.")
    return replace(task, scripted=True)


def main(args: Args) -> None:
    resources.use_threads(args.threads)
    cli.at_least(1, args, "eval_episodes")
    args = replace(args, env=shown(args.env))
    env = envs.simulate(args.env, args.physics, threads=args.threads)
    policy = cli.found(args.agent, env.task).policy(False, env.action_dim)
    told = {"algorithm": "scripted", "env": args.env_name, "config": args, "seeds": [0],
            "horizon": env.horizon, "control_dt": env.control_dt}  # fmt: skip
    with Record(args.out, 0, **told) as log:
        log.save(0, ())
        worlds = jax.tree.map(lambda x: x[None], acted(env, policy, ()))
        Deployer(env, policy, args.env_name).write(log, (), worlds)
        log.update(status="done")
        play.conclude(log, args.eval_episodes, args.video)


if __name__ == "__main__":
    cli.run(main, Args)
