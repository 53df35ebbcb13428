"""python -m benchmarks guides RUN: what comes of an IDQL run's policy as its plans are chosen.

Guides learn nothing: the parameters are the same, and so are the starts that they are judged by.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from agents.idql import IDQL
from envs import World
from experiments import cli, play
from rl import runs, stats
from rl.guidance import Best, Cdsa, Doit
from rl.types import Params

GUIDES = {
    "the first plan": Best(1), "the best of 8": Best(8), "one that is steered (DOIT)": Doit(),
    "of 8, moved to data (CDSA)": Cdsa(),
}  # fmt: skip


@dataclass(frozen=True)
class Args:
    """Judge a run's policy under each guide that its base allows."""

    run: tyro.conf.Positional[Path]  # of python -m experiments.finetune --agent idql
    episodes: int = 200


def main(args: Args) -> None:
    if args.episodes < 1:
        raise ValueError(f"--episodes is {args.episodes}; it needs at least 1.")
    env, _, params = play.load_all(args.run, most=1)
    found = runs.read_manifest(args.run)
    agent = cli.found(cli.learned_by(found["algorithm"], found["config"]["agent"]), env.task)
    if not isinstance(agent, IDQL):
        raise ValueError(f"{args.run} is of {type(agent).__name__}: guides choose IDQL's plans.")
    print("\n".join(table(agent, env, params, args.episodes)))


def table(agent: IDQL, env: World, params: list[Params], episodes: int) -> Iterator[str]:
    """A line a guide, as Markdown: successes, or returns where nothing is ever done, and their 95%
    interval over episodes; then which does not apply, and why."""
    notes = []
    yield "| what is done | comes to | 95% interval |"
    yield "|---|---|---|"
    for name, guide in GUIDES.items():
        try:
            policy = replace(agent, guide=guide).policy(False, env.action_dim)
        except ValueError as error:
            notes.append(f"not {name}: {str(error).partition(':')[0]}.")  # what mends it is above
            continue
        returns, successes = play.verdict(env, policy, params, episodes)
        told = ",.0f" if successes is None else ".0%"
        each = np.asarray(returns if successes is None else successes, float)[0][:, None]
        low, high = stats.interval_of_mean(each)[:, 0]
        yield f"| {name} | {each.mean():{told}} | {low:{told}} to {high:{told}} |"
    yield from notes
