"""A run's directory: manifest first, a line of metrics a phase, the progress bar, the curve."""

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np

from rl import checkpoint
from rl.types import Params

SCHEMA = 1
PACKAGES = ("jax", "jaxlib", "flax", "optax", "mujoco", "mujoco-mjx", "gymnasium", "numpy")


class Record:
    """Writes a run to `out`, or to `out`-2, -3, ... where a run lies already.

    A context manager: whatever ends the run early is left in its manifest.
    """

    def __init__(self, out: Path, steps: int, **facts: Any) -> None:
        self.out, self.steps, self.begun = _free(out), steps, time.perf_counter()
        self.shown: float | list[float] | None = None  # the last return there was
        self.told = 0.0  # share of the run last told of
        self.failed = 0.0  # worlds that the simulation gave up so far
        self.last: tuple[int, float] | None = None  # step and wall time of the last line
        self.manifest = {
            "schema": SCHEMA,
            "status": "running",
            "argv": [os.path.relpath(sys.argv[0]), *sys.argv[1:]],
            "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "git": _git(),
            "packages": {name: metadata.version(name) for name in PACKAGES},
            "python": platform.python_version(),
            "machine": {
                "system": platform.platform(), "cpu": _cpu(), "cores": os.cpu_count(),
                "devices": [str(d) for d in jax.devices()],
            },
            "matmul_precision": jax.config.jax_default_matmul_precision,  # pyright: ignore
            "steps": steps,
        } | {name: _plain(fact) for name, fact in facts.items()}  # fmt: skip
        self.update()

    def __enter__(self) -> Self:
        print(f"run      {self.out}", flush=True)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if error is not None and self.manifest["status"] == "running":
            why = "stopped by Ctrl-C" if kind is KeyboardInterrupt else f"failed: {error}"
            self.update(status=why.splitlines()[0])
        if kind is KeyboardInterrupt:
            print(f"\nstopped; what there is of the run is in {self.out}", file=sys.stderr)

    def update(self, **facts: Any) -> None:
        """Put `facts` into the manifest, atomically."""
        self.manifest |= {name: _plain(fact) for name, fact in facts.items()}
        partial = self.out / "manifest.partial"
        partial.write_text(json.dumps(self.manifest, indent=2) + "\n")
        os.replace(partial, self.out / "manifest.json")

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one line and move the bar; a value per seed is a list, what is NaN is left out."""
        wall = time.perf_counter() - self.begun
        row = {"step": step, "wall_s": round(wall, 3)}
        for name, value in metrics.items():
            value = np.asarray(value, np.float64)
            if np.isfinite(value).all():
                row[name] = value.item() if value.size == 1 else value.tolist()
        with (self.out / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.shown = row.get("episode_return", self.shown)
        self.failed += float(np.sum(row.get("failed", 0)))
        self._bar(step, wall)
        self.last = step, wall

    def save(self, params: Params) -> None:
        """Write each seed's policy (leaves [seeds, ...]) in the place of an earlier one."""
        for i, seed in enumerate(self.manifest["seeds"]):
            mine = jax.tree.map(lambda x, i=i: x[i], params)
            checkpoint.save_params(self.out / f"policy-{seed}.safetensors", mine)

    def _bar(self, step: int, wall: float) -> None:
        share = min(step / self.steps, 1)
        shown = f"{'-':>8}" if self.shown is None else f"{np.mean(self.shown):8.1f}"
        # The first line's time is mostly compiling.
        rate = f"{(step - self.last[0]) / (wall - self.last[1]):,.0f}" if self.last else "-"
        line = (
            f"[{'#' * round(24 * share):24}] {share:4.0%}  {step:,} steps  return {shown}  "
            f"{rate:>7} steps/s  {wall:.0f} s"
        ) + (f"  {self.failed:,.0f} worlds FAILED" if self.failed else "")
        if sys.stdout.isatty():
            print(f"\r{line}\x1b[K", end="" if share < 1 else "\n", flush=True)
        elif int(10 * share) > int(10 * self.told):  # a log file wants ten lines, not a film
            print(line, flush=True)
            self.told = share


def not_finite(metrics: Mapping[str, Any], params: Params) -> str:
    """The first loss, or "a parameter", that is NaN or infinite; empty if none is."""
    for name, value in metrics.items():
        if name.endswith("loss") and not np.isfinite(value).all():
            return name
    return "" if all(np.isfinite(x).all() for x in jax.tree.leaves(params)) else "a parameter"


def read_metrics(out: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics.jsonl; a last line cut off by a kill is left out."""
    lines = (out / "metrics.jsonl").read_text().split("\n")
    return [json.loads(line) for line in lines[:-1]]


def curve(out: Path, title: str, value: str = "episode_return") -> Path:
    """Draw `value` against steps, one line a seed, to curve.png."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    rows = [row for row in read_metrics(out) if value in row]
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.add_subplot()
    if rows:
        values = np.array([np.atleast_1d(row[value]) for row in rows])
        axes.plot([row["step"] for row in rows], values, alpha=0.8)
    axes.set(title=title, xlabel="environment steps", ylabel=value.replace("_", " "))
    axes.grid(alpha=0.3)
    figure.savefig(out / "curve.png", dpi=120)
    return out / "curve.png"


def _free(out: Path) -> Path:
    """`out`, made, or the first numbered sibling no run lies in."""
    for number in range(1, 10_000):
        path = out if number == 1 else out.with_name(f"{out.name}-{number}")
        try:
            path.mkdir(parents=True, exist_ok=path == out and not any(out.glob("*")))
        except FileExistsError:
            continue
        except OSError as error:
            raise ValueError(f"The run cannot be written to {path}: {error.strerror}.") from error
        return path
    raise ValueError(f"There are 10,000 runs named {out} already; give another --out.")


def _plain(x: Any) -> Any:
    """JSON of configuration and results."""
    if is_dataclass(x) and not isinstance(x, type):
        return _plain(asdict(x))
    if isinstance(x, Mapping):
        return {k: _plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(v) for v in x]
    if isinstance(x, np.ndarray | jax.Array):
        return np.asarray(x).tolist()
    return str(x) if isinstance(x, Path) else x


def _git() -> dict[str, Any]:
    def ask(*words: str) -> str | None:
        git = shutil.which("git")
        if git is None:
            return None
        # Spawned, not forked: a fork of a process in which JAX runs may hang.
        said = subprocess.run(
            [git, "-C", str(Path(__file__).parent), *words],
            capture_output=True, text=True, check=False, close_fds=False,
        )  # fmt: skip
        return said.stdout.strip() if said.returncode == 0 else None

    return {"commit": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(": ", 1)[1] for x in lines if x.startswith("model name")), "unknown")
