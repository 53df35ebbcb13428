"""Results in the layouts of others: CSV, Open RL Benchmark's tables, unifloral's files."""

import csv as comma
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.scores import Scores


def csv(out: Path, scores: Scores) -> None:
    """scores.csv with a line a seed, and curves.csv with a line an evaluation."""
    with (out / "scores.csv").open("w", newline="") as file:
        writer = comma.writer(file)
        told = ("steps", scores.what, "normalised", "configuration")
        writer.writerow(["task", "agent", "seed", *told])
        for (task, agent), runs in scores.runs.items():
            for run in runs:
                value = run.score(scores.last)
                unit = float(scores.scaled(task, np.array(value)))
                steps = run.steps[-1] if run.steps else ""
                writer.writerow([task, agent, run.seed, steps, value, unit, run.identity[:10]])
    with (out / "curves.csv").open("w", newline="") as file:
        writer = comma.writer(file)
        writer.writerow(["task", "agent", "seed", "step", "wall_s", scores.what])
        for (task, agent), runs in scores.runs.items():
            for run in runs:
                wall = run.wall_s or [""] * len(run.steps)
                for row in zip(run.steps, wall, run.curve, strict=True):
                    writer.writerow([task, agent, run.seed, *row])


def openrlbenchmark(out: Path, scores: Scores) -> None:
    """The tables it writes of a comparison: mean ± standard deviation, and minutes."""
    out.mkdir(parents=True, exist_ok=True)
    cells: dict[str, Callable[[str, str], str]] = {
        "result_table": lambda task, agent: _spread(scores.returns(task, agent)),
        "runtimes": lambda task, agent: _minutes(scores, task, agent),
    }
    for name, cell in cells.items():
        rows = [["", *scores.agents]]
        rows += [[task, *(cell(task, agent) for agent in scores.agents)] for task in scores.tasks]
        lines = ["| " + " | ".join(x.replace("|", "\\|") for x in row) + " |" for row in rows]
        lines.insert(1, "|:---" * len(rows[0]) + "|")
        (out / f"{name}.md").write_text("\n".join(lines) + "\n")
        with (out / f"{name}.csv").open("w", newline="") as file:
            comma.writer(file).writerows(rows)


def _spread(returns: np.ndarray) -> str:
    return f"{returns.mean():.2f} ± {returns.std():.2f}" if len(returns) else "N/A"


def _minutes(scores: Scores, task: str, agent: str) -> str:
    took = [sum(run.took.values()) / 60 for run in scores.runs.get((task, agent), ())]
    return f"{np.mean(took):.2f}" if took and max(took) else "N/A"


def unifloral(out: Path, scores: Scores) -> None:
    """final_returns/AGENT_TASK_TIME.npz of each run, as its evaluation.py reads them: no pickle."""
    folder = out / "final_returns"
    folder.mkdir(parents=True, exist_ok=True)
    for (task, agent), runs in scores.runs.items():
        for run in runs:
            returns = np.array(run.final)
            values = 100 * scores.scaled(task, returns)
            when = str(run.about.get("started") or "1970-01-01T00:00:00Z")
            when = when.rstrip("Z").replace(":", "-").replace("T", "_")
            name = f"{agent}_{task}_{when}-{run.seed}.npz".replace("/", "-")
            np.savez(
                folder / name, final_returns=returns, final_scores=values,
                final_returns_mean=returns.mean(), final_returns_std=returns.std(),
                final_scores_mean=values.mean(), final_scores_std=values.std(),
                seed=np.array(run.seed),
            )  # fmt: skip


LAYOUTS: dict[str, Callable[[Path, Scores], None]] = {
    "openrlbenchmark": openrlbenchmark, "unifloral": unifloral,
}  # fmt: skip
