"""What a run needs said of itself to be made again: code, packages, machine, settings."""

import hashlib
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
import numpy as np

# 1 does not say what the parts of a configuration are, and tells less of the machine; 2 has neither
# the configuration's hash nor a seal.
SCHEMA = 3
# What a run's end tells, which one that is resumed has not come to.
AT_THE_END = ("eval_seed", "eval_returns", "peak_memory_gb", "parameters_sha256", "seal")
# Settings that say where and how a run is made, and not what comes of it.
HOST = ("out", "resume", "seed", "seeds", "threads", "track", "video", "save_s", "when_full")
# Settings that came after the first runs, and what they were before: those runs stay the same.
LATER = {
    "demos": None, "hindsight": 0.0, "agent.out_gain": 0.01, "agent.chunks.late": 0,
    "env.precise": 0.0, "env.scripted": False, "env.embodied": False,
    "agent.patience": 0.0, "expert.patience": 0.0, "shards": 1,
    "agent.eager": False, "agent.out_std": 0.0, "agent.target_q": "min", "agent.beta2": 0.999,
    "agent.decay": 0.0,
}  # fmt: skip
SETTINGS = ("JAX_", "XLA_", "NPROC", "OMP_", "MUJOCO_GL", "CUDA_VISIBLE_DEVICES")


def facts() -> dict[str, Any]:
    """The same for any run here and now."""
    return {
        "schema": SCHEMA,
        "run_id": os.urandom(6).hex(),
        "status": "running",
        "argv": [os.path.relpath(sys.argv[0]), *sys.argv[1:]],
        "started": now(),
        "git": _git(),
        "packages": _packages(),
        "python": platform.python_version(),
        "machine": {
            "system": platform.platform(), "cpu": _cpu(), "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "devices": [f"{d} {d.device_kind}" for d in jax.devices()],
        },
        "settings": {k: v for k, v in sorted(os.environ.items()) if k.startswith(SETTINGS)},
        "matmul_precision": jax.config.jax_default_matmul_precision,  # pyright: ignore
        "prng": jax.config.jax_default_prng_impl,  # pyright: ignore
        "threefry_partitionable": jax.config.jax_threefry_partitionable,  # pyright: ignore
        "x64": jax.config.jax_enable_x64,  # pyright: ignore
    }  # fmt: skip


def now() -> str:
    """UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@cache  # what this process has imported does not change
def _packages() -> dict[str, str]:
    found = {d.name: d.version for d in metadata.distributions()}
    return dict(sorted(found.items(), key=lambda x: x[0].lower()))


def identity(config: Mapping[str, Any]) -> str:
    """The hash of a plain configuration, the same for all seeds and hosts."""
    told = {name: part for name, part in first(config).items() if name not in HOST}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def first(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """A plain configuration as it was before settings came that change nothing in it."""
    told = {name: (f"{above}{name}", part) for name, part in config.items()}
    return {
        name: first(part, f"{where}.") if isinstance(part, dict) else part
        for name, (where, part) in told.items()
        if where not in LATER or part != LATER[where]
    }


def peak_memory_gb() -> float:
    """Most memory this process has held."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2)


def plain(x: Any) -> Any:
    """JSON of configuration and results; what a dataclass is, is under "is".

    Of fields whose metadata have "found", which a task has, it tells that there is something.
    """
    if is_dataclass(x) and not isinstance(x, type):
        told: dict[str, Any] = {"is": type(x).__name__}
        for f in fields(x):
            value = getattr(x, f.name)
            told[f.name] = (value is not None or None) if "found" in f.metadata else plain(value)
        return told
    if isinstance(x, Mapping):
        return {k: plain(v) for k, v in x.items()}
    if isinstance(x, list | tuple):
        return [plain(v) for v in x]
    if isinstance(x, np.ndarray | jax.Array):
        return np.asarray(x).tolist()
    return str(x) if isinstance(x, Path) else x


def made(like: Any, config: Mapping[str, Any]) -> Any:
    """The dataclass that `plain` made this of; `like` is one of its kind, for what is not told.

    Raises KeyError or TypeError where it is of another kind, or version.
    """
    hints = get_type_hints(type(like))

    def value(name: str, x: Any) -> Any:
        if isinstance(x, dict):
            now = getattr(like, name)
            # Where a field may be of several kinds the configuration names its own.
            kinds: dict[str, Any] = {kind.__name__: kind for kind in get_args(hints[name])}
            return made(now if x["is"] == type(now).__name__ else kinds[x["is"]](), x)
        return tuple(x) if isinstance(x, list) else x

    return replace(like, **{name: value(name, x) for name, x in config.items() if name != "is"})


def flat(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Settings by their names on the command line, of those within settings."""
    for name, value in config.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


@cache  # of what this process has begun with
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

    changes = ask("status", "--porcelain")
    told: dict[str, Any] = {"commit": ask("rev-parse", "HEAD"), "dirty": bool(changes)}
    if changes:  # where: the diff itself may be large, or nobody's business
        told["changed"] = [line.split(maxsplit=1)[1] for line in changes.splitlines()[:20]]
        told["diff_sha256"] = hashlib.sha256((ask("diff", "HEAD") or "").encode()).hexdigest()
    return told


@cache
def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(": ", 1)[1] for x in lines if x.startswith("model name")), "unknown")


def flags(told: Any, wanted: Any, flag: str = "--env") -> str:
    """The flags that set what of `wanted` is otherwise than `told` to what is told."""
    if isinstance(told, dict) and isinstance(wanted, dict):
        both = {name: (told.get(name), wanted.get(name)) for name in wanted | told}
        other = {name: pair for name, pair in both.items() if pair[0] != pair[1]}
        return " ".join(
            flags(*pair, f"{flag}.{name.replace('_', '-')}") for name, pair in other.items()
        )
    told = LATER.get(flag[2:].replace("-", "_")) if told is None else told
    if wanted is True or told is True:
        head, _, name = flag.rpartition(".")
        return flag if told else f"{head}.no-{name}"
    values = told if isinstance(told, list | tuple) else [told]
    return flag if told is None else " ".join([flag, *map(str, values)])


def difference(name: str, told: Any, wanted: Any) -> str:
    """The first part of `told` that is not as in `wanted`, as NAME.FIELD = this, not that."""
    if isinstance(told, dict) and isinstance(wanted, dict):
        both = {k: (told.get(k, "nothing"), wanted.get(k, "nothing")) for k in told | wanted}
        part = next(k for k, (one, other) in both.items() if one != other)
        return difference(f"{name}.{part}", *both[part])
    return f"{name} = {told!r}, not {wanted!r}"
