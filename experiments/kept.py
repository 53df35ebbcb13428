"""What a learner beside robots keeps of itself: lines of its record, checkpoints, its name."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from experiments.explorer import publish
from experiments.taken import Intake, Store
from rl.bridge.learn import segments, weights
from rl.record import Record
from rl.saver import Saver
from rl.types import Metrics, Params, PyTree

DRAINS_S = 2.0, 15.0  # s that robots have, at least and at most, to send what is left


def name(log: Record) -> str:
    """By which robots know the run they practise for: its folder's, and a number of its own."""
    plain = re.sub(r"[^a-z0-9]+", "-", log.out.resolve().name.lower()).strip("-")[:40]
    return f"{plain or 'run'}-{log.manifest['run_id']}"


def line(metrics: Metrics, intake: Intake, store: Store, updates: int) -> dict[str, Any]:
    """A line of the record."""
    told: dict[str, Any] = {name: float(x) for name, x in metrics.items()}
    told |= {"q_over_return": abs(told["q"]) / max(store.scale, 1)} if "q" in told else {}
    told |= {name: float(x) for name, x in intake.counts.items() if name != "steps"}
    return told | {"shown": store.shown, "updates": updates}


def tell(log: Record, saver: Saver, step: int, line: Metrics) -> None:
    """Put a line into the record, which has one of each step: robots may stand still."""
    if step > max(log.last[0] if log.last else 0, latest(saver)):
        log.log(step, line)


def keep(log: Record, saver: Saver, step: int, params: PyTree, run: PyTree, line: Metrics) -> None:
    """A checkpoint, and a line of the same step: who goes on from it has all lines up to there."""
    tell(log, saver, step, line)
    log.save(step, together(jax.device_get(params)))
    if step > latest(saver):
        saver.save(step, together(run))
    log.spent("train")


def begun(saver: Saver, fresh: Callable[[], Any]) -> Any:
    """As the run that is resumed had come to be; nothing is compiled before its checkpoint has
    turned out to be good."""
    found = saver.restore(jax.eval_shape(lambda: together(fresh())))
    return jax.tree.map(lambda x: x[0], found) if found else fresh()


def latest(saver: Saver) -> int:
    """The step of the newest checkpoint; learning goes on where robots stand still."""
    return max(saver.checkpoints.steps(), default=-1)


def together(tree: PyTree) -> PyTree:
    """As of the one seed that there is."""
    return jax.tree.map(lambda x: x[None], tree)


def over(out: Path, steps: int, params: Params) -> None:
    """Give robots what was learned, tell them that this is all, and wait until those that are there
    have sent the rest."""
    publish(params, out / "weights")
    text = f"it has all of its {steps:,} steps, and needs none more"
    segments.replace(out / "weights" / weights.OVER, text.encode())
    began = time.monotonic()
    least, most = DRAINS_S
    while (lasted := time.monotonic() - began) < most:
        if lasted > least and not waiting(out / "ledger" / "intake.json"):
            return
        time.sleep(0.1)


def waiting(account: Path) -> bool:
    """Whether a robot that is there has something left, or has not heard that it is over."""
    try:
        there = json.loads(account.read_text())["sessions"].values()
    except (OSError, ValueError, KeyError):  # nobody has come yet
        return False
    told = [x["stats"] for x in there if x["silent_s"] < DRAINS_S[0]]
    return any(x.get("pending", 0) or not x.get("over", "") for x in told)
