"""What a sweep costs beside its runs: python -m benchmarks.overhead {runs,report,smoke}

runs: a thousand runs that do nothing, inline.  report: a report of a thousand runs with 200
evaluations each.  smoke: the suite of that name, with its report.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from benchmarks import rows
from benchmarks.process import ROOT, Failed, guard

SUITE = """
about = "Runs that do nothing"
steps = {steps}
seeds = 10
[tasks]
{tasks}
[agents]
{agents}
"""
TASKS = 10
AGENTS = 10


@dataclass(frozen=True)
class Args:
    what: Annotated[Literal["runs", "report", "smoke"], tyro.conf.Positional]
    results: Path = ROOT / "benchmarks" / "results" / "sweeps.jsonl"


def main(args: Args) -> None:
    measure: dict[str, Callable[[Path], dict[str, Any]]] = {
        "runs": empty_runs, "report": large_report, "smoke": smoke
    }  # fmt: skip
    about = rows.about()
    with tempfile.TemporaryDirectory() as folder:
        told = measure[args.what](Path(folder))
    print(told)
    rows.write(args.results, {"what": f"sweep/{args.what}", **told, **about})


def empty_runs(folder: Path) -> dict[str, Any]:
    """Seconds of a sweep of one-step runs, and of its planning alone."""
    path = suite_of(folder, 1)
    plan = timed("run", path, "--dry-run", "--runs", folder / "runs")
    whole = timed("run", path, "--engine", "inline", "--runs", folder / "runs")
    runs = TASKS * AGENTS * 10
    return {"runs": runs, "plan_s": plan, "s": whole, "ms_a_run": 1e3 * whole / runs, "bar": 20}


def large_report(folder: Path) -> dict[str, Any]:
    path = suite_of(folder, 200)
    timed("run", path, "--engine", "inline", "--runs", folder / "runs")
    took = timed("report", path, "--runs", folder / "runs")
    size = (folder / "runs" / "empty" / "report" / "index.html").stat().st_size
    about = {"runs": TASKS * AGENTS * 10, "evaluations": 200, "bar": "60 s, 5 MB"}
    return {"s": took, "page_mb": size / 1e6, **about}


def smoke(folder: Path) -> dict[str, Any]:
    run = timed("run", "smoke", "--runs", folder / "runs")
    report = timed("report", "smoke", "--runs", folder / "runs")
    return {"run_s": run, "report_s": report, "s": run + report, "bar": 300}


def suite_of(folder: Path, steps: int) -> Path:
    """A suite of settings of the toy that all differ."""
    import envs

    tasks = "\n".join(f"{name} = {{}}" for name in envs.names()[:TASKS])
    agents = "\n".join(
        f'a{i} = {{ experiment = "benchmarks.toy", flags = {{ bonus = {i}e-3 }} }}'
        for i in range(AGENTS)
    )
    path = folder / "empty.toml"
    path.write_text(SUITE.format(steps=steps, tasks=tasks, agents=agents))
    return path


def timed(*words: Any) -> float:
    """Seconds of a command of benchmarks, as a user has it."""
    command, begun = [sys.executable, "-m", "benchmarks", *map(str, words)], time.perf_counter()
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    if done.returncode:
        raise Failed(f"{' '.join(command[2:])} failed: {done.stdout.strip().splitlines()[-1]}")
    return time.perf_counter() - begun


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.overhead")))
