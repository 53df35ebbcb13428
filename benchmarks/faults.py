"""All faults of the plan, over all robots, many times: python -m benchmarks.faults

Writes a row of results, and the table of docs/faults.md.  A fault that does not end where the plan
(benchmarks/fault_plan.py) says, and in time, or a command beyond limits, is an error.
"""

import multiprocessing
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from benchmarks import rows
from benchmarks.fault_flight import Flown, Plan, fly
from benchmarks.fault_plan import ALL, ANY, CASES, GOES, WALKERS, Case
from benchmarks.process import ROOT, guard
from experiments import cli
from rl import artefact

POLICIES = ROOT / "benchmarks" / "policies"
WALKER = "go2-joystick-flat"
ARMS = "panda-reach", "panda-pick-cube", "panda-push-t", "panda-peg-insertion"
BATCH = 20  # episodes that are lived by the same processes
SECONDS = {True: 2.5, False: 4.0}  # of an episode of a walker, of an arm
RATE = 500.0  # ticks of a walker's wire a second; an arm's are its policy's


@dataclass(frozen=True)
class Args:
    """Have everything go wrong, and see what comes of it."""

    episodes: int = 1000
    only: str = ""  # cases whose name has this
    jobs: int = 2  # batches at once
    seed: int = 0
    name: str = "bridge/faults"
    results: Path = ROOT / "benchmarks" / "results" / "bridge.jsonl"
    page: Path | None = None  # to write the table to, as docs/faults.md has it


def plans(args: Args) -> Iterator[Plan]:
    """Batches: half of the episodes are a walker's, each robot has its cases in turn."""
    arms = args.episodes // 2 // len(ARMS)
    for number, name in enumerate((WALKER, *ARMS)):
        walks = name == WALKER
        path = POLICIES / name / "artefact-0.zip"
        rate = RATE if walks else 1 / artefact.read(path).spec.control_dt
        rng = np.random.default_rng((args.seed, number))
        mine = [case for case in CASES if case.robots == ALL or (case.robots == WALKERS) == walks]
        mine = [case for case in mine if args.only in case.name]
        count = args.episodes - arms * len(ARMS) if walks else arms
        turns = [mine[i] for _ in range(count // max(len(mine), 1) + 1)
                 for i in rng.permutation(len(mine))][:count]  # fmt: skip
        for first in range(0, len(turns), BATCH):
            seed = args.seed + 1000 * number + first
            yield Plan(path, turns[first : first + BATCH], SECONDS[walks], rate, seed)


def main(args: Args) -> None:
    cli.at_least(len(ARMS) * 2, args, "episodes")
    cli.at_least(1, args, "jobs")
    about, all_flown = rows.about(), []
    # Processes: who judges one batch would keep the pilot of another from its word.
    pool = ProcessPoolExecutor(args.jobs, multiprocessing.get_context("spawn"))
    try:
        for flown in pool.map(fly, plans(args)):
            all_flown += flown
            bad = [x for x in flown if x.late or x.broken]
            print(f"{len(all_flown):4} of {args.episodes}  {flown[0].robot:20} "
                  f"{len(bad)} not as planned", flush=True)  # fmt: skip
            for x in bad:
                print(f"     {x.case.name}: {x.end} after {x.took:.3f} s {x.broken}", flush=True)
    finally:
        pool.shutdown(cancel_futures=True)
    table, wrong = told(all_flown), sum(bool(x.late or x.broken) for x in all_flown)
    facts = {"episodes": len(all_flown), "cases": len({x.case.name for x in all_flown})}
    facts |= {"wrong": wrong, "broken": Counter(y for x in all_flown for y in x.broken)}
    facts |= {"robots": Counter(x.robot for x in all_flown), "by_case": table}
    rows.write(args.results, {"what": args.name, **facts, **about})
    if args.page:
        args.page.write_text(page(facts, table))
    if wrong:
        sys.exit(f"error: {wrong} of {len(all_flown)} episodes did not end as planned.")


def told(flown: list[Flown]) -> list[dict[str, Any]]:
    """A row of each case."""
    by_case: dict[Case, list[Flown]] = defaultdict(list)
    for x in flown:
        by_case[x.case].append(x)
    table = []
    for case in [case for case in CASES if case in by_case]:
        mine = by_case[case]
        took = [x.took for x in mine if np.isfinite(x.took)]
        table.append({
            "case": case.name, "episodes": len(mine), "ends": Counter(x.end for x in mine),
            "wrong": sum(bool(x.late or x.broken) for x in mine),
            "took_ms": round(1e3 * max(took, default=0.0), 1), "note": case.note,
            "beyond": round(max(x.beyond for x in mine), 4),
            "must": must(case),
        })  # fmt: skip
    return table


def must(case: Case) -> str:
    """Where a case is to end, and when, in words."""
    if case.ends == ANY:
        return "within limits"
    if case.ends == GOES:
        return "goes on"
    times = [f"{1e3 * case.within:g} ms"] * (case.within > 0)
    times += [f"{case.periods:g} periods"] * (case.periods > 0)
    return f"{' or '.join(case.ends)} in {' + '.join([*times, f'{case.ticks} ticks'])}"


def page(facts: dict[str, Any], table: list[dict[str, Any]]) -> str:
    """The page of docs."""
    head = (ROOT / "docs" / "faults.md").read_text().split(BEGINS)[0]
    lines = [
        "| what goes wrong | must end | ended | took at most | episodes | wrong |",
        "|---|---|---|---|---|---|",
    ]
    for row in table:
        ended = ", ".join(f"{state or 'over'} {n}" for state, n in row["ends"].most_common())
        note = f" ({row['note']})" if row["note"] else ""
        took = f"{row['took_ms']:g} ms" if row["took_ms"] else ""
        lines.append(f"| {row['case']}{note} | {row['must']} | {ended} | {took} "
                     f"| {row['episodes']} | {row['wrong']} |")  # fmt: skip
    told = (
        f"{facts['episodes']} episodes of {facts['cases']} faults, {facts['wrong']} not as planned."
    )
    return f"{head}{BEGINS}\n{told}\n\n" + "\n".join(lines) + "\n"


BEGINS = "<!-- made by benchmarks/faults.py -->"

if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.faults")))
