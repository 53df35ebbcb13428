"""Episodes of a simulated robot, in each of which something goes wrong, and what became of it.

Robot, bridge and policy are processes of their own, in lock step; the pilot is in this one.  Who
judges is rl/bridge/referee.py, by the wire and by how the robot truly was.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.fault_pilot import Pilots
from benchmarks.fault_plan import ANY, DAMPED, GOES, PILOT, POLICY, ROBOT, Case
from benchmarks.process import Failed
from rl import artefact
from rl.bridge import wire
from rl.bridge.referee import Verdict, judge
from rl.bridge.sim import faults
from rl.bridge.sim.faults import Fault
from rl.bridge.sim.sim import header
from rl.bridge.sim.simulator import Robot
from rl.spec import Spec

ENDS_S = 60.0
CALM = 0.3  # s before another episode begins
MOST = 1.6  # s of a fault: a robot that is silent for 2 s is given up
HZ = 500.0  # steps of physics a second
BE = {DAMPED: "damped", GOES: "moving"}  # on the wire; else safe


class Flown(NamedTuple):
    """What became of an episode."""

    case: Case
    robot: str
    onset: float  # s into its episode
    took: float  # s until it was in a state that the case wants; inf if never, nan if in any
    end: str  # its last state
    broken: dict[str, str]  # rules that its referee says it broke
    beyond: float  # rad or m, most that a joint was truly beyond its range
    late: bool  # it was not in time, or came back


class Plan(NamedTuple):
    """A batch: an episode of `seconds` for each case."""

    path: Path  # of the artefact
    cases: Sequence[Case]
    seconds: float
    rate: float  # ticks of the wire a second
    seed: int


def onsets(plan: Plan) -> np.ndarray:
    """When each fault begins, s by the robot's clock."""
    rng = np.random.default_rng((plan.seed, 0x0E))
    first = np.arange(len(plan.cases)) * plan.seconds
    return (
        first + np.round(rng.uniform(0.3, 0.45, len(first)) * plan.seconds * plan.rate) / plan.rate
    )


def timed(plan: Plan, who: str, spec: Spec) -> list[Fault]:
    """Those that befall `who`, at their times."""
    rng = np.random.default_rng((plan.seed, 0x0F))
    motors = rng.integers(len(spec.actuators), size=len(plan.cases))
    found = []
    for e, (case, onset) in enumerate(zip(plan.cases, onsets(plan), strict=True)):
        if case.who == who and case.kind in {*faults.BODY, *faults.LIES, *faults.FRAMES}:
            until = min(onset + min(case.lasts, MOST), (e + 1) * plan.seconds - CALM)
            found.append(Fault(case.kind, float(onset), float(until), case.size, int(motors[e])))
    return found


def fly(plan: Plan) -> list[Flown]:
    """Live through a batch."""
    found, desk, at = artefact.read(plan.path), wire.free_address(), wire.free_address()
    spec, count = found.spec, len(plan.cases)
    qpos, qvel = Robot(found, HZ).home()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as said:
        here = Path(folder)
        np.savez(here / "s.npz", qpos=np.tile(qpos, (count, 1)), qvel=np.tile(qvel, (count, 1)))
        faults.write(here / "robot.json", timed(plan, ROBOT, spec))
        faults.write(here / "policy.json", timed(plan, POLICY, spec))
        policy = "benchmarks.spoilt", plan.path, "--desk", desk, "--faults", here / "policy.json"
        sim = _start(
            said, "rl.bridge", "sim", plan.path, "--address", at, "--rate", plan.rate, "--seconds",
            plan.seconds, "--starts", here / "s.npz", "--truth", here / "truth.jsonl", "--wait",
            ENDS_S, "--hz", HZ, "--faults", here / "robot.json", "--seed", plan.seed)  # fmt: skip
        bridge = _start(said, "rl.bridge.robotd", plan.path, "--robot", at, "--desk", desk,
                        "--policy-patience", 0.4, "--pilot-patience", 0.5,
                        "--log", here / "f.mcap")  # fmt: skip
        pilots = Pilots(
            spec, wire.address(desk), plan, onsets(plan), timed(plan, PILOT, spec), bridge.pid,
            lambda: _start(subprocess.PIPE, *policy, "--seed", plan.seed),
        )  # fmt: skip
        try:
            pilots.live(ENDS_S)
            for process in (sim, bridge):
                process.wait(ENDS_S)
        finally:
            pilots.end()
            for process in (sim, bridge):
                process.kill()
                process.wait()
        if pilots.now < (count - 1) * plan.seconds:
            said.seek(0)
            raise Failed(f"A batch of {spec.name} ended too soon: {said.read()}")
        return flown(plan, spec, pilots.states, here / "truth.jsonl")


def flown(plan: Plan, spec: Spec, seen: list[tuple[float, str]], truth: Path) -> list[Flown]:
    """What became of each, by the states that were told and by the referee."""
    rows = [json.loads(line) for line in truth.read_text().splitlines()[1:]]
    times = np.array([row["time"] for row in rows])
    low, high = (np.array([getattr(a, k) for a in spec.actuators]) for k in ("low", "high"))
    told, names = np.array([t for t, _ in seen]), [state for _, state in seen]
    out = []
    for e, (case, onset) in enumerate(zip(plan.cases, onsets(plan), strict=True)):
        begins, ends = e * plan.seconds - 1e-9, (e + 1) * plan.seconds - 1e-9
        mine = np.flatnonzero((told >= begins) & (told < ends))
        after = [(told[i] - onset, names[i]) for i in mine if told[i] >= onset - 1e-9]
        took, back = _arrived(case, after)
        span = np.flatnonzero((times >= begins) & (times < ends))
        verdict = _judged(plan, spec, case, float(onset), [rows[i] for i in span])
        joints = np.array([rows[i]["joints"] for i in span])
        # States are told once a period: what is to the tick is the referee's.
        late = back or (case.ends != ANY and took > within(case, spec, plan.rate) + spec.control_dt)
        out.append(Flown(
            case, spec.name, float(onset - e * plan.seconds), took, after[-1][1] if after else "",
            verdict.first, float(np.max([low - joints, joints - high])), late,
        ))  # fmt: skip
    return out


def within(case: Case, spec: Spec, rate: float) -> float:
    """s in which it must be where the plan says."""
    return case.within + case.periods * spec.control_dt + case.ticks / rate


def _arrived(case: Case, after: list[tuple[float, str]]) -> tuple[float, bool]:
    """s until a state that is wanted, and whether it came back from there."""
    if case.ends == ANY:
        return float("nan"), False
    wanted = [state in case.ends for _, state in after]
    if case.ends == GOES:
        return 0.0 if all(wanted) else float("inf"), not all(wanted)
    first = wanted.index(True) if True in wanted else -1
    return (after[first][0], not all(wanted[first:])) if first >= 0 else (float("inf"), True)


def _judged(plan: Plan, spec: Spec, case: Case, onset: float, rows: list[Any]) -> Verdict:
    expect = []
    if case.ends != ANY:
        be, time = BE.get(case.ends, "safe"), within(case, spec, plan.rate)
        if be == "safe":  # a joint needs its time to stop
            time += max(a.speed / a.acceleration if a.acceleration else 0 for a in spec.actuators)
            time += spec.control_dt
        last = rows[-1]["time"] - 0.5 / plan.rate
        time = min(time, last - onset - 1 / plan.rate)  # it may be over: who was damped falls
        expect = [{"name": case.name, "from": onset, "within": time, "be": be, "until": last}]
    free = [[onset, rows[-1]["time"]]] if case.ends == ANY and case.who == PILOT else []
    lines = [json.dumps(row | {"t": t}) for t, row in enumerate(rows)]
    return judge([json.dumps(header(spec, plan.rate, expect, released=free)), *lines])


def _start(said: Any, module: str, *words: Any) -> subprocess.Popen[bytes]:
    errors = None if said == subprocess.PIPE else said
    command = [sys.executable, "-m", module, *map(str, words)]
    return subprocess.Popen(command, stdout=said, stderr=errors)
