"""What reaches the motors, whatever a policy says and whatever a robot measures."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import envs
from rl import export
from rl.bridge import wire
from rl.bridge.limiter import HOLD, RUN, Limiter, Limits, tilt_of
from rl.spec import Spec

LIMITS, DT, TICKS = Limits(), 0.02, 12_500  # ticks of each adversary


@cache
def go2() -> Spec:
    task: Any = envs.make_task("go2-joystick-flat")
    public = [name for name in task.spec.sensors if name not in task.spec.privileged]
    sensors, channels = export.sensors(task.model(), public), export.channels(task.spec.command)
    of = task.spec.actuators, public, task.legged.pose, task.spec.speeds
    return Spec("go2", sensors, export.actuators(task.model(), *of), channels, DT, 0.004, 60.0)


@cache
def of(field: str) -> np.ndarray:
    return np.array([getattr(motor, field) for motor in go2().actuators])


def body(angles: Any = None, speeds: Any = 0.0, quat: Any = (1, 0, 0, 0)) -> dict[str, np.ndarray]:
    """Readings, at rest and upright where nothing else is said."""
    joints = [of("rest") if angles is None else angles, np.broadcast_to(speeds, 12)]
    numbers = np.concatenate([*joints, np.zeros(3), quat]).astype(np.float32)
    told = {sensor.name: numbers[i : i + 1] for i, sensor in enumerate(go2().sensors[:24])}
    return told | {"gyro": numbers[24:27], "orientation": numbers[27:]}


class Log:
    """Tick by tick what came in, and what went out as the robot hears it."""

    def __init__(self) -> None:
        self.limiter, self.rows = Limiter(go2(), LIMITS), []

    def tick(self, wished: Any, told: Any, age: float = 0.0, good: bool = True) -> wire.Command:
        made = self.limiter.tick(len(self.rows), wished, told, age, np.zeros(3))
        message = wire.decode(wire.encode(wire.command_message(go2(), made, 0.0)))
        got: Any = wire.command_of(go2(), message)
        assert got.seq == len(self.rows)
        numbers = np.concatenate([*told.values()])
        self.rows.append((*got[1:5], numbers[:12], numbers[12:24], numbers[27:], good, False))
        return got

    def reset(self) -> None:
        self.limiter.reset()
        self.rows[-1] = (*self.rows[-1][:-1], True)

    def columns(self) -> dict[str, np.ndarray]:
        names = "targets", "kp", "kd", "damp", "q", "dq", "quat", "good", "last"
        return {name: np.array([row[i] for row in self.rows]) for i, name in enumerate(names)}


@np.errstate(invalid="ignore")  # of readings that are no numbers
def violations(log: dict[str, np.ndarray]) -> set[str]:
    """What a robot's maker would complain of.

    `good`: nothing is wrong with what came in; `last`: of its episode.
    """
    targets, on, good = log["targets"], ~log["damp"], log["good"]
    low, high, most = of("low").astype("f4"), of("high").astype("f4"), of("torque")
    first = np.concatenate([[True], log["last"][:-1]])
    before = np.concatenate([targets[:1], targets[:-1]])
    q, rest = log["q"].astype("f4"), of("rest").astype("f4")
    start = np.where(np.isfinite(q).all(1, keepdims=True), np.clip(q, low, high), rest)
    before = np.where(first[:, None], start, before)
    began = ~on & (first | np.concatenate([[True], on[:-1]]))
    kp, kd = np.where(on[:, None], of("kp"), 0), np.where(on[:, None], of("kd"), LIMITS.damping)
    torque = log["kp"] * (targets - log["q"]) - log["kd"] * log["dq"]
    w, x, y, z = (log["quat"] / np.linalg.norm(log["quat"], axis=1, keepdims=True)).T
    tilt = np.degrees(np.arccos(np.clip(w * w - x * x - y * y + z * z, -1, 1))) - 60
    faults = np.zeros(len(good))  # in a row
    for t in np.flatnonzero(~good):
        faults[t] = 1 if first[t] else 1 + faults[t - 1]
    left = faults * DT - LIMITS.hold_s
    step, drag = of("speed") * DT, of("kd") * log["dq"]
    least = np.maximum(np.maximum(low, before - step), log["q"] + (drag - most) / of("kp"))
    top = np.minimum(np.minimum(high, before + step), log["q"] + (drag + most) / of("kp"))
    found = {
        "no number": ~np.isfinite(np.concatenate([targets, log["kp"], log["kd"]], 1)).all(1),
        "range": ((targets < low) | (targets > high)).any(1),
        "rate": (np.abs(targets - before) > step + 1e-6).any(1),
        "torque": on & good & (np.abs(torque) > most + 1e-3).any(1),
        "gains": (np.abs(log["kp"] - kp) + np.abs(log["kd"] - kd) > 1e-6).any(1),
        "moved in a fault": ~good & (targets != before).any(1),
        "held for ever": on & (left > DT / 2),
        "not held": began & ~good & (left < -DT / 2) & ~(tilt > -0.01),
        "came back": on & ~first & np.concatenate([[False], ~on[:-1]]),
        "fell": on & good & (tilt > 0.01),
        "gave up": began & good & (tilt < -0.01) & (least < top - 1e-3).all(1),
    }
    return {name for name, wrong in found.items() if wrong.any()}


class Robot:
    """Joints that go where they are told, more or less; some robots jump, lie or turn over."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.kind = rng, rng.choice(["good", "jumps", "lies", "topples"])
        self.angles, self.lean = of("rest") + rng.normal(0, 0.1, 12), 0.0

    def told(self, targets: np.ndarray) -> tuple[dict[str, np.ndarray], bool]:
        """Readings, and whether they are readings."""
        rng, odd = self.rng, self.rng.random() < 0.02
        speeds = np.clip((targets - self.angles) * rng.uniform(0, 20), -20, 20)
        self.angles = self.angles + speeds * DT
        if self.kind == "jumps" and odd:
            self.angles += rng.normal(0, 0.5, 12)
        self.lean += 0.02 * (self.kind == "topples")
        quat = 1.01 * np.array([np.cos(self.lean / 2), 0, np.sin(self.lean / 2), 0])
        lies = self.kind == "lies" and odd
        bad = np.where(np.arange(12) == 3, rng.choice([np.nan, np.inf, -np.inf]), self.angles)
        return body(bad if lies else self.angles, speeds + rng.normal(0, 1, 12), quat), not lies


def one(*them: Any) -> Any:
    return lambda rng, at: them[rng.integers(len(them))]


WISHES: dict[str, tuple[bool, Any]] = {  # and whether they are wishes at all
    "walk": (True, lambda rng, at: at + rng.normal(0, 0.5, 12)),
    "bang-bang": (True, lambda rng, at: np.where(rng.random(12) < 0.5, of("high"), of("low"))),
    "noise": (True, lambda rng, at: rng.normal(0, 3, 12).tolist()),
    "huge": (True, one(np.full(12, 1e30), np.full(12, -3e38, "f4"), [10**30] * 12)),
    "no number": (False, one(np.full(12, np.nan), [np.inf] * 12, [0.0] * 11 + [-np.inf])),
    "misshapen": (False, one(np.zeros(11), np.zeros((12, 1)), np.zeros(()), [], 0.5)),
    "no array": (False, one("left", ["a"] * 12, {}, [10**400] * 12, [[0], [0, 1]])),
    "nothing": (False, one(None, [None] * 12)),
}


@pytest.mark.parametrize("name", WISHES)
def test_motors_hear_only_what_is_allowed(name: str) -> None:
    """In all 100,000 ticks, of spells of fair and of other wishes, and of many robots."""
    rng, log, (fair, wishes) = np.random.default_rng(len(name)), Log(), WISHES[name]
    robot, damped, odd = Robot(rng), 0, False
    for _ in range(TICKS):
        odd = rng.random() < 0.5 if rng.random() < 0.05 else odd
        at, late = log.limiter.targets, [0.05, 0.101, 3.0, -0.01, np.nan, np.inf]
        wish = wishes(rng, at) if odd else of("rest") + rng.normal(0, 1, 12)
        age = rng.choice(late) if rng.random() < 0.02 else 0.0
        told, right = robot.told(at)
        good = right and (fair or not odd) and age in (0, 0.05)
        damped += log.tick(wish, told, age, good).damp
        if damped > 5 or rng.random() < 0.002:
            log.reset()
            robot, damped = Robot(rng), 0
    columns = log.columns()
    assert violations(columns) == set()
    assert (~columns["damp"] & columns["good"]).mean() > 0.4
    assert columns["last"].sum() > 20


@cache
def clean() -> dict[str, np.ndarray]:
    """Forty ticks, a short fault from tick 20 on, and one from tick 40 on that does not end."""
    log = Log()
    for t in range(70):
        bad = 20 <= t < 25 or t >= 40
        log.tick(None if bad else of("rest") + 0.2 * np.sin(t / 3), body(), good=not bad)
    return log.columns()


@pytest.mark.parametrize(("name", "column", "at", "value"), [
    ("no number", "targets", 5, np.nan), ("range", "targets", 5, of("high") + 1e-4),
    ("rate", "targets", 5, of("rest") + 0.4 + of("speed") * DT), ("torque", "q", 5, 9.0),
    ("gains", "kp", 5, 36.0), ("gains", "kd", 69, 0.5), ("gains", "kp", 69, 1.0),
    ("moved in a fault", "targets", 22, of("rest")), ("held for ever", "damp", 69, False),
    ("not held", "damp", 22, True), ("came back", "damp", 68, False),
    ("fell", "quat", 5, [1, 2, 0, 0]), ("gave up", "damp", 5, True),
])  # fmt: skip
def test_the_judge_sees_what_is_planted(name: str, column: str, at: int, value: Any) -> None:
    assert violations(clean()) == set()
    planted = {name: x.copy() for name, x in clean().items()}
    planted[column][at] = value
    assert name in violations(planted)


def test_an_allowed_wish_is_told_to_the_last_digit() -> None:
    log = Log()
    for t in range(100):
        wish = of("rest") + 0.1 * np.sin(t / 5)
        np.testing.assert_array_equal(log.tick(wish, body()).targets, wish.astype("f4"))
        assert log.limiter.mode == RUN


def test_a_far_wish_is_neared_as_fast_as_joints_turn_and_as_far_as_motors_pull() -> None:
    """Joints that do not move, and at last ones that turn, which the damping gain brakes."""
    log, most = Log(), of("torque") / of("kp")
    for t in range(1, 6):
        got = log.tick(of("high"), body()).targets
        far = np.minimum(np.minimum(t * of("speed") * DT, most) + of("rest"), of("high"))
        np.testing.assert_allclose(got, far, rtol=1e-6)
    got = log.tick(of("high"), body(speeds=-4.0)).targets
    least = np.minimum(most - 4 * of("kd") / of("kp") + of("rest"), of("high"))
    np.testing.assert_allclose(got, least, rtol=1e-6)


@pytest.mark.parametrize("fault", [
    (None, body(), 0.0), (np.full(12, np.nan), body(), 0.0), (np.zeros(3), body(), 0.0),
    (of("rest"), body(), 0.11), (of("rest"), body(), -0.01), (of("rest"), body(), np.nan),
    (of("rest"), body() | {"gyro": np.array([0, np.nan, 0])}, 0.0),
])  # fmt: skip
def test_a_fault_is_held_and_a_long_one_damped_until_a_reset(fault: Any) -> None:
    log, wish = Log(), np.minimum(of("rest") + 0.5, of("high"))
    for _ in range(2):
        held = log.tick(of("rest") - 0.1, body()).targets
        for _ in range(24):
            np.testing.assert_array_equal(log.tick(*fault).targets, held)
            assert log.limiter.mode == HOLD
        got = log.tick(wish, body()).targets  # no jump, though it was away for half a second
        assert (np.abs(got - held) <= of("speed") * DT + 1e-6).all()
        assert log.limiter.mode == RUN
        np.testing.assert_array_equal(log.tick(wish, body()).targets, wish.astype("f4"))
        log.tick(of("rest"), body())
    damped = [log.tick(*fault).damp for _ in range(30)]
    assert sum(damped) in (5, 6)
    assert all(log.tick(of("rest"), body()).damp for _ in range(100))
    log.reset()
    assert not log.tick(of("rest"), body()).damp


@pytest.mark.parametrize("axis", [(1, 0), (0, 1), (-0.6, 0.8)])
@pytest.mark.parametrize("scale", [1.0, -1.0, 3.0])
def test_a_robot_that_leans_too_far_is_damped(axis: tuple[float, float], scale: float) -> None:
    for degrees in (59.9, 60.1, 120, 180):
        half = np.radians(degrees) / 2
        upright, leaning = scale * np.cos(half), scale * np.sin(half) * np.array(axis)
        for yaw in (0, 1):  # the vertical's share of the quaternion says nothing of a lean
            quat = [np.cos(yaw) * upright, *leaning, np.sin(yaw) * upright]
            assert tilt_of(body(quat=quat)) == pytest.approx(degrees, abs=1e-2)
            assert Log().tick(of("rest"), body(quat=quat)).damp == (degrees > 60)


def test_what_measures_no_lean_is_not_taken_for_upright() -> None:
    """A dead sensor; one that there is not says nothing."""
    assert tilt_of({"up": np.array([0, 0.5, 0.5])}) == pytest.approx(45)
    for dead in ({"up": np.zeros(3)}, {"orientation": np.zeros(4)}):
        assert tilt_of(dead) > 60
    assert tilt_of({}) == 0
