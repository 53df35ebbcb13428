"""Does an agent here learn as well as SBX's?  One setting for all tasks, the same steps and seeds.

python -m benchmarks.learning {ppo,sac} --peers .venv-peers/bin/python

Every finished run is a line of benchmarks/results/learning-NAME.jsonl and is not run again; the
comparison and its figure are written beside it.  Each run has a core to itself, which is the
fastest way to many; the peer runs in its own environment (benchmarks/peers).
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import tyro
from matplotlib.figure import Figure

from benchmarks.measurements import SBX
from benchmarks.process import Python, guard
from rl import runs, stats

ROOT = Path(__file__).parent
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
SIDES = ("ours", "sbx")
STEPS = {"ppo": 1_000_000, "sac": 100_000}
# What a side is told beyond task, seed and steps.  SBX's PPO has eight worlds, the faster of its
# settings and not the worse; its SAC takes our learning starts and judges itself as often.
OURS = {"ppo": (), "sac": ("--evals", 10)}
PEER = {"ppo": ("sbx_ppo.py", "--num-envs", 8), "sac": ("sbx_off_policy.py", "sac", "--evals", 10)}
Row = dict[str, Any]
Command = Callable[..., str]  # a command, by its words; what it prints


@dataclass(frozen=True)
class Args:
    agent: Annotated[Literal["ppo", "sac"], tyro.conf.Positional]
    peers: Path = Path(os.environ.get("SPEED_PEERS", ".venv-peers/bin/python"))
    steps: int = 0  # environment steps; 0: a million of PPO, 100,000 of SAC
    seeds: int = 5
    jobs: int = len(os.sched_getaffinity(0))  # runs at a time
    results: Path = ROOT / "results"


def run_ours(command: Command, experiment: str, *words: Any) -> Row:
    """Return of the last policy over fixed starts, and its evaluations on the way."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        own = "--threads", 1, "--no-video", "--out", out
        command(sys.executable, "-m", f"experiments.{experiment}", *words, *own)
        manifest, evals = runs.read_manifest(out), runs.read_rows(out / "evals.jsonl")
    returns = float(np.mean(manifest["eval_returns"]))
    curve = [[row["step"], float(np.mean(row["eval_return"]))] for row in evals]
    return {"return": returns, "curve": curve, "commit": manifest["git"]["commit"]}


def run_peer(command: Command, args: Args, *words: Any) -> Row:
    script, *own = PEER[args.agent]
    said = command(args.peers, ROOT / "peers" / str(script), *own, *words)
    told = json.loads(said.splitlines()[-1])
    return {"return": told["return"], "curve": told.get("curve", [])}


class Commands:
    """Commands that have a core each, from any thread; `end` ends those that still run."""

    def __init__(self) -> None:
        self.running: list[subprocess.Popen[str]] = []

    def run(self, *words: Any) -> str:
        """What a command prints."""
        process = subprocess.Popen(
            [*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"NPROC": "1", "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.running.append(process)
        out, err = process.communicate()
        self.running.remove(process)
        if process.returncode:
            last = (err.strip().splitlines() or ["it said nothing"])[-1]
            raise ValueError(f"{' '.join(map(str, words))} failed: {last.removeprefix('error: ')}")
        return out

    def end(self) -> None:
        for process in list(self.running):
            process.kill()


def flags(want: Row) -> list[Any]:
    """What an experiment, ours or a peer's, is told of a wanted row."""
    return [word for name in ("env", "seed", "steps") for word in (f"--{name}", want[name])]


def missing(path: Path, wanted: list[Row]) -> list[Row]:
    """What no row of `path` has."""
    rows = [row for row in runs.read_rows(path) if "return" in row]
    return [want for want in wanted if not any(want.items() <= row.items() for row in rows)]


def mend(path: Path) -> None:
    """End the last line of `path` if it lacks no more than that, or drop it if it was cut off."""
    whole, _, last = (path.read_bytes() if path.exists() else b"").rpartition(b"\n")
    if not last:
        return
    try:
        json.loads(last)
        runs.write(path, b"%b\n%b\n" % (whole, last) if whole else last + b"\n")
    except ValueError:
        print(f"the last line of {path} was cut off: its run is made again", flush=True)
        runs.write(path, whole + b"\n" if whole else b"")


def run_all(
    path: Path, wanted: list[Row], run: Callable[[Row, Command], Row], jobs: int
) -> list[Row]:
    """The rows that are `wanted`; `run` makes those that `path` lacks, `jobs` at a time.

    What runs when one of them fails is waited for; Ctrl-C ends it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    mend(path)
    commands, lacking = Commands(), missing(path, wanted)
    print(f"{len(wanted) - len(lacking)} of {len(wanted)} runs are in {path}", flush=True)

    def one(want: Row) -> None:
        row = want | run(want, commands.run)
        with path.open("a") as file:  # here, so that another run's failure does not lose it
            file.write(json.dumps(row) + "\n")
        print(f"{row['who']:5} {row['env']:16} seed {row['seed']}: {row['return']:.0f}", flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for future in as_completed([pool.submit(one, want) for want in lacking]):
                future.result()
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            commands.end()
            raise
        except ValueError:
            print("one failed: waiting for those under way", flush=True)
            raise
        finally:
            pool.shutdown(cancel_futures=True)
    rows = [row for row in runs.read_rows(path) if "return" in row]
    return [next(row for row in rows if want.items() <= row.items()) for want in wanted]


def at_least_one(**counts: int) -> None:
    """Raise unless each of these is 1 or more."""
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"--{name} is {count}; it needs at least 1.")


def scores(rows: Iterable[Row], who: str, seeds: int) -> np.ndarray:
    """Returns [seeds, tasks]."""
    found = {(row["env"], row["seed"]): row["return"] for row in rows if row["who"] == who}
    return np.array([[found[env, seed] for env in TASKS] for seed in range(seeds)])


def verdict(rows: list[Row], args: Args) -> dict[str, Any]:
    """The comparison of IQMs; a task's scores are in units of the peer's mean on it."""
    ours, sbx = (scores(rows, who, args.seeds) for who in SIDES)
    unit = sbx.mean(0)
    difference, low, high = stats.relative_difference(ours / unit, sbx / unit)
    return {
        "what": f"learning/{args.agent}-{args.steps:,}/vs-sbx",
        "tasks": TASKS,
        "ours": ours.T.tolist(),
        "peer": sbx.T.tolist(),
        "ours_mean": ours.mean(0).tolist(),
        "peer_mean": sbx.mean(0).tolist(),
        "relative_iqm_difference": difference,
        "interval_95": [low, high],
    }


def figure(rows: list[Row]) -> Figure:
    """Mean return against steps on each task, with the 95% bootstrap interval over the seeds."""
    drawn = Figure(figsize=(9, 3), layout="constrained")
    for axes, env in zip(drawn.subplots(1, len(TASKS)), TASKS, strict=True):
        for who in SIDES:
            mine = [r["curve"] for r in rows if (r["env"], r["who"]) == (env, who)]
            curves = np.array(mine)  # [seeds, evaluations, (step, return)]
            steps, returns = curves[0, :, 0] / 1e3, curves[..., 1]
            low, high = stats.interval_of_mean(returns)
            axes.plot(steps, returns.mean(0), label=who)
            axes.fill_between(steps, low, high, alpha=0.2)
        axes.set(title=env, xlabel="thousand environment steps")
        axes.grid(alpha=0.3)
    drawn.axes[0].set_ylabel("return, ten episodes")
    drawn.axes[0].legend()
    return drawn


def main(args: Args) -> None:
    args = args if args.steps else replace(args, steps=STEPS[args.agent])
    at_least_one(steps=args.steps, seeds=args.seeds, jobs=args.jobs)
    path = args.results / f"learning-{args.agent}.jsonl"
    wanted = [
        {"who": who, "env": env, "seed": seed, "steps": args.steps}
        for seed, env, who in product(range(args.seeds), TASKS, SIDES)
    ]
    if missing(path, wanted):
        Python(str(args.peers), SBX, "--peers").versions()  # before anything runs: is it there?

    def run(want: Row, command: Command) -> Row:
        if want["who"] == "sbx":
            return run_peer(command, args, *flags(want))
        return run_ours(command, args.agent, *flags(want), *OURS[args.agent])

    rows = run_all(path, wanted, run, args.jobs)
    compared = verdict(rows, args)
    path.with_suffix(".json").write_text(json.dumps(compared, indent=2) + "\n")
    if all(row.get("curve") for row in rows):
        figure(rows).savefig(path.with_suffix(".png"), dpi=100)
    low, high = compared["interval_95"]
    print(
        f"relative IQM difference {compared['relative_iqm_difference']:+.1%} "
        f"(95% interval {low:+.1%} to {high:+.1%})"
    )


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.learning")))
