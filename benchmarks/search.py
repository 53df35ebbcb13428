"""python -m benchmarks search SUITE --agent NAME --over FLAG=A,B ...: settings of an agent, tried.

Every combination, or as many random ones, learns from a few seeds; the best of them learns again
from fresh ones: the best of many scores higher in the search than it is worth.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from benchmarks import run, suite
from benchmarks.scores import Scores, gathered, score
from benchmarks.suite import Suite
from benchmarks.sweep import Progress
from benchmarks.tables import TIMES, Table, between, number
from rl import manifest, stats
from rl import runs as files

OWN = "as-it-is"  # the suite's own setting, which is tried too


@dataclass(frozen=True)
class Args(run.Args):
    """Try settings of an agent of a suite, and the best of them again on fresh seeds."""

    agent: str = ""  # of the suite
    over: tuple[str, ...] = ()  # FLAG=A,B,C; with --random FLAG=LOW..HIGH or FLAG=LOW..HIGH:log
    random: int = 0  # combinations drawn at random; 0: all there are
    draw_seed: int = 0  # of those
    seeds: int = 2  # of each combination
    fresh: int = 5  # seeds after those, of the best and of the suite's own setting


def main(args: Args) -> None:
    base = suite.read(args.suite)
    own = [name for name, agent in base.agents.items() if agent.experiment]
    if args.agent not in own:
        raise ValueError(f"--agent {args.agent!r}: it takes one of {', '.join(own)}.")
    if args.stop or min(args.seeds, args.fresh) < 1:
        raise ValueError("A search takes at least 1 of --seeds and --fresh, and no --stop.")
    if args.random < 0:
        raise ValueError(f"--random is {args.random}; it takes a count, or 0 for all there are.")
    trial = trials(base, args)
    suite.check(trial, f"--over of {args.agent}")
    parts: list[Progress] = []

    def make(agents: Iterable[str], seeds: range) -> Scores:
        """The scores of these seeds, once they are there; a setting may fail."""
        wanted = dict.fromkeys(product(trial.tasks, agents), seeds)
        parts.append(run.carry_out(args, trial, lambda: wanted))
        found = gathered(trial, args.runs).results
        return score([r for r in found if r.seed in seeds and r.agent in agents], trial)

    first = make(trial.agents, range(args.seeds))
    if args.dry_run:
        return
    whole = [agent for agent in trial.agents if is_whole(first, agent, trial, args.seeds)]
    if not whole:
        run.conclude(*parts)
    rank = {agent: mean(first, agent) if agent in whole else -np.inf for agent in trial.agents}
    ranked = sorted(rank, key=lambda agent: -rank[agent])
    print(f"\nthe best is {ranked[0]}; again, from fresh seeds", flush=True)
    again = make({ranked[0]: 0, OWN: 0}, range(args.seeds, args.seeds + args.fresh))
    again = replace(again, ranges=again.ranges | first.ranges)  # where the suite has none
    text = table(first, again, ranked).markdown() + "\n"
    path = args.runs / trial.name / "search.md"
    files.write(path, text.encode())
    print(f"\n{text}\nsearch   {path}")
    run.conclude(*parts)


def trials(base: Suite, args: Args) -> Suite:
    """The suite whose agents are the settings to try, the suite's own first."""
    agent = base.agents[args.agent]
    program, words, _ = suite.resolve(base, args.agent, next(iter(base.tasks)))
    config = dict(manifest.flat(manifest.plain(suite.arguments(program, words))))
    real = {flag for flag, value in config.items() if isinstance(value, float)}
    made, found = {OWN: agent}, settings(args, real)
    for setting in found:
        name = ",".join(f"{flag}={value}" for flag, value in setting.items())
        switches = {"true": True, "false": False}
        flags = {flag: switches.get(value.lower(), value) for flag, value in setting.items()}
        flags = agent.flags | suite.settings(flags, "--over")
        made[re.sub(r"[^\w.,=+-]", "-", name)] = replace(agent, flags=flags)
    if len(made) <= len(found):
        print(f"note: {len(made) - 1} of {len(found)} settings differ")
    about = f"Settings of {args.agent} on {base.name}."
    tasks = {name: task for name, task in base.tasks.items() if name in args.only or not args.only}
    for name in args.only:
        if name not in base.tasks:
            raise ValueError(f"--only {name}: suite {base.name} has no such task.")
    name = f"{base.name}-search-{args.agent}"
    return replace(base, name=name, about=about, tasks=tasks, agents=made, pairs=())


def settings(args: Args, real: Collection[str] = ()) -> list[dict[str, str]]:
    """Values of each flag to try together; `real` are flags that take any number."""
    flags: dict[str, str] = {}
    for one in args.over:
        flag, _, values = one.partition("=")
        flags[flag] = values
    if not flags or not all(flags.values()) or len(flags) < len(args.over):
        raise ValueError("--over takes FLAG=A,B,C, each flag once.")
    if not args.random:
        if wide := [flag for flag, values in flags.items() if ".." in values]:
            raise ValueError(f"--over {wide[0]}={flags[wide[0]]} is a range: give --random too.")
        every = product(*(values.split(",") for values in flags.values()))
        return [dict(zip(flags, values, strict=True)) for values in every]
    rng = np.random.default_rng(args.draw_seed)
    return [
        {flag: draw(flag, values, rng, real) for flag, values in flags.items()}
        for _ in range(args.random)
    ]


def draw(flag: str, values: str, rng: np.random.Generator, real: Collection[str]) -> str:
    """One of the values A,B,C, or a number of LOW..HIGH or LOW..HIGH:log.

    It is whole if these are, unless the flag is a real one.
    """
    if ".." not in values:
        return str(rng.choice(values.split(",")))
    ends, _, scale = values.partition(":")
    try:
        low, high = map(float, ends.split(".."))
        if scale not in ("", "log") or not (0 < low < high if scale else low < high):
            raise ValueError
    except ValueError as error:
        raise ValueError(
            f"--over {flag}={values}: a range is LOW..HIGH or, above 0, LOW..HIGH:log; LOW is less."
        ) from error
    integer = flag.replace("-", "_") not in real and all(
        end.lstrip("-").isdigit() for end in ends.split("..")
    )
    if integer and not scale:
        return str(rng.integers(int(low), int(high) + 1))
    drawn = np.exp(rng.uniform(*np.log([low, high]))) if scale else rng.uniform(low, high)
    return f"{drawn:.0f}" if integer else f"{drawn:.3g}"


def is_whole(scores: Scores, agent: str, trial: Suite, seeds: int) -> bool:
    """Whether a setting has all its runs: one that fails on some seeds is none to choose."""
    return all(len(scores.runs.get((task, agent), ())) == seeds for task in trial.tasks)


def mean(scores: Scores, agent: str) -> float:
    return float(scores.normalised(agent, scores.common([agent])).mean())


def table(first: Scores, again: Scores, ranked: Sequence[str]) -> Table:
    """Every setting by its score, and on fresh seeds what was chosen and what was there before."""
    rows = []
    for agent in ranked:
        cells = []
        for scores in (first, again):
            found = scores.normalised(agent, scores.common([agent]))
            if not found.size:
                cells.append("failed" if scores is first or agent in (ranked[0], OWN) else "")
                continue
            low, high = stats.bootstrap(stats.mean, found, times=TIMES)
            cells.append(f"{number(found.mean())} {between(low, high)} ({len(found)})")
        rows.append((agent, *cells))
    note = (
        "Mean over tasks and seeds of returns in units of the suite's ranges, 95% bootstrap "
        "interval and number of seeds. The first is what the choice was made by, and so too good; "
        "fresh seeds tell what it is worth."
    )
    return Table("Search", ("setting", "in the search", "on fresh seeds"), rows, note)
