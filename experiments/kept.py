"""What a learner beside robots keeps of itself: lines of its record, checkpoints, its name."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.explorer import publish
from experiments.taken import LATELY, Intake, Store
from rl import runs
from rl.bridge.learn import segments, weights
from rl.record import Record
from rl.saver import Saver
from rl.stop import Stop
from rl.types import Metrics, Params, PyTree

MOMENT = 1_000  # updates
DRAINS_S = 2.0, 15.0  # s that robots have, at least and at most, to send what is left


class Work(NamedTuple):
    """What a learner works with."""

    log: Record
    saver: Saver
    intake: Intake
    store: Store
    stop: Stop
    process: subprocess.Popen[bytes]  # which takes in
    learning: Any  # an update, compiled

    def line(self, metrics: Metrics, updates: int) -> dict[str, Any]:
        """A line of the record."""
        intake, store = self.intake, self.store
        told: dict[str, Any] = {name: float(x) for name, x in metrics.items()}
        told |= {"q_over_return": abs(told["q"]) / max(store.scale, 1)} if "q" in told else {}
        told |= {name: float(x) for name, x in intake.counts.items() if name != "steps"}
        if intake.lately:
            done, alone = np.mean(intake.lately, 0)
            told |= {"episode_return": done, "episode_alone": alone}
        return told | {"shown": store.shown, "updates": updates}

    def keep(self, agent: Any, run: Any, metrics: Metrics) -> None:
        """A checkpoint of now, and what goes with it."""
        told, params = self.line(metrics, int(run.updates) * agent.delay), agent.deploy(run.learner)
        keep(self.log, self.saver, self.intake.counts["steps"], params, run, told)


def name(log: Record) -> str:
    """By which robots know the run they practise for: its folder's, and a number of its own."""
    plain = re.sub(r"[^a-z0-9]+", "-", log.out.resolve().name.lower()).strip("-")[:40]
    return f"{plain or 'run'}-{log.manifest['run_id']}"


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


def begun(saver: Saver, fresh: Callable[[], Any], step: int | None = None) -> Any:
    """As the run that is resumed had come to be, in the end or by a `step`; nothing is compiled
    before its checkpoint has turned out to be good."""
    found = saver.restore(jax.eval_shape(lambda: together(fresh())), step)
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


def behind(updates: int) -> None:
    """Say what is made up for, if it takes more than a moment."""
    if updates > MOMENT:
        said = "for which there was no time: Ctrl-C stops that, and --resume goes on"
        print(f"learns   {updates:,} more updates of what was done, {said}", flush=True)


def picture(log: Record) -> None:
    """Draw who did how much of the steps, and what came of episodes, to practice.png."""
    from matplotlib.figure import Figure  # slow to import, and only needed here

    rows = [row for row in runs.read_metrics(log.out) if "by_human" in row]
    if not rows:
        return
    told = [(0, 0), *((row["step"], row["by_human"]) for row in rows)]
    steps, by_human = np.array(told).T
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    shares = 100 * np.diff(by_human) / np.diff(steps)
    left.stairs(shares, steps, fill=True, alpha=0.6)
    left.set(xlabel="steps of robots", ylabel="% of them by a human", ylim=(0, 103))
    for name, label in (("episode_return", "done"), ("episode_alone", "done without a human")):
        told = [(row["step"], 100 * row[name]) for row in rows if name in row]
        right.plot(*np.array(told).reshape(-1, 2).T, label=label)
    right.set(xlabel="steps of robots", ylabel=f"% of the last {LATELY} episodes", ylim=(-3, 103))
    right.legend()
    path = log.out / "practice.png"
    log.attempt("picture", lambda: figure.savefig(path, dpi=120))
    print(f"practice {path}", flush=True)
