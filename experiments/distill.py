"""A policy that plans in many passes taught to one that plans in a single pass.

python -m experiments.distill --base runs/flow --data data/peg.npz

The student learns at what the data show (experiments/offline.py), of noise drawn anew, the plans
that the policy of a run makes of it (agents/one_step.py).  In the end both are judged from the same
starts, and timed.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from tyro.conf import Suppress

import envs
from agents.one_step import OneStep
from experiments import base, cli, host, offline, play
from experiments.base import Base
from experiments.course import Course
from experiments.start import Start
from rl import record, resources
from rl.data.dataset import Dataset
from rl.policy import Policy
from rl.types import Obs, Params

CALLS = 500  # that a plan's time is the median of
WARM = 20  # calls before them


@dataclass(frozen=True)
class Args(offline.Args):
    base: Path | None = None  # a run whose policy teaches; its task, unless --env names another
    start_from: Suppress[Path | None] = None
    take: Suppress[Literal["all", "actor"]] = "all"
    reward_scale: Suppress[float] = 1.0  # rewards are not learned from
    reward_shift: Suppress[float] = 0.0
    n_step: Suppress[int] = 1
    steps: int = 50_000  # of the student, per seed
    out: Path = Path("runs/distill")
    agent: OneStep = OneStep()


def course(args: Args, env: envs.World, data: Dataset, found: Base) -> Course:
    """Learning from data, with a teacher in every learner, and compared to it in the end."""
    begins = Start((base.learners(args, env, found),), found.facts)
    plain = offline.course(args, env, data, begins)

    def look(log: record.Record) -> None:
        plain.look(log)
        compare(args, env, found.params, log)

    return plain._replace(look=look)


def compare(args: Args, env: envs.World, teacher: Params, log: record.Record) -> None:
    """Say what teacher and student come to from the same starts, and how long a plan takes."""
    theirs, obs = args.agent.base.policy(False, env.action_dim), base.blank(env)
    _, mine, params = play.load_all(log.out, most=1)
    ends = play.verdict(env, theirs, [teacher], args.eval_episodes)
    told = {"teacher": side(*ends, times(theirs, teacher, obs, CALLS))}
    ends = log.manifest["eval_returns"], log.manifest.get("eval_successes")
    told["student"] = side(*ends, times(mine, params[0], obs, CALLS))
    log.update(distilled=told)
    score = "success" if "success" in told["teacher"] else "return"
    print("; ".join(f"{x} {score} {y[score]:.4g}, {y['plan_ms']:.2f} ms a plan"
                    for x, y in told.items()))  # fmt: skip


def side(returns: Any, successes: Any, took: np.ndarray) -> dict[str, float]:
    """What a manifest has of one of the two: means over episodes, and the median time."""
    told = {"return": float(np.mean(returns)), "plan_ms": 1e3 * float(np.median(took))}
    return told if successes is None else told | {"success": float(np.mean(successes))}


def times(policy: Policy, params: Params, obs: Obs, calls: int) -> np.ndarray:
    """Seconds [calls] that a policy takes for an episode's first step, in which it plans."""
    step = jax.jit(lambda *given: policy.step(*given)[:2])
    given = jax.device_put((params, policy.init(params), obs, jax.random.key(0)))
    return timed(lambda: jax.block_until_ready(step(*given)), calls)


def timed(call: Callable[[], object], calls: int) -> np.ndarray:
    """Seconds [calls] of each, once it is warm."""
    took = []
    for _ in range(WARM + calls):
        begun = time.perf_counter()
        call()
        took.append(time.perf_counter() - begun)
    return np.array(took[WARM:])


def main(args: Args) -> None:
    resources.use_threads(args.threads)
    env = envs.world(args.env, args.physics, threads=args.threads)
    found, data = base.base(args, env), offline.prepared(args, env)
    host.train(offline.check(args, env, data), env, lambda part: course(part, env, data, found))


if __name__ == "__main__":
    cli.run(main, Args)
