"""From a flight's log to what the robot is made of, and to the ranges that training may draw from.

python -m rl.bridge identify excite.mcap --artefact runs/ppo/artefact-0.zip --out ranges.json
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tyro

from rl import artefact
from rl.spec import Spec

if TYPE_CHECKING:
    from rl.bridge.identify.fit import Fit, Fitted

LEAST_FACTOR = 0.01  # of friction: training scales it, and cannot by 0
TOUCHES = 0.25  # share of the motion that no robot of this kind would leave unexplained


@dataclass(frozen=True)
class Identify:
    """Tell delay, friction, gains and payload of a robot from a flight of jogs."""

    log: tyro.conf.Positional[Path]  # of excite, or of run --log
    artefact: Path  # whose model it is compared with
    out: Path | None = None  # a .json file of all that is found, with ranges for training


def identify(args: Identify) -> None:
    from mujoco import sysid

    from rl.bridge import launch, robots
    from rl.bridge.log import flight

    if not hasattr(sysid, "optimize"):  # it says nothing of what it lacks
        raise ValueError("identify needs more of MuJoCo: pip install 'robotrl[sysid]'.")
    if args.out and args.out.exists():
        raise ValueError(f"--out {args.out} is there already: name another.")
    log, found = flight.read(args.log), artefact.read(launch.found(args.artefact))
    spec = log.about.setup.spec
    if found.spec != spec:
        raise ValueError(
            f"{args.log} is a flight of {spec.name}, and not of this artefact's {found.spec.name}: "
            "give the artefact that flew."
        )
    if not log.whole:
        print(f"note     {args.log} was cut short, or is damaged: what is whole of it was read")
    fit = fitted(found, log, robots.codec(log.about))
    tell(fit, spec)
    if args.out:
        args.out.write_text(json.dumps(facts(fit, spec, log.about.setup.artefact), indent=1) + "\n")
        print(f"ranges   {args.out}")


def fitted(found: artefact.Artefact, log: Any, codec: Any) -> "Fit":
    """ValueError if the log does not tell, and why."""
    from rl.bridge.identify import bench, fit, shoot, tracks

    setup = log.about.setup
    stretches = tracks.tracks(log, codec)
    shots = shoot.shots(bench.bench(found), stretches, setup.spec.control_dt / setup.ticks)
    left = f"; {shots.unsteady:.0f} s left out, as its base moved" if shots.unsteady else ""
    seconds = f"{len(shots.starts)} shots of {shoot.SHOT_S:g} s"
    print(f"fitting  {seconds}, which takes a minute or more{left}", flush=True)
    told = fit.fit(shots)
    if told.left > TOUCHES:
        raise ValueError(
            f"Whatever its joints are made of, {told.left:.0%} of their motion is unexplained: the "
            "robot touched something, or is not this artefact's. Jog it in free air."
        )
    return told


def tell(fit: "Fit", spec: Spec) -> None:
    """What was found, in a table."""
    rows = [("", "model", "fitted", "95% interval", "")]
    rows += [_row(x) for x in fit.found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(map(str.ljust, row, widths)).rstrip())
    print("damping is of kd and the joint's own together: at one kd nobody can tell them apart")
    if not any(x.unknown.name == "payload" for x in fit.found):
        print("payload is not told: on a stand no joint feels what the base carries")
    if untold := [x.unknown.name for x in fit.found if not x.told]:
        print(f"not told by this log: {', '.join(untold)}")
    print(
        f"left     {fit.rms:.2g} rad or m, {fit.left:.1%} of the joints' motion "
        f"(the model as it is: {fit.before:.1%})"
    )
    if flags := flags_of(fit, spec):
        print(f"training {flags}")
    elif spec.max_tilt == 180:
        print("training no flags: tasks of arms draw none of these, and --out keeps them")


def _row(x: "Fitted") -> tuple[str, ...]:
    unit, times = ("ms", 1e3) if x.unknown.unit == "s" else (x.unknown.unit, 1.0)
    model, value, low, high = (f"{times * v:.4g}" for v in (x.unknown.nominal, x.value, x.low,
                                                            x.high))  # fmt: skip
    note = "" if x.told else "not told: about as wide as was thought before"
    return x.unknown.name, model, value, f"{low} to {high} {unit}", note


def ranges(found: Sequence["Fitted"], walks: bool) -> dict[str, list[float]]:
    """Of the terms of envs/randomise.py: the hull of all joints' intervals that the log tells."""
    hulls: dict[str, list[float]] = {}
    for x in found:
        term, scale = x.unknown.name.split()[-1], 1.0
        if term == "delay" or not x.told or (term == "payload" and not walks):
            continue  # the payload of an arm is in its hand, and not in its root
        if term == "frictionloss":
            if not x.unknown.nominal:
                continue  # nothing to scale
            scale = 1 / x.unknown.nominal
        low, high = hulls.setdefault(term, [np.inf, -np.inf])
        hulls[term] = [min(low, x.low * scale), max(high, x.high * scale)]
    least = {"frictionloss": LEAST_FACTOR}
    return {term: [max(floor(low * 100) / 100, least.get(term, -np.inf)), ceil(high * 100) / 100]
            for term, (low, high) in hulls.items()}  # fmt: skip


def delays(found: Sequence["Fitted"], spec: Spec) -> list[int]:
    """Of targets, in control steps, least and most."""
    delay = next(x for x in found if x.unknown.name == "delay")
    return [floor(delay.low / spec.control_dt), ceil(delay.high / spec.control_dt)]


def flags_of(fit: "Fit", spec: Spec) -> str:
    """For the tasks of walkers; those of arms draw none."""
    if spec.max_tilt == 180:
        return ""
    words = ["--env.randomised 1"]
    for term, (low, high) in ranges(fit.found, walks=True).items():
        words.append(f"--env.ranges.{term} {low:g} {high:g}")
    least, most = delays(fit.found, spec)
    return " ".join([*words, f"--env.target-delay {least} {most}"])


def facts(fit: "Fit", spec: Spec, digest: str) -> dict[str, Any]:
    """All that was found, as JSON has it."""
    return {
        "robot": spec.name,
        "artefact": digest,
        "left": fit.left,
        "rms": fit.rms,
        "parameters": [
            {"name": x.unknown.name, "unit": x.unknown.unit, "model": x.unknown.nominal,
             "fitted": x.value, "interval": [x.low, x.high], "told": x.told}
            for x in fit.found
        ],
        "ranges": ranges(fit.found, spec.max_tilt < 180),
        "target_delay": delays(fit.found, spec),
    }  # fmt: skip
