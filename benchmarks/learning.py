"""Does PPO here learn as well as SBX's?  One setting for all tasks, the same steps and seeds.

python -m benchmarks.learning --peers .venv-peers/bin/python

Every finished run is a line of benchmarks/results/learning-ppo.jsonl and is not run again; the
comparison is written beside it.  The peer runs in its own environment (benchmarks/peers).
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from rl import stats

RESULTS = Path(__file__).parent / "results"
RUNS, VERDICT = RESULTS / "learning-ppo.jsonl", RESULTS / "learning-ppo.json"
PEER = Path(__file__).parent / "peers" / "sbx_ppo.py"
TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5")
PEER_WORLDS = 8  # the faster of its settings, and not the worse


@dataclass(frozen=True)
class Args:
    peers: Path = Path(os.environ.get("SPEED_PEERS", ".venv-peers/bin/python"))
    steps: int = 1_000_000
    seeds: int = 5


def run_ours(env: str, seed: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        words = ["--env", env, "--seed", str(seed), "--steps", str(steps), "--no-video"]
        command = [sys.executable, "-m", "experiments.ppo", *words, "--out", str(out)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        manifest = json.loads((out / "manifest.json").read_text())
    return {"return": float(np.mean(manifest["eval_returns"])), "commit": manifest["git"]["commit"]}


def run_peer(python: Path, env: str, seed: int, steps: int) -> dict[str, Any]:
    if not python.is_file():
        raise ValueError(f"There is no {python}; benchmarks/peers/README.md says how to make it.")
    words = ["--env", env, "--seed", seed, "--steps", steps, "--num-envs", PEER_WORLDS]
    said = subprocess.run(
        [python, PEER, *map(str, words)], check=True, capture_output=True, text=True
    )
    return {"return": json.loads(said.stdout.splitlines()[-1])["return"]}


def verdict(rows: list[dict[str, Any]], args: Args) -> dict[str, Any]:
    """The comparison of IQMs; a task's scores are in units of the peer's mean on it."""

    def scores(who: str) -> np.ndarray:
        found = {(r["env"], r["seed"]): r["return"] for r in rows if r["who"] == who}
        return np.array([[found[env, seed] for env in TASKS] for seed in range(args.seeds)])

    ours, sbx = scores("ours"), scores("sbx")
    unit = sbx.mean(0)
    difference, low, high = stats.relative_difference(ours / unit, sbx / unit)
    return {
        "what": "learning/ppo-1M/vs-sbx",
        "tasks": TASKS,
        "ours": ours.T.tolist(),
        "peer": sbx.T.tolist(),
        "ours_mean": ours.mean(0).tolist(),
        "peer_mean": sbx.mean(0).tolist(),
        "relative_iqm_difference": difference,
        "interval_95": [low, high],
    }


def main(args: Args) -> None:
    key = ("who", "env", "seed", "steps")
    lines = RUNS.read_text().splitlines() if RUNS.exists() else []
    rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["steps"] == args.steps]
    done = {tuple(row[k] for k in key) for row in rows}
    for seed in range(args.seeds):
        for env in TASKS:
            for who in ("ours", "sbx"):
                if (who, env, seed, args.steps) in done:
                    continue
                found = (
                    run_ours(env, seed, args.steps)
                    if who == "ours"
                    else run_peer(args.peers, env, seed, args.steps)
                )
                row = {"who": who, "env": env, "seed": seed, "steps": args.steps} | found
                with RUNS.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                rows.append(row)
                print(f"{who:5} {env:16} seed {seed}: return {row['return']:.0f}", flush=True)
    compared = verdict(rows, args)
    VERDICT.write_text(json.dumps(compared, indent=2) + "\n")
    low, high = compared["interval_95"]
    print(
        f"relative IQM difference {compared['relative_iqm_difference']:+.1%} "
        f"(95% interval {low:+.1%} to {high:+.1%})"
    )


if __name__ == "__main__":
    try:
        main(tyro.cli(Args))
    except ValueError as error:
        sys.exit(f"error: {error}")
