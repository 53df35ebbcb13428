"""What the records of suites tell of the algorithm that a page is about."""

import tomllib
from pathlib import Path

import numpy as np

from benchmarks import collect
from benchmarks import suite as suites
from benchmarks.collect import Result
from rl import stats

# The first with an agent of a page's name draws it.
SUITES = ("gym", "quadruped", "offline", "offline_to_online", "imitation", "residual", "finetune",
          "pixels", "large_batch", "published")  # fmt: skip


def measured(results: Path, arms: dict[str, str]) -> dict[str, dict[str, list[Result]]]:
    """Of each page, its arm given, and task the seeds of the newest configuration.

    Tasks that can be done are scored by success.
    """
    whole: dict[str, dict[str, list[Result]]] = {}
    for name, arm in arms.items():
        path = results / f"{suite_of(arm)}.jsonl"
        found = collect.records(path) if path.exists() else []
        for task in sorted({x.task for x in found if x.agent == arm and x.steps}):
            every = [x for x in found if (x.agent, x.task) == (arm, task) and x.steps]
            newest = max(every, key=lambda x: (x.about.get("started") or "", x.identity)).identity
            seeds = sorted((x for x in every if x.identity == newest), key=lambda x: x.seed)
            if len({x.steps for x in seeds}) > 1:
                raise ValueError(f"{path}: seeds of {name} on {task} were judged at other steps.")
            done = all(x.success for x in seeds)
            whole.setdefault(name, {})[task] = [x.by("success") for x in seeds] if done else seeds
    return whole


def suite_of(name: str) -> str:
    """The suite that has an agent of this name, or none."""
    for suite in SUITES:
        if name in tomllib.loads((suites.SUITES / f"{suite}.toml").read_text("utf-8"))["agents"]:
            return suite
    return ""


def ends(tasks: dict[str, list[Result]]) -> str:
    """What the policies came to at the end, as a table."""
    head = "| task | seeds | steps | return, or success | 95% interval | commit |"
    lines = [head, "|---" * 6 + "|"]
    for task, seeds in tasks.items():
        finals = np.array([[np.mean(x.final)] for x in seeds])
        told = ".0%" if seeds[0].success else ",.0f"
        low, high = (format(x, told) for x in stats.interval_of_mean(finals)[:, 0])
        gits = [x.about.get("git") or {} for x in seeds]
        made = {(git.get("commit") or "unknown")[:7] + "+" * bool(git.get("dirty")) for git in gits}
        lines.append(
            f"| {task} | {len(seeds)} | {seeds[0].steps[-1]:,} | {finals.mean():{told}} "
            f"| {f'{low} to {high}' if len(seeds) > 1 else ''} | {', '.join(sorted(made))} |"
        )
    return "\n".join(lines)


def drawn(tasks: dict[str, list[Result]]) -> dict[str, list[Result]]:
    """Those that were judged on the way."""
    return {task: seeds for task, seeds in tasks.items() if len(seeds[0].steps) > 1}
