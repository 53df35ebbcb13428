"""What must come of each fault that a robot, its policy, its pilot or their processes may have.

A case says whom it befalls, with what, for how long, in what state the robot must be then and
until its episode ends, and within what time.  The limits of motors hold in all of them, always.
"""

from typing import Any, NamedTuple

from rl.bridge import states
from rl.bridge.checks import BAD_FAIL, BAD_PAUSE, GONE_S
from rl.bridge.limits import Limits

GOES = (states.ARMED,)  # as if nothing had been
HELD = states.HOLD, states.FAULT  # a walker that cannot stand still is damped
DAMPED = (states.FAULT,)
ANY = states.STATES  # within limits, whatever becomes of it
EVER = 9.0  # s: to the end of its episode
ROBOT, POLICY, PILOT, PROCESS = "robot", "policy", "pilot", "process"
ALL, WALKERS, ARMS = "all", "walkers", "arms"
LIMITS = Limits()


class Case(NamedTuple):
    who: str
    kind: str  # of rl/bridge/sim/faults.py, or of what benchmarks/faults.py does itself
    size: float
    lasts: float  # s
    ends: tuple[str, ...]
    within: float = 0.0  # s, and so many ...
    periods: float = 0.0  # ... of the policy
    robots: str = ALL
    note: str = ""
    ticks: int = 2  # of the wire, beyond what a limit says

    @property
    def name(self) -> str:
        what = f"{self.kind} {self.size:g}" if self.size != 1 else self.kind
        lasting = "" if self.lasts == EVER else f", {self.lasts:g} s"
        return f"{self.who}: {what}{lasting}"


def _policy(kind: str, ends: tuple[str, ...], size: float = 1.0, lasts: float = EVER,
            periods: float = LIMITS.plan_age, note: str = "") -> Case:  # fmt: skip
    return Case(POLICY, kind, size, lasts, ends, 0.0, periods, note=note)


def _robot(kind: str, ends: tuple[str, ...], size: float = 1.0, lasts: float = EVER,
           within: float = 0.0, **more: Any) -> Case:  # fmt: skip
    return Case(ROBOT, kind, size, lasts, ends, within, **more)


def _pilot(kind: str, ends: tuple[str, ...], size: float = 1.0, lasts: float = EVER,
           within: float = LIMITS.operator_age, note: str = "") -> Case:  # fmt: skip
    return Case(
        PILOT, kind, size, lasts, ends, within, 1.0, note=note
    )  # it is told once in a period


TWO = float(BAD_PAUSE)  # answers
CASES = (
    # A policy, in what it answers.
    _policy("says nan", HELD, periods=TWO),
    _policy("says inf", HELD, periods=TWO),
    _policy("one too few", HELD, periods=TWO),
    _policy("huge", ANY, note="limited, and damped when it leans too far"),
    _policy("thrown", ANY, 1.0, note="noise of 1 rad or m"),
    _policy("thrown", ANY, 0.1),
    _policy("in another order", ANY),
    _policy("of another question", HELD, 5),
    _policy("of the future", HELD, 50),
    _policy("old alone", HELD),
    _policy("old besides", GOES),
    _policy("twice", GOES),
    _policy("flood", GOES, 20),
    _policy("short", HELD),
    _policy("long", HELD),
    _policy("another robot's", HELD),
    _policy("another version's", HELD),
    _policy("flipped", HELD),
    _policy("lost", HELD),
    _policy("lost", GOES, 1.0, 0.02, note="one answer"),
    _policy("out of order", ANY, 0.03),
    # A pilot, in what it says.
    _pilot("lost", HELD),
    _pilot("lost", GOES, 1.0, 0.1),
    _pilot("says nan", HELD),
    _pilot("says inf", HELD),
    _pilot("huge", GOES, note="is asked for what it may be asked for at most"),
    _pilot("old alone", HELD),
    _pilot("twice", GOES),
    _pilot("flood", GOES, 20),
    _pilot("short", HELD),
    _pilot("another robot's", HELD),
    _pilot("stop", DAMPED, within=0.0),
    _pilot("a watcher stops", DAMPED, within=0.0),
    _pilot("wait", HELD, within=0.0),
    _pilot("words that lead nowhere", GOES),
    _pilot("takes and gives", ANY, note="and jogs, its hand on and off"),
    _pilot("says anything", ANY, note="all events at random"),
    # Processes.
    Case(PROCESS, "policy killed", 1, EVER, HELD, 0.0, LIMITS.plan_age),
    Case(PROCESS, "policy frozen", 1, EVER, HELD, 0.0, LIMITS.plan_age),
    Case(PROCESS, "policy frozen", 0.02, EVER, GOES, note="20 ms of wall time, in lock step"),
    Case(PROCESS, "recorder killed", 1, EVER, GOES),
    Case(PROCESS, "recorder frozen", 1, EVER, GOES),
    Case(PROCESS, "disk full", 1, EVER, GOES),
    # What a robot says, and whether it is heard.
    _robot("lost", GOES, 1.0, 0.02, robots=WALKERS),
    _robot("lost", HELD, 1.0, 0.4, within=LIMITS.state_age),
    _robot("lost", DAMPED, 1.0, 1.3, within=GONE_S),
    _robot("lost", GOES, 0.05, robots=WALKERS, note="of its states 5% are lost"),
    _robot("lost", HELD, 0.5, within=0.6, robots=WALKERS, note="half of its states are lost"),
    _robot("late", ANY, 0.02),
    _robot("late", HELD, 0.2, within=LIMITS.state_age),
    _robot("jitters", ANY, 0.01),
    _robot("out of order", ANY, 0.01),
    _robot("twice", GOES),
    _robot("flood", GOES, 5),
    _robot("old besides", GOES),
    _robot("old alone", HELD, within=LIMITS.state_age),
    _robot("flipped", GOES, 0.02, robots=WALKERS),
    _robot("short", HELD, within=LIMITS.state_age),
    _robot("long", HELD, within=LIMITS.state_age),
    _robot("another robot's", HELD, within=LIMITS.state_age),
    _robot("another version's", HELD, within=LIMITS.state_age),
    _robot("says nan", DAMPED, ticks=BAD_FAIL + 2),
    _robot("encoder says nan", DAMPED, ticks=BAD_FAIL + 2),
    _robot("encoder says nan", GOES, 1.0, 0.002, robots=WALKERS, note="once"),
    _robot("encoder frozen", ANY, note="found where its speed says otherwise"),
    _robot("encoder jumps", DAMPED, 1.2, robots=WALKERS),
    _robot("encoder jumps", ANY, 0.05),
    _robot("encoder flipped", ANY, note="found where the joint is not at 0"),
    _robot("encoder creeps", ANY, 0.2),
    _robot("imu dead", DAMPED, robots=WALKERS),
    _robot("imu frozen", DAMPED, within=0.25, robots=WALKERS),
    _robot("imu sign flips", GOES, robots=WALKERS, note="which is the same turn"),
    _robot("motor hot", HELD, 90),
    _robot("motor failed", DAMPED),
    _robot("clock jumps", GOES, 10),
    _robot("clock jumps", GOES, -10),
    _robot("counts anew", HELD, within=LIMITS.state_age),
    # Its body.
    _robot("joint stuck", ANY),
    _robot("motor limp", ANY),
    _robot("battery sags", ANY, 0.3),
    _robot("battery sags", ANY, 0.9),
)  # fmt: skip
