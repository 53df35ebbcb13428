"""Rows of a measurement: what was compared, every raw pair, on which machine, at which commit.

A run is one process's own account, a dict with at least `value`; a pair is a run of ours and the
run of the peer that came right after it.
"""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from benchmarks.process import ROOT, Run


class Pair(TypedDict):
    ours: Run
    peer: Run | None  # None where nothing is compared


def row(what: str, unit: str, pairs: Sequence[Pair], **about: Any) -> dict[str, Any]:
    """The row of `pairs`: medians of both sides and the median of the pairwise ratios.

    A ratio above 1 is in our favour: ours / peer of a rate, peer / ours of a time (`unit` "s").
    `about` follows: machine, commit and what else the row should say.
    """
    if not pairs:
        raise ValueError(f"No pairs were measured for {what}: a row needs at least one.")
    ours = statistics.median(pair["ours"]["value"] for pair in pairs)
    against = [(pair["ours"]["value"], pair["peer"]["value"]) for pair in pairs if pair["peer"]]
    ratios = [peer / mine if unit == "s" else mine / peer for mine, peer in against]
    return {
        "what": what,
        "ours": ours,
        "peer": statistics.median(peer for _, peer in against) if against else None,
        "ratio": statistics.median(ratios) if ratios else None,
        "unit": unit,
        **about,
        "pairs": list(pairs),
    }


def means(pairs: Sequence[Pair], name: str) -> dict[str, float]:
    """The mean of `name` over the runs of each side that report it."""
    runs = {"ours": [x["ours"] for x in pairs], "peer": [x["peer"] for x in pairs if x["peer"]]}
    return {
        side: statistics.fmean(run[name] for run in found)
        for side, found in runs.items()
        if found and all(name in run for run in found)
    }


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a results file by `what`; none where there is no file."""
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            one = json.loads(line)
            found[one["what"]] = one
        except (json.JSONDecodeError, KeyError, TypeError):
            raise ValueError(
                f"{path}, line {number}, is not a row: delete the line and measure it again."
            ) from None
    return found


def write(path: Path, one: dict[str, Any]) -> None:
    """Put a row in its file, in the place of an older row of the same `what`, or not at all."""
    rows = read(path) | {one["what"]: one}
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".partial")
    fresh.write_text("".join(json.dumps(rows[what]) + "\n" for what in sorted(rows)))
    os.replace(fresh, path)


def about() -> dict[str, Any]:
    """What every row tells of where it was measured, to be asked before that."""
    return {"commit": commit(ROOT), "machine": machine()}


def machine() -> dict[str, Any]:
    """CPU model, cores this process may use, memory in GB, system, and the load before we began."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
    }


def commit(root: Path) -> str:
    """The commit of the code at `root`, "-dirty" if changed since; results do not count as code."""

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        sha = git("rev-parse", "HEAD")
        changed = git("status", "--porcelain", "--", ".", ":!benchmarks/results")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return sha + ("-dirty" if changed else "")


def _cpu_model() -> str:
    listed = Path("/proc/cpuinfo")
    if listed.exists():
        names = [x for x in listed.read_text().splitlines() if x.startswith("model name")]
        if names:
            return names[0].split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
