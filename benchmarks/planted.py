"""python -m benchmarks planted: verdicts on runs whose condition follows from how they are made.

Makes the data and the runs of planted.toml, one after another, and writes what was said of each.
Of a run that was planted to diverge, beliefs must be beyond twice what rewards could add up to, or
it counts as void: that it diverges was argued, and not known.
"""

import json
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import rows
from benchmarks.process import ROOT, Failed
from benchmarks.suite import toml
from rl import runs
from rl.data import npz

CASES = Path(__file__).with_name("planted.toml")


@dataclass(frozen=True)
class Args:
    """Make the planted runs that are not there yet, and say how many verdicts are right."""

    only: str = ""  # the cases whose name contains this
    runs: Path = Path("runs/planted")
    results: Path = ROOT / "benchmarks" / "results"


def run(words: str) -> None:
    """A module of ours with its words; Failed with what it said last, if it did not end well."""
    command = [sys.executable, "-m", *shlex.split(words)]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode:
        said = (ended.stdout + ended.stderr).strip().split("\n")[-1]
        raise Failed(f"python -m {words} failed: {said}")


def judged(name: str, case: dict[str, Any], data: Path, out: Path) -> dict[str, Any]:
    """What a run says of itself, and whether that is so."""
    if not (out / "manifest.json").exists() or runs.read_manifest(out)["status"] == "running":
        if out.exists():  # cut off: made anew, as a verdict is of a whole run
            shutil.rmtree(out)
        given = f"--data {data} --out {out} --threads 1 --evals 0 --eval-episodes 4 --no-video"
        try:
            run(f"experiments.offline {case['words']} {given}")
        except Failed:  # a run that breaks says so, and has no verdict
            if not (out / "manifest.json").exists():
                raise
    told = runs.read_manifest(out)
    said = told.get("verdict", [{"word": "none", "why": told["status"]}])[0]
    void = case["truth"] == "diverging" and not beyond(told, data, out)
    return {"case": name, "truth": case["truth"], "said": said["word"], "why": said["why"],
            "right": said["word"] == case["truth"], "void": void}  # fmt: skip


def beyond(told: dict[str, Any], data: Path, out: Path) -> bool:
    """Whether beliefs of the data's own actions are twice as far as rewards could add up to."""
    reward, config = npz.read(data).steps["reward"], told["config"]
    scaled = config["reward_scale"] * reward + config["reward_shift"]
    q = runs.read_metrics(out)[-1]["train_q_data"]
    return float(np.abs(q).max()) > 2 * np.abs(scaled).max() / (1 - config["agent"]["gamma"])


def main(args: Args) -> None:
    plan, found = toml(CASES), []
    if not any(args.only in name for name in plan["cases"]):
        raise ValueError(f"--only {args.only} is in no case's name: {', '.join(plan['cases'])}.")
    for name, case in plan["cases"].items():
        if args.only not in name:
            continue
        command = plan["data"][case["data"]]["command"]
        data = Path(shlex.split(command)[-1])
        if not data.exists():
            run(command)
        found.append(judged(name, case, data, args.runs / name))
        one = found[-1]
        mark = "void" if one["void"] else "right" if one["right"] else "wrong"
        print(f"{mark:6} {name:16} {one['truth']:13} said {one['said']}: {one['why']}", flush=True)
    valid = [one for one in found if not one["void"]]
    right = sum(one["right"] for one in valid)
    print(f"{right} of {len(valid)} right")
    if not args.only:
        row = {"what": "verdicts", "right": right, "of": len(valid), "cases": found}
        rows.write(args.results / "planted.jsonl", json.loads(json.dumps(row | rows.about())))
