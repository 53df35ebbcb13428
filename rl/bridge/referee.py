"""Which rules did commands to a robot break?  A referee that knows nothing of what sent them.

python -m rl.bridge.referee FILE judges what a simulated robot wrote of its wire and of how it truly
is.  It shares no line with the bridge, and was written from the rules alone.  A row of an array is
a tick, a rule is how far each tick is beyond it: [T] of the robot, [T, A] of its motors; nan, what
nobody knows, is not.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rl.bridge.truth import Log, log_of

SLACK, SOFT_START, BRAKING, UNSEEN = 1e-6, 1.0, 1.0, 1.0  # s; the slack is for rounded times
TINY, ULP = 1e-6, 2.0**-23  # rad; float32 rounding of the difference of two numbers near 1
MORE, LESS, SPENT = 1 + 1e-5, 1 - 1e-5, 0.999
COLUMNS = ("low", "high", "kp", "kd", "torque", "speed", "acceleration", "torque_rate")
Header = dict[str, Any]
Rules = dict[str, tuple[str, np.ndarray]]  # text, and excess [T, A], or [T] for the robot


class Verdict(NamedTuple):
    """The outcome for one file; limits: the greatest share that was used of each."""

    ticks: int
    commands: int
    damped: int
    missing: int
    violations: dict[str, int]
    first: dict[str, str]
    limits: dict[str, float]


def _last(mask: np.ndarray, before: int = 0) -> np.ndarray:
    """Newest index at which the mask [T, ...] holds, up to as many rows before each; else -1."""
    index = np.arange(len(mask)).reshape(-1, *[1] * (mask.ndim - 1))
    newest = np.maximum.accumulate(np.where(mask, index, -1))
    return np.concatenate((np.full_like(newest[:before], -1), newest[: len(mask) - before]))


def _lasts(mask: np.ndarray, episode: np.ndarray, rate: float) -> np.ndarray:
    """Whether the mask [T, ...] has held for as long as what sensors hide may be wrong."""
    t, begin = (x.reshape(-1, *[1] * (mask.ndim - 1)) for x in (np.arange(len(mask)), episode))
    return mask & (t - np.maximum(_last(~mask), begin) > round(UNSEEN * rate))


def _lean(readings: dict[str, np.ndarray]) -> np.ndarray:
    """Degrees [T] from upright; inf if a quaternion or up vector is zero, nan if unknown."""
    upright = readings.get("orientation", readings.get("up", readings[""]))
    norm = np.linalg.norm(upright, axis=1)
    unit = upright / np.where(norm == 0, 1, norm)[:, None]
    cosine = 1 - 2 * (unit[:, 1:3] ** 2).sum(axis=1) if "orientation" in readings else unit[:, -1]
    return np.where(norm == 0, np.inf, np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def _motors(header: Header, log: Log) -> dict[str, np.ndarray]:
    """Limits [A] (step and bend: rad in a policy period and its change), measured joints [T, A]."""
    limits, spec = header["limits"], header["spec"]
    rows, period = spec["actuators"], spec["control_dt"]
    motors = {key: np.array([float(row[key]) for row in rows]) for key in COLUMNS}
    motors |= {k: np.hstack([log.readings[r[k]] for r in rows]) for k in ("position", "velocity")}
    rate = limits["torque"] * motors["torque_rate"] * period / np.maximum(motors["kp"], 1e-9)
    step = np.minimum(limits["speed"] * motors["speed"] * period, np.where(rate > 0, rate, np.inf))
    bend = limits["acceleration"] * motors["acceleration"] * period**2
    motors["bend"] = np.where(motors["acceleration"] > 0, bend, np.inf)
    motors["step"] = np.maximum(step, 1e-9)  # not 0, as shares of it are taken
    motors["torque"] = np.maximum(limits["torque"] * motors["torque"], 1e-9)
    motors["near"] = TINY + ULP * np.maximum(abs(motors["low"]), abs(motors["high"]))
    return motors


def _motor_rules(header: Header, log: Log) -> tuple[Rules, dict[str, float]]:
    """The rules of single motors, and the greatest shares of limits."""
    motors, t, now = _motors(header, log), np.arange(len(log.time)), log.time
    lag, tick = round(header["rate"] * header["spec"]["control_dt"]), 1 / header["rate"]
    low, high, near, joint = (motors[key] for key in ("low", "high", "near", "position"))
    target, kp, kd = np.moveaxis(np.where(log.active[:, None, None], log.numbers, np.nan), 1, 0)
    episode, loose = _last(log.reset), _last(~log.active)
    run = _last(log.active & (log.reset | (_last(log.active, 1) < t - 1)))  # its first tick
    start = np.clip(joint, low, high)[run]
    torque = abs(kp * (target - joint) - kd * motors["velocity"])
    # An unmeasured torque counts as at its limit: what only that excuses cannot be judged.  Who was
    # pulled along at it may be too fast to stop gently before the range's end.
    spent = log.active[:, None] & ~(torque < SPENT * motors["torque"])
    while_ = 2 * lag + round(header["rate"] * BRAKING)
    excused = _last(spent) >= np.maximum(t - while_, episode)[:, None]
    spread = np.where((t == run)[:, None], abs(target - start), 0)
    for ticks in range(1, lag + 1):
        spread = np.fmax(spread, abs(target - target[np.maximum(t - ticks, run)]))
    past = [np.where((p < run)[:, None], start, target[p.clip(0)]) for p in (t - lag, t - 2 * lag)]
    bend = abs(target - 2 * past[0] + past[1])
    since = now - np.where(loose >= episode, now[loose], now[episode] - tick)
    soft = (since < SOFT_START + 2 * tick - SLACK)[:, None]
    low_kp = np.where(spent | soft, -kp, np.fmax(-kp, LESS * motors["kp"] - kp))
    gains = np.maximum.reduce([low_kp, kp - MORE * motors["kp"], kd - MORE * motors["kd"], -kd])
    if lag < 1:
        raise ValueError("a policy period has no tick")
    damping = header["limits"]["damping"]
    off = abs(log.numbers[:, 2] - damping) - 1e-5 * damping
    gains = np.where(log.damped[:, None], np.fmax(abs(log.numbers[:, 1]), off), gains)
    bend_excess = np.where(excused, np.nan, bend - MORE * motors["bend"] - 2 * near)
    torque_excess = torque - 1.001 * motors["torque"] - 2e-6 * abs(kp) * (1 + abs(target))
    rules = {
        "range": ("target out of range, rad", np.fmax(low - target, target - high) - near),
        "gains": ("gain off", gains),
        "speed": ("targets of a period too far apart, rad", spread - MORE * motors["step"] - near),
        "acceleration": ("steps of two periods too different, rad", bend_excess),
        "torque": ("predicted torque too large, N m", torque_excess),
    }
    shares = {"speed": spread / motors["step"], "torque": torque / motors["torque"]}
    return rules, {key: float(np.fmax.reduce(s, None, initial=0)) for key, s in shares.items()}


def _robot_rules(header: Header, log: Log) -> Rules:
    """The rules of whole commands, the rule beyond and the expectations."""
    spec, limits, tick, now = header["spec"], header["limits"], 1 / header["rate"], log.time
    episode, last = _last(log.reset), _last(log.damped | log.active, 1)
    back = log.active & (last >= episode) & log.damped[last]
    free = np.any([(a - SLACK <= now) & (now <= b + SLACK) for a, b in header["released"]], axis=0)
    undamped, targets = _last(log.active, 1), log.numbers[:, 0]
    known = log.active & (undamped >= np.maximum(episode, _last(log.damped, 1) + 1))
    moved = np.where(known, abs(targets - targets[undamped]).max(axis=1), np.nan)
    old = log.active & (now - log.received > limits["state_age"] + 2 * tick + SLACK)
    max_tilt = min(spec["max_tilt"], limits["max_tilt"])
    judged = log.active & ~back
    joint, low, high = (_motors(header, log)[key] for key in ("position", "low", "high"))
    beyond = np.fmax(low - joint, joint - high) - limits["beyond"] - TINY
    tilts = judged & (max_tilt < 180)
    tilt = np.where(tilts, _lean(log.readings) - max_tilt - 0.01, 0)
    # What sensors hide may be wrong for a while, and a little more.
    truly = np.fmax(low - log.joints, log.joints - high) - 1.5 * limits["beyond"]
    crushed = np.where(_lasts(judged[:, None] & (truly > 0), episode, header["rate"]), truly, 0)
    lying = log.lean - max_tilt - 10
    fallen = np.where(_lasts(tilts & (lying > 0), episode, header["rate"]), lying, 0)
    rules = {
        "garbled": ("not a command, datagrams", log.odd[:, 0]),
        "burst": ("too many datagrams", log.odd[:, 1]),
        "finite": ("not finite, numbers", log.odd[:, 2]),
        "tilt": ("not damped though tilted too far, degrees", tilt),
        "beyond": ("not damped though too far out, rad", judged[:, None] * beyond),
        "crushed": ("truly too far out for long, rad", crushed),
        "fallen": ("truly tilted too far for long, degrees", fallen),
        "stale": ("moved, rad", np.where(old, np.where(known, moved - TINY, np.inf), 0)),
        "returned": ("active after a damped command", back & ~free),
    }
    return rules | _expectations(header["expect"], log, moved, tick)


def _expectations(expect: list[dict[str, Any]], log: Log, moved: np.ndarray, tick: float) -> Rules:
    """A rule for each expectation; moved: rad [T], nan if not comparable."""
    still, missing, rules = moved <= TINY, ~(log.active | log.damped), {}
    are = {"damped": log.damped, "still": still, "safe": ~log.active | still}
    are |= {"moving": ~log.damped, "silent": missing}
    for want in expect:
        start, until, name = want["from"] + want["within"], want["until"], f"expect: {want['name']}"
        end = until + SLACK if until >= start else start + tick - 2 * SLACK
        span = (start - SLACK <= log.time) & (log.time <= end)
        wrong = span & ~are[want["be"]]
        needed = span & (moved > TINY) if want["be"] == "moving" else span
        wrong[-1] |= not needed.any()
        rules[name] = (f"not {want['be']}", wrong | rules.get(name, ("", wrong))[1])
    return rules


def judge(lines: Iterable[str]) -> Verdict:
    """The verdict on a truth file; ValueError if it is none."""
    rows, known = iter(lines), {"Infinity": math.inf, "-Infinity": -math.inf}
    try:
        header = json.loads(next(rows, ""), parse_constant=known.__getitem__)
        log = log_of(header["spec"], rows)
        rules, shares = _motor_rules(header, log)
        rules |= _robot_rules(header, log)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        why = "its first line is no JSON" if isinstance(error, json.JSONDecodeError) else error
        raise ValueError(f"it is no truth file: {why}") from error
    counts, first = {}, {}
    for rule, (words, excess) in rules.items():
        table = np.nan_to_num(excess.reshape(len(log.time), -1) * 1.0, nan=-1, posinf=np.inf)
        broken = np.flatnonzero((table > 0).any(axis=1))
        if len(broken):
            row = table[broken[0]]
            motor = header["spec"]["actuators"][row.argmax()]["name"]
            counts[rule], who = len(broken), motor if excess.ndim == 2 else "robot"
            first[rule] = f"tick {broken[0]}, {who}: {words} by {row.max():.4g}"
    damped, missing = int(log.damped.sum()), int((~(log.active | log.damped)).sum())
    return Verdict(len(log.time), len(log.time) - missing, damped, missing, counts, first, shares)


def parser() -> argparse.ArgumentParser:
    told = "Judge what simulated robots wrote: a line of JSON of each; status 1 of a broken rule."
    made = argparse.ArgumentParser("python -m rl.bridge.referee", description=told)
    made.add_argument("file", nargs="+", help="of python -m rl.bridge sim --truth FILE")
    return made


def main(paths: Iterable[str]) -> int:
    """Judge files: 0, 1 if a rule was broken, 2 if one cannot be read."""
    status = 0
    for path in paths:
        try:
            with open(path, errors="replace") as lines:
                verdict = judge(lines)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            print(f"error: {path}: {why}.", file=sys.stderr)
            return 2
        print(json.dumps({"file": path, **verdict._asdict()}), flush=True)
        status |= bool(verdict.violations)
    return status


if __name__ == "__main__":
    sys.exit(main(parser().parse_args().file))
