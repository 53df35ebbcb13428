"""python -m benchmarks run SUITE: make the runs of a suite that are not done."""

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Literal

import psutil
import tyro

from benchmarks import stop
from benchmarks import suite as suites
from benchmarks.engines.cluster import Cluster
from benchmarks.engines.engine import Engine, Needs, site
from benchmarks.engines.local import Inline, Processes
from benchmarks.engines.slurm import JOBS, Jobs, Slurm
from benchmarks.measurements import SBX
from benchmarks.plan import Unit, units
from benchmarks.process import Python, peers_python
from benchmarks.scores import gathered, score
from benchmarks.suite import Suite, arguments, pairs_of
from benchmarks.sweep import Progress, Wanted, begin, sweep
from benchmarks.table import START, Rates, Watch, planned
from benchmarks.tables import decisions
from rl import manifest


@dataclass(frozen=True)
class Args:
    """Make the runs of a suite: what is done is skipped, what died goes on from its checkpoint."""

    suite: tyro.conf.Positional[str]  # its name, or the path of a .toml
    engine: Literal["inline", "process", "ray", "submitit"] = "process"
    jobs: int = 0  # runs at a time; 0: as cores and memory allow, and 100 jobs of SLURM
    seeds: int = 0  # of each task and agent; 0: as the suite has it
    only: tuple[str, ...] = ()  # tasks and agents, by their names; none: all
    stop: Literal["", "adastop"] = ""  # adastop: seeds in groups, until it is known who is better
    retries: int = 2  # times that a run which was killed is taken up again
    dry_run: bool = False  # show what would be done
    address: str = ""  # of a Ray cluster; none: $RAY_ADDRESS, or a cluster of this machine's own
    gpus: float = 0.0  # of a run, on a cluster; Ray takes a share of one, too
    slurm: Slurm = field(default_factory=Slurm)
    peers: Path = field(default_factory=lambda: Path(peers_python()))
    runs: Path = Path("runs")


def main(args: Args) -> None:
    suite = suites.read(args.suite)
    if args.seeds < 0:
        raise ValueError(f"--seeds is {args.seeds}; it takes a count, or 0 for the suite's.")
    if args.seeds and args.stop:
        raise ValueError(f"--seeds goes without --stop {args.stop}, which says how many it takes.")
    progress = carry_out(args, suite, lambda: arms(suite, args))
    if args.dry_run:
        if suite.about:
            print(suite.about)
        return
    if args.stop:
        done = score(gathered(suite, args.runs).results, suite)
        print(f"\n{decisions(done, pairs_of(suite), suite.adastop).markdown()}", flush=True)
    conclude(progress)


def carry_out(args: Args, suite: Suite, wanted: Callable[[], Wanted]) -> Progress:
    """Make what is wanted, or show what would be made."""
    if args.jobs < 0 or args.retries < 0:
        raise ValueError("--jobs and --retries take no number below 0.")
    if flag := odd(args):
        raise ValueError(f"{flag} says nothing to --engine {args.engine}.")
    usable(args.runs)
    jobs, before = room(suite, args), begin(units(suite, wanted(), args.runs))
    rates = Rates(suite, before.done, 0.0 if args.engine == "inline" else START)
    print(planned(suite, before, rates, jobs), flush=True)
    missing = ", ".join(lacking(before.waiting))
    if args.dry_run:
        if missing:
            print(f"to be made before, as its runs read it: {missing}")
        return before
    if missing:
        raise ValueError(
            f"Runs of {suite.name} read what is not there: {missing}. Make it first.\n{suite.about}"
        )
    if any(unit.is_foreign for unit in (*before.waiting, *before.elsewhere)):
        Python(str(args.peers), SBX, "--peers").versions()  # before anything runs: is it there?
        os.environ["SPEED_PEERS"] = os.path.abspath(args.peers)
    engine = engine_of(args, suite, jobs)
    with Watch(suite, rates, engine.jobs, before.done) as watch:
        return sweep(
            suite, args.runs, engine, before, wanted=wanted, show=watch.show, retries=args.retries
        )


def odd(args: Args) -> str:
    """A flag of another engine than the one that is chosen, if there is any."""
    given = {
        "--address": bool(args.address) and args.engine != "ray",
        "--gpus": bool(args.gpus) and args.engine not in ("ray", "submitit"),
        "--slurm": args.slurm != Slurm() and args.engine != "submitit",
    }
    return next((flag for flag, is_odd in given.items() if is_odd), "")


def lacking(waiting: Iterable[Unit]) -> list[str]:
    """Files that these runs read and that are not there."""
    ours = [arguments(unit.program, unit.words) for unit in waiting if not unit.is_foreign]
    found = (item for args in ours for item in vars(args).items() if item[0] not in manifest.HOST)
    return sorted({str(x) for _, x in found if isinstance(x, Path) and not x.exists()})


def arms(suite: Suite, args: Args) -> Wanted:
    """The seeds of each task and agent that are asked for."""
    for name in args.only:
        if name not in suite.tasks and name not in suite.agents:
            raise ValueError(f"--only {name}: suite {suite.name} has no such task or agent.")
    tasks = [name for name in suite.tasks if name in args.only] or list(suite.tasks)
    agents = [name for name in suite.agents if name in args.only] or list(suite.agents)
    learning = [name for name in agents if not suite.agents[name].published]
    if args.stop == "adastop":
        done = score(gathered(suite, args.runs).results, suite)
        returns = {arm: done.returns(*arm).tolist() for arm in done.runs}
        every = stop.wanted(suite, returns)
        return {arm: every[arm] for arm in product(tasks, learning)}
    return dict.fromkeys(product(tasks, learning), range(args.seeds or suite.seeds))


def usable(folder: Path) -> None:
    """Raise ValueError where no run can be put."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ValueError(f"--runs {folder}: {there} is no directory that can be written to.")


def room(suite: Suite, args: Args) -> int:
    """Runs at a time: as many as are asked for, or as cores and memory have room for."""
    if args.engine == "inline":
        return 1
    if args.engine == "submitit" and not args.slurm.local:
        return args.jobs or JOBS
    cores = len(os.sched_getaffinity(0)) // suite.threads
    fit = int(psutil.virtual_memory().available / 1e9 / suite.memory_gb)
    return args.jobs or max(min(cores, fit), 1)


def engine_of(args: Args, suite: Suite, jobs: int) -> Engine:
    needs = Needs(suite.threads, suite.memory_gb, args.gpus)
    match args.engine:
        case "inline":
            return Inline(site(needs))
        case "process":
            return Processes(jobs, site(needs))
        case "ray":
            address = args.address or os.environ.get("RAY_ADDRESS", "")
            return Cluster(args.jobs if address else jobs, needs, address, args.runs)
        case "submitit":
            return Jobs(jobs, needs, args.slurm, args.runs / suite.name)


def conclude(*parts: Progress) -> None:
    """Say what failed and where to look; the exit status tells it too."""
    lines = [f"  {unit.name}: {why}" for part in parts for unit, why in part.failed.items()]
    if lines:
        count = sum(len(part.units) for part in parts)
        sys.exit("\n".join([f"{len(lines)} of {count} runs failed:", *lines]))
