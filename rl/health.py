"""What shows that a learner has broken, and what is left behind to find out why."""

import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from rl import checkpoint, runs
from rl.record import Record
from rl.rollout import CROWDED
from rl.types import Params, PyTree

EXPLODED = 1_000  # times the largest return there was that no value should be


def trouble(metrics: Mapping[str, Any], params: Params) -> str:
    """What shows that a learner has broken, with `params` its policy's; empty if nothing does."""
    if np.any(metrics.get("overflow", 0)):
        return CROWDED
    for name, value in metrics.items():
        if name.endswith("loss") and not np.isfinite(value).all():
            return f"{name} became NaN or infinite"
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(params)):
        return "a parameter became NaN or infinite"
    if np.max(share := metrics.get("q_over_return", 0.0)) > EXPLODED:
        return f"values became {np.max(share):,.0f} times the largest return there was"
    return ""


def diagnose(log: Record, step: int, why: str, metrics: Mapping[str, Any], state: PyTree) -> None:
    """Leave what is known of a learner that broke: its metrics, and `state` leaf by leaf."""
    told = {"step": step, "why": why, "grew": grew(runs.read_metrics(log.out), metrics)}
    told["metrics"] = {k: _spelt(v) for k, v in metrics.items()}
    told["state"] = {
        name: {
            "least": _spelt(np.min(x)), "most": _spelt(np.max(x)),
            "not_finite": int((~np.isfinite(x)).sum()),
        }
        for name, x in checkpoint.named(jax.device_get(state))
        if x.size
    }  # fmt: skip
    text, path = json.dumps(told, indent=2) + "\n", log.out / "diverged.json"
    log.attempt("diagnostics", lambda: runs.write(path, text.encode()))
    tensors = path.with_suffix(".safetensors")
    log.attempt("state that broke", lambda: checkpoint.write_tensors(tensors, state))


def grew(rows: list[dict[str, Any]], metrics: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Each metric as it was in the first line of a run and as it is, what grew most first."""

    def size(x: Any) -> float:
        return float(np.max(np.abs(x)))

    def times(pair: list[Any]) -> float:
        before, now = map(size, pair)
        return now / max(before, 1e-12) if np.isfinite(now) else np.inf

    def known(name: str, x: Any) -> bool:
        """A phase in which no episode ended has no return, and that is no sign of anything."""
        return name.endswith("loss") or bool(np.isfinite(x).all())

    first = rows[0] if rows else {}
    found = {k: [first[k], v] for k, v in metrics.items() if k in first and known(k, v)}
    order = sorted(found, key=lambda k: times(found[k]), reverse=True)
    return {k: [_spelt(x) for x in found[k]] for k in order}


def _spelt(x: Any) -> Any:
    """Numbers as JSON has them, and in words where it has none; of one seed the number alone."""
    if np.ndim(x):
        return [_spelt(y) for y in x] if np.size(x) > 1 else _spelt(np.ravel(x)[0])
    return float(x) if np.isfinite(x) else str(float(x))
