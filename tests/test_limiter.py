"""What reaches the motors, whatever is wished for and wherever joints are."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rl.bridge import limiter as module
from rl.bridge.checks import Reason
from rl.bridge.limiter import Limiter
from rl.bridge.limits import Limits
from rl.bridge.posture import tilt_of
from rl.spec import Spec
from tests.rig import DT, body, go2, of

REST = of("rest")
SHARP = 40.0  # rad/s^2


def sharp() -> Spec:
    """A Go2 whose joints' accelerations have limits as well."""
    motors = (replace(motor, acceleration=SHARP) for motor in go2().actuators)
    return replace(go2(), actuators=tuple(motors))


def wild(rng: np.random.Generator, kind: str, at: np.ndarray) -> np.ndarray:
    """A wish."""
    return {
        "walk": lambda: at + rng.normal(0, 0.5, 12),
        "bang-bang": lambda: np.where(rng.random(12) < 0.5, of("high"), of("low")),
        "noise": lambda: rng.normal(0, 3, 12),
        "huge": lambda: rng.choice([1e30, -3e38, 1e9], 12),
        "still": lambda: REST,
    }[kind]()


def lived(limiter: Limiter, ticks: int, seed: int, jumps: bool) -> dict[str, np.ndarray]:
    """What was told [T, A], and where joints were, which follow more or less."""
    rng, dt = np.random.default_rng(seed), DT / limiter.ticks
    q, rows, wish = REST + rng.normal(0, 0.1, 12), [], REST
    limiter.begin(q)
    start = limiter.targets
    for t in range(ticks):
        if t % limiter.ticks == 0 or rng.random() < 0.05:
            wish = wild(rng, rng.choice(["walk", "bang-bang", "noise", "huge", "still"]),
                        limiter.targets)  # fmt: skip
        dq = np.clip((limiter.targets - q) * rng.uniform(0, 20), -20, 20)
        q = q + dq * dt + rng.normal(0, 0.5, 12) * (jumps and rng.random() < 0.02)
        made = limiter.tick(wish, q, dq)
        rows.append((made.targets, made.kp, made.kd, q, dq))
    names = "targets", "kp", "kd", "q", "dq"
    found = dict(zip(names, map(np.stack, zip(*rows, strict=True)), strict=True))
    return found | {"start": start}


def broken(log: dict[str, np.ndarray], ticks: int, gain: float) -> set[str]:
    """Which limits are: by windows of a period, written another way than they are kept."""
    told = np.concatenate([np.tile(log["start"], (2 * ticks, 1)), log["targets"]])
    windows = np.lib.stride_tricks.sliding_window_view(told, ticks + 1, axis=0)
    moved = told[ticks:] - told[:-ticks]
    pull = log["kp"] * (log["targets"] - log["q"]) - log["kd"] * log["dq"]
    most, step = of("torque"), of("speed") * DT
    full = np.abs(pull) > 0.999 * most  # there it may be as sharp as it must
    before = np.concatenate([np.zeros((2 * ticks, 12), bool), full])
    eased = ~np.lib.stride_tricks.sliding_window_view(before, 2 * ticks + 1, axis=0).any(-1)
    bend = np.abs(moved[ticks:] - moved[:-ticks])
    found = {
        "range": (log["targets"] < of("low")) | (log["targets"] > of("high")),
        "speed": np.ptp(windows, -1) > step + 1e-9,
        "torque": np.abs(pull) > most * (1 + 1e-6),
        "acceleration": eased & (bend > gain + 1e-9) if gain else np.zeros(1, bool),
        "gains": (log["kp"] > of("kp")) | (log["kd"] > of("kd")) | (log["kp"] < 0),
        "weak": (log["kp"] < of("kp")) & ~full,
    }
    return {name for name, wrong in found.items() if wrong.any()}


@pytest.mark.parametrize("jumps", [False, True])
@pytest.mark.parametrize("spec", [go2, sharp])
@pytest.mark.parametrize("ticks", [1, 3, 10])
def test_motors_hear_only_what_is_allowed(ticks: int, spec: Any, jumps: bool) -> None:
    limiter, gain = Limiter(spec(), Limits(), ticks), spec().actuators[0].acceleration * DT**2
    for seed in range(3):
        if jumps:  # whose targets are pulled along, and may be too fast to stop before their ends
            gain = 0.0
        assert broken(lived(limiter, 1000, seed, jumps), ticks, gain) == set()


@pytest.mark.parametrize(
    ("stage", "limit"),
    [("position", "range"), ("pace", "speed"), ("pace", "acceleration"), ("torque", "torque")],
)
def test_without_a_stage_its_limit_is_broken(
    stage: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that each is needed, and the judge sees it."""
    left = {x: why for x, why in module.STAGES.items() if x.__name__ != stage}
    assert len(left) == len(module.STAGES) - 1
    monkeypatch.setattr(module, "STAGES", left)
    limiter = Limiter(sharp(), Limits(), 5)
    assert limit in broken(lived(limiter, 1000, 0, jumps=True), 5, SHARP * DT**2)


@pytest.mark.parametrize("ticks", [2, 10])
def test_a_faster_wire_keeps_to_the_same_limits(ticks: int) -> None:
    """Targets that hold for a period are what a wire of the policy's own rate would be told."""
    rng = np.random.default_rng(0)
    slow, fast = Limiter(go2(), Limits(), 1), Limiter(go2(), Limits(), ticks)
    for _ in range(300):
        wish = slow.targets + rng.normal(0, 0.5, 12)
        want = slow.tick(wish, slow.targets, np.zeros(12)).targets
        for _ in range(ticks):
            got = fast.tick(wish, slow.targets, np.zeros(12)).targets
            np.testing.assert_allclose(got, want, atol=1e-12)


def test_joints_with_accelerations_go_the_quickest_way_and_stop_there() -> None:
    """On a fast wire: bang-bang, whose time is known, and no overshoot."""
    limiter, far = Limiter(sharp(), Limits(), 10), 0.3
    way = [limiter.tick(REST + far, limiter.targets, np.zeros(12)).targets for _ in range(150)]
    gone = (np.stack(way) - REST)[:, 0]
    assert gone.max() <= far + 1e-9
    assert gone[-1] == pytest.approx(far, abs=1e-6)
    came = np.flatnonzero(gone > 0.99 * far)[0] * DT / 10
    assert came == pytest.approx(2 * np.sqrt(far / SHARP), rel=0.1)


def test_an_allowed_wish_is_told_to_the_last_digit() -> None:
    for ticks in (1, 10):
        limiter = Limiter(go2(), Limits(), ticks)
        for t in range(100):
            wish = REST + 0.1 * np.sin(t / 5)
            made = limiter.tick(wish, REST, np.zeros(12))
            np.testing.assert_array_equal(made.targets, wish)
            np.testing.assert_array_equal((made.kp, made.kd), (of("kp"), of("kd")))
            assert not made.mask


def test_a_far_wish_is_neared_as_fast_as_joints_turn_and_as_far_as_motors_pull() -> None:
    """Joints that do not move, and at last ones that turn, which the damping gain brakes."""
    limiter, most = Limiter(go2(), Limits(), 1), of("torque") / of("kp")
    for t in range(1, 6):
        got = limiter.tick(of("high"), REST, np.zeros(12)).targets
        far = np.minimum(np.minimum(t * of("speed") * DT, most) + REST, of("high"))
        np.testing.assert_allclose(got, far, rtol=1e-6)
    got = limiter.tick(of("high"), REST, np.full(12, -4.0)).targets
    least = np.minimum(most - 4 * of("kd") / of("kp") + REST, of("high"))
    np.testing.assert_allclose(got, least, rtol=1e-6)


def test_a_joint_that_was_thrown_is_pulled_no_harder_than_its_motor_can() -> None:
    """Its target cannot jump after it: both gains give way."""
    limiter, thrown = Limiter(go2(), Limits(), 1), REST.copy()
    thrown[0] += 4.0
    made = limiter.tick(REST, thrown, np.zeros(12))
    assert made.targets[0] == pytest.approx(REST[0] + of("speed")[0] * DT)
    assert made.kp[0] * (thrown[0] - made.targets[0]) == pytest.approx(of("torque")[0])
    assert made.kd[0] / of("kd")[0] == pytest.approx(made.kp[0] / of("kp")[0])
    np.testing.assert_array_equal(made.kp[1:], of("kp")[1:])
    assert made.mask == Reason.TORQUE


def test_no_target_goes_after_a_joint_of_which_nothing_is_heard() -> None:
    """Far off where it was seen last: its gains give way, and it stays."""
    limiter, thrown = Limiter(go2(), Limits(), 1), REST.copy()
    thrown[0] += 4.0
    for _ in range(5):
        made = limiter.tick(REST, thrown, np.zeros(12), old=True)
        np.testing.assert_array_equal(made.targets, REST)
        assert made.kp[0] * 4.0 == pytest.approx(of("torque")[0])


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_who_asks_for_less_is_heard(share: float) -> None:
    limiter = Limiter(go2(), Limits(speed=share, torque=share), 1)
    made = limiter.tick(of("high"), REST, np.zeros(12)).targets
    far = np.minimum(of("speed") * DT, of("torque") / of("kp")) * share
    np.testing.assert_allclose(made, np.minimum(REST + far, of("high")), rtol=1e-6)


@pytest.mark.parametrize("axis", [(1, 0), (0, 1), (-0.6, 0.8)])
@pytest.mark.parametrize("scale", [1.0, -1.0, 3.0])
def test_a_lean_is_the_angle_from_upright(axis: tuple[float, float], scale: float) -> None:
    for degrees in (0, 59.9, 60.1, 120, 180):
        half = np.radians(degrees) / 2
        upright, leaning = scale * np.cos(half), scale * np.sin(half) * np.array(axis)
        for yaw in (0, 1):  # the vertical's share of the quaternion says nothing of a lean
            quat = [np.cos(yaw) * upright, *leaning, np.sin(yaw) * upright]
            assert tilt_of(body(quat=quat)) == pytest.approx(degrees, abs=3e-2)


def test_what_measures_no_lean_is_not_taken_for_upright() -> None:
    """A dead sensor; one that there is not says nothing."""
    assert tilt_of({"up": np.array([0, 0.5, 0.5])}) == pytest.approx(45)
    for dead in ({"up": np.zeros(3)}, {"orientation": np.zeros(4)}):
        assert tilt_of(dead) > 60
    assert tilt_of({}) == 0
