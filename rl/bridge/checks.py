"""What is looked at in every tick before anything is told: a check pauses a robot, or fails it."""

from collections import deque
from collections.abc import Callable, Mapping
from enum import IntFlag
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import states
from rl.bridge.limits import Limits
from rl.bridge.posture import still, tilt_of
from rl.bridge.states import FAIL, PAUSE
from rl.spec import Spec

GONE_S = 1.0  # s of silence after which a robot is no longer there
BAD_PAUSE, BAD_FAIL = 2, 5  # messages in a row with numbers that are none
LATE_TIMES = 3  # that a tick is late in a second
JUMP = 1.5, 0.1  # times a joint's speed, and rad or m, by which no joint moves between states
STUCK_S, STIRS = 0.1, 0.5  # s that a sensor says the same of what moves by so many rad/s or m/s
WINDOW_S, FEW = 0.5, 10  # s in which lost states are counted, and of how many at least


class Reason(IntFlag):
    """Why a robot is held or damped, or its targets were not those wished for."""

    NUMBERS = 1  # messages with numbers that are none
    STATE = 2  # no state for too long
    PLAN = 4  # no target for too long
    OPERATOR = 8  # nothing of who drives it for too long
    TILT = 16  # it leans too far
    RANGE = 32  # a joint is beyond its range
    TRACKING = 64  # a joint does not follow
    LINK = 128  # too many states are lost
    MOTOR = 256  # a motor is too hot, or says that it failed
    LATE = 512  # this machine does not keep the rate
    HELD = 1024  # it was held for too long
    ASKED = 2048  # an operator said so
    POSITION = 4096  # cut, of which it is not held
    PACE = 8192
    TORQUE = 16384
    SENSES = 32768  # a sensor says what cannot be
    KEPT = 65536  # what it does is learned from, and not kept


SAID = {
    Reason.NUMBERS: "messages with numbers that are none",
    Reason.STATE: "no state for too long",
    Reason.PLAN: "no target for too long",
    Reason.OPERATOR: "no word of its operator for too long",
    Reason.TILT: "it leans too far",
    Reason.RANGE: "a joint is beyond its range",
    Reason.TRACKING: "a joint does not follow",
    Reason.LINK: "too many states are lost",
    Reason.MOTOR: "a motor is too hot, or says that it failed",
    Reason.LATE: "this machine does not keep the rate",
    Reason.HELD: "it was held for too long",
    Reason.ASKED: "its operator said so",
    Reason.POSITION: "a limit of position",
    Reason.PACE: "a limit of speed or acceleration",
    Reason.TORQUE: "a limit of torque",
    Reason.SENSES: "a sensor says what cannot be",
    Reason.KEPT: "what it does is not kept",
}


def said(mask: int) -> str:
    """The reasons in words."""
    return ", ".join(words for reason, words in SAID.items() if mask & reason) or "nothing"


class Seen(NamedTuple):
    """What checks are told of a tick; ages in s."""

    now: float
    state: str  # of states.STATES
    readings: Mapping[str, np.ndarray]  # the newest
    angles: Any  # [A], or None where nobody measures them
    speeds: Any
    wished: np.ndarray  # [A] what was wished for last, within its range
    state_age: float
    plan_age: float  # s since the last target that there is was due
    operator_age: float
    bad: int  # messages in a row with numbers that are none
    lost: int  # states that were sent and never came, since the last tick
    came: int  # and that came
    heat: float  # degrees C of the hottest motor
    failed: bool  # a motor says so
    late: float  # s that this tick began late
    kept: bool = True  # what it does, where it is learned from


class Checks:
    """The checks of one robot, and what they remember."""

    def __init__(self, spec: Spec, limits: Limits) -> None:
        self.spec, self.limits = spec, limits
        self.max_tilt = min(limits.max_tilt, spec.max_tilt)
        self.walks = spec.max_tilt < 180  # it may fall, and cannot be held anywhere
        self.speed = np.array([a.speed for a in spec.actuators])
        self.low = np.array([a.low for a in spec.actuators]) - limits.beyond
        self.high = np.array([a.high for a in spec.actuators]) + limits.beyond
        self.reset()

    def reset(self) -> None:
        self.held_since: float | None = None
        self.off_since = np.full(len(self.spec.actuators), np.inf)  # of joints that do not follow
        self.links: deque[tuple[float, int, int]] = deque()  # time, lost and came
        self.lost = self.came = 0  # in all of these
        self.lates: deque[float] = deque(maxlen=LATE_TIMES)
        self.before: Seen | None = None  # when a state came last
        self.same_since: Any = None  # s, of each joint and of the IMU

    @property
    def loss(self) -> float:
        """Share of the robot's last states that were lost."""
        return self.lost / max(self.lost + self.came, 1)

    def judge(self, seen: Seen) -> tuple[Reason, str]:
        """The reasons there are, and the gravest event they lead to, "" if none."""
        found = {check: event for check in CHECKS if (event := check(self, seen))}
        mask = Reason(0)
        for check in found:
            mask |= CHECKS[check]
        if Reason.PLAN in mask and seen.state_age > self.spec.control_dt:
            mask = mask & ~Reason.PLAN | Reason.STATE  # of what nothing is known no policy is asked
        return mask, FAIL if FAIL in found.values() else PAUSE if found else ""


def numbers(_: Checks, seen: Seen) -> str:
    return FAIL if seen.bad >= BAD_FAIL else PAUSE if seen.bad >= BAD_PAUSE else ""


def state(checks: Checks, seen: Seen) -> str:
    if seen.state == states.PASSIVE or seen.state_age <= checks.limits.state_age:
        return ""
    return FAIL if seen.state_age > GONE_S else PAUSE


def plan(checks: Checks, seen: Seen) -> str:
    late = seen.plan_age > checks.limits.plan_age * checks.spec.control_dt
    # A human acts through a policy that learns, and beside another.
    follows = states.MOVING if checks.spec.action else (states.ARMED,)
    return PAUSE if seen.state in follows and late else ""


def operator(checks: Checks, seen: Seen) -> str:
    driven = seen.state in (states.READY, *states.MOVING)
    return PAUSE if driven and seen.operator_age > checks.limits.operator_age else ""


def tilt(checks: Checks, seen: Seen) -> str:
    return FAIL if seen.state != states.PASSIVE and tilt_of(seen.readings) > checks.max_tilt else ""


def joints(checks: Checks, seen: Seen) -> str:
    if seen.angles is None or seen.state == states.PASSIVE:
        return ""
    return FAIL if ((seen.angles < checks.low) | (seen.angles > checks.high)).any() else ""


def tracking(checks: Checks, seen: Seen) -> str:
    """Joints that do not go where they are wished to be: stuck, or pushed."""
    if seen.angles is None or seen.state not in (states.READY, *states.MOVING):
        checks.off_since[:] = np.inf
        return ""
    off = np.abs(seen.wished - seen.angles) > checks.limits.tracking
    checks.off_since = np.where(off, np.minimum(checks.off_since, seen.now), np.inf)
    return PAUSE if (seen.now - checks.off_since > checks.limits.tracking_s).any() else ""


def senses(checks: Checks, seen: Seen) -> str:
    """No joint jumps, and no sensor of what moves says the same again and again."""
    if seen.angles is None or not seen.came:
        return ""
    before, checks.before = checks.before, seen
    if before is None or seen.now - before.now > checks.limits.state_age:
        checks.same_since = np.full(len(seen.angles) + 1, seen.now)
        return ""
    most = JUMP[0] * checks.speed * (seen.now - before.now) + JUMP[1]
    jumps = np.abs(seen.angles - before.angles) > most
    moves = np.abs(seen.speeds) > STIRS
    same = np.append((seen.angles == before.angles) & moves, _same_imu(checks, seen, before, moves))
    checks.same_since = np.where(same, checks.same_since, seen.now)
    frozen = seen.now - checks.same_since > STUCK_S
    return FAIL if seen.state != states.PASSIVE and (jumps.any() or frozen.any()) else ""


def _same_imu(checks: Checks, seen: Seen, before: Seen, moves: np.ndarray) -> bool:
    """A walker's IMU says just what it said, though joints move."""
    names = [name for name in ("gyro", "orientation") if name in seen.readings]
    same = [np.array_equal(seen.readings[x], before.readings[x]) for x in names]
    return checks.walks and bool(names) and all(same) and bool(moves.any())


def link(checks: Checks, seen: Seen) -> str:
    checks.links.append((seen.now, seen.lost, seen.came))
    checks.lost, checks.came = checks.lost + seen.lost, checks.came + seen.came
    while checks.links[0][0] < seen.now - WINDOW_S:
        _, lost, came = checks.links.popleft()
        checks.lost, checks.came = checks.lost - lost, checks.came - came
    sent = checks.lost + checks.came
    many = sent >= FEW and checks.lost > checks.limits.loss * sent
    return PAUSE if many and seen.state in (states.READY, *states.MOVING) else ""


def motors(checks: Checks, seen: Seen) -> str:
    return FAIL if seen.failed else PAUSE if seen.heat > checks.limits.heat else ""


def machine(checks: Checks, seen: Seen) -> str:
    if seen.late <= checks.limits.late:
        return ""
    checks.lates.append(seen.now)
    often = len(checks.lates) == LATE_TIMES and checks.lates[0] > seen.now - 1
    return PAUSE if often and seen.state in (states.READY, *states.MOVING) else ""


def kept(_: Checks, seen: Seen) -> str:
    return PAUSE if seen.state in (states.READY, *states.MOVING) and not seen.kept else ""


def held(checks: Checks, seen: Seen) -> str:
    """A walker that is held falls, unless it stands still."""
    if seen.state != states.HOLD or not checks.walks or still(seen.readings, seen.speeds):
        checks.held_since = None
        return ""
    checks.held_since = seen.now if checks.held_since is None else checks.held_since
    return FAIL if seen.now - checks.held_since > checks.limits.hold_s else ""


# Each is needed (tests/test_judged.py takes them out one by one).
CHECKS: dict[Callable[[Checks, Seen], str], Reason] = {
    numbers: Reason.NUMBERS, state: Reason.STATE, plan: Reason.PLAN, operator: Reason.OPERATOR,
    tilt: Reason.TILT, joints: Reason.RANGE, tracking: Reason.TRACKING, senses: Reason.SENSES,
    link: Reason.LINK, motors: Reason.MOTOR, machine: Reason.LATE, held: Reason.HELD,
    kept: Reason.KEPT,
}  # fmt: skip
