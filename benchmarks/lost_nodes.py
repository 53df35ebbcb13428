"""A sweep whose nodes are lost and whose driver is killed: python -m benchmarks.lost_nodes

On a cluster of Ray of this machine, of two nodes with a core each.  In turn a node is lost, with
all that runs on it, and another comes; or the driver is killed, and begun again.  Then the same
sweep is made undisturbed.  Every run must be made once, and tell the same to the last bit.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks import nodes, rows
from benchmarks.process import LONG, ROOT, Failed, guard
from experiments import cli
from rl import runs

CLOCK = {"wall_s", "steps_per_s"}  # what of a row is time
FACTS = "status", "seeds", "config_sha256", "eval_returns", "parameters_sha256"
BEGINS = "compiles before its first step"  # what a run says as it begins, or goes on


@dataclass(frozen=True)
class Args:
    """Lose nodes of a sweep, and its driver."""

    suite: str = "smoke"
    seeds: int = 2
    losses: int = 3  # of nodes, and one less of drivers
    within: tuple[float, float] = (20.0, 60.0)  # s after which the next is lost
    seed: int = 0
    out: Path | None = None  # where the runs are put; none: they are not kept
    results: Path = ROOT / "benchmarks" / "results" / "sweeps.jsonl"


def main(args: Args) -> None:
    cli.at_least(1, args, "seeds", "losses")
    about = rows.about()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        began = time.perf_counter()
        facts = disturbed(args, folder)
        took = time.perf_counter() - began
        plain = folder / "undisturbed"
        ended(driver(args, plain, "--engine", "process"))
        mine, theirs = told(folder / "disturbed"), told(plain)
    facts |= {"runs": len(mine), "s": took, "undisturbed_s": time.perf_counter() - began - took}
    facts |= {"tries": sum(one["tries"] for one in mine.values())}
    facts |= {"begun": sum(one["begun"] for one in mine.values())}
    differ = sorted(x for x in {*mine, *theirs} if not same(mine.get(x), theirs.get(x)))
    rows.write(args.results, {"what": "sweep/lost-nodes", **facts, "differ": differ, **about})
    print(json.dumps(facts))
    if differ or facts["tries"] != facts["begun"]:
        sys.exit(f"error: Not as the undisturbed ones, or begun twice: {', '.join(differ)}")


def disturbed(args: Args, folder: Path) -> dict[str, Any]:
    """Make the sweep while nodes and drivers go; what went."""
    chance, lost = random.Random(args.seed), {"nodes": 0, "drivers": 0, "processes": 0}
    turns = ["node", "driver"] * args.losses
    turns.pop()
    with nodes.cluster(folder, 1, 1) as there:
        words = "--engine", "ray", "--address", there.address, "--retries", "20"
        now = driver(args, folder / "disturbed", *words)
        for turn in turns:
            wait = chance.uniform(*args.within)
            while not made(folder / "disturbed") and now.poll() is None:
                time.sleep(0.5)  # the first takes longer: nothing runs yet
            try:
                now.wait(wait)
                break  # before all could be lost
            except subprocess.TimeoutExpired:
                lost[f"{turn}s"] += 1
            print(f"a {turn} is lost", flush=True)
            if turn == "node":
                lost["processes"] += there.lose(-1)
                there.add(1)
            else:
                now.kill()
                now.communicate()
                now = driver(args, folder / "disturbed", *words)
        ended(now)
    return lost


def driver(args: Args, where: Path, *words: str) -> subprocess.Popen[str]:
    command = "-m", "benchmarks", "run", args.suite, "--seeds", str(args.seeds)
    return subprocess.Popen(
        [sys.executable, *command, "--runs", str(where), *words], cwd=ROOT,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def ended(driver: subprocess.Popen[str]) -> None:
    _, said = driver.communicate(timeout=LONG)
    if driver.returncode:
        raise Failed(f"The sweep failed: {said.strip()}")


def made(where: Path) -> bool:
    """Whether any run has come to a first row."""
    return any(path.stat().st_size for path in where.rglob("metrics.jsonl"))


def told(where: Path) -> dict[str, Any]:
    """What each run came to, row by row, but for its times; and how often it was begun."""
    found = {}
    for path in sorted(where.rglob("manifest.json")):
        facts, out = runs.read_manifest(path.parent), path.parent
        log = out.with_name(f"{out.name}.log").read_text(errors="replace")
        found[str(out.relative_to(where))] = {
            "facts": {name: facts.get(name) for name in FACTS},
            "rows": [{x: row[x] for x in row.keys() - CLOCK}
                     for name in runs.ROWS for row in runs.read_rows(out / name)],
            "tries": 1 + len(facts.get("resumed", [])),
            "begun": log.count(BEGINS),
        }  # fmt: skip
    return found


def same(one: dict[str, Any] | None, other: dict[str, Any] | None) -> bool:
    return (
        one is not None and other is not None and all(one[x] == other[x] for x in ("facts", "rows"))
    )


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.lost_nodes")))
