"""Each rule for single motors is planted, and the referee finds that one only."""

import copy
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from rl.bridge import referee
from tests.truths import (  # fmt: skip
    BEND,
    LIMIT,
    PERIOD,
    STEP,
    A,
    Frame,
    Scene,
    command,
    header,
    only,
    run,
    shift,
)


def test_clean(scene: Scene) -> None:
    verdict = run(scene, lambda frames, t: None)
    assert verdict.violations == {}, verdict.first
    assert verdict.ticks == len(scene[1])
    assert verdict.damped == sum(frame.damped for frame in scene[1])
    assert verdict.missing == sum(frame.silent for frame in scene[1])
    assert verdict.commands == verdict.ticks - verdict.missing
    assert 0.05 < verdict.limits["speed"] < 1
    assert 0 < verdict.limits["torque"] < 1


@pytest.mark.parametrize(("number", "caught"), [(np.nan, True), (np.inf, True), (0.2, False)])
def test_finite(scene: Scene, number: Any, caught: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        frames[t].target = frames[t].joint * [1, 1, 1, 1]
        frames[t].target[2] = number if caught else frames[t].target[2]

    only(run(scene, plant), "finite", caught)


@pytest.mark.parametrize("broken", ["crc", "length", "magic", "version", "kind", "hash", "noise"])
def test_garbled(scene: Scene, broken: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        data = bytearray(command(frames[t]))
        place = {"magic": 0, "version": 4, "kind": 5, "hash": 9}.get(broken, 60)
        data[place] ^= 1
        if broken not in ("crc", "noise"):
            data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
        data = data[:-8] if broken == "length" else b"x" if broken == "noise" else data
        frames[t].extra, frames[t].silent = [bytes(data)], True

    only(run(scene, plant), "garbled")


def test_burst_and_the_last_counts(scene: Scene) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        other = copy.deepcopy(frames[t])
        other.target = other.target + 9
        frames[t].extra = [command(other)]

    only(run(scene, plant), "burst")


@pytest.mark.parametrize(("by", "caught"), [(0.9e-6, False), (2e-6, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_range(scene: Scene, sign: Any, by: Any, caught: Any) -> None:
    """The motor rests at its limit during the whole file."""

    def plant(frames: list[Frame], t: int) -> None:
        for frame in frames:
            frame.joint = frame.joint * [1, 1, 0, 1] + sign * np.eye(A)[2]
            frame.target = frame.target * [1, 1, 0, 1] + sign * np.eye(A)[2]
        frames[t].target[2] = np.float32(sign * (1 + by))

    only(run(scene, plant), "range", caught)


@pytest.mark.parametrize(
    ("key", "motor", "value", "caught"),
    [
        ("kp", 1, 100.0 * (1 + 5e-6), False),
        ("kp", 1, 100.0 * (1 + 3e-5), True),
        ("kp", 1, 100.0 * (1 - 5e-6), False),
        ("kp", 1, 100.0 * (1 - 3e-5), True),
        ("kp", 0, -0.01, True),
        ("kd", 0, 2.0 * (1 + 3e-5), True),
        ("kd", 0, 0.0, False),
        ("kd", 0, -0.01, True),
    ],
)
def test_gains(scene: Scene, key: Any, motor: Any, value: Any, caught: Any) -> None:
    only(run(scene, lambda frames, t: getattr(frames[t], key).put(motor, value)), "gains", caught)


@pytest.mark.parametrize(("after", "caught"), [(0, False), (1, False), (2, True), (5, True)])
def test_gains_after_the_soft_start(scene: Scene, after: Any, caught: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        last = max(i for i, frame in enumerate(frames) if frame.damped)
        frames[last + round(50 * scene[0]) + after].kp[3] = 90.0

    only(run(scene, plant), "gains", caught)


@pytest.mark.parametrize(("share", "caught"), [(0.9985, True), (0.9995, False), (1.0005, False)])
def test_gains_low_at_the_torque_limit(scene: Scene, share: Any, caught: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        frames[t].velocity = np.array([0, 0, -share * LIMIT / 2.0, 0])
        frames[t].kp[2] = 50.0

    only(run(scene, plant), "gains", caught)


@pytest.mark.parametrize(
    ("key", "value", "caught"),
    [("kp", 1e-3, True), ("kd", 1.5 * (1 + 3e-5), True), ("kd", 1.5 * (1 + 5e-6), False)],
)
def test_gains_damped(scene: Scene, key: Any, value: Any, caught: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        getattr(next(frame for frame in frames if frame.damped), key)[1] = value

    only(run(scene, plant), "gains", caught)


@pytest.mark.parametrize(("share", "caught"), [(0.9999, False), (1.001, True), (1.5, True)])
@pytest.mark.parametrize("parts", [1, 2])
def test_speed(scene: Scene, share: Any, caught: Any, parts: Any) -> None:
    """A step at once, and one in two parts at the ends of a period."""

    def plant(frames: list[Frame], t: int) -> None:
        for part in range(parts):
            shift(frames, t + part * (scene[0] - 1), 0, share * STEP / parts)

    only(run(scene, plant), "speed", caught)


def test_speed_is_of_one_period(scene: Scene) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        shift(frames, t, 0, 0.9 * STEP)
        shift(frames, t + scene[0] + 1, 0, 0.9 * STEP)

    only(run(scene, plant), "speed", False)


@pytest.mark.parametrize(("share", "caught"), [(0.999, False), (1.01, True)])
@pytest.mark.parametrize("event", ["damped", "silent", "reset"])
def test_speed_of_the_first_target(scene: Scene, share: Any, caught: Any, event: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        first = 1 + max(i for i, f in enumerate(frames) if getattr(f, event)) - (event == "reset")
        frames[first].joint = frames[first].target + np.eye(A)[0] * share * STEP

    only(run(scene, plant), "speed", caught)


@pytest.mark.parametrize(("share", "caught"), [(0.999, False), (1.01, True)])
def test_speed_by_torque_rate(scene: Scene, share: Any, caught: Any) -> None:
    top = header(scene[0])
    top["spec"]["actuators"][0]["torque_rate"] = 100.0
    verdict = run(scene, lambda frames, t: shift(frames, t, 0, share * 0.016), spec=top["spec"])
    only(verdict, "speed", caught)


@pytest.mark.parametrize(("share", "caught"), [(0.999, False), (1.01, True)])
@pytest.mark.parametrize("by", [1, -1])
def test_acceleration(scene: Scene, share: Any, caught: Any, by: Any) -> None:
    bend = 0.5 * BEND * PERIOD**2
    plant = lambda frames, t: shift(frames, t, 1, by * share * bend)  # noqa: E731
    only(run(scene, plant), "acceleration", caught)
    only(run(scene, lambda frames, t: shift(frames, t, 0, by * share * bend)), "", False)


@pytest.mark.parametrize(("share", "caught"), [(0.999, False), (1.01, True)])
@pytest.mark.parametrize("event", ["damped", "silent", "reset"])
def test_acceleration_from_the_joint(scene: Scene, share: Any, caught: Any, event: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        first = 1 + max(i for i, f in enumerate(frames) if getattr(f, event)) - (event == "reset")
        by = share * 0.5 * BEND * PERIOD**2
        frames[first].joint = frames[first].target + np.eye(A)[1] * by

    only(run(scene, plant), "acceleration", caught)


@pytest.mark.parametrize(("late", "caught"), [(0, False), (1, True)])
def test_acceleration_is_excused_at_the_torque_limit(
    scene: Scene, late: int, caught: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The jump's echo comes K ticks later; both must be within BRAKING and 2K ticks of it."""
    monkeypatch.setattr(referee, "BRAKING", 0.2)  # in all of which nothing else moves

    def plant(frames: list[Frame], t: int) -> None:
        shift(frames, t, 1, 1.5 * 0.5 * BEND * PERIOD**2)
        at = t - 1 - round(0.2 * scene[0] / PERIOD) - late
        frames[at].velocity = np.array([0, -0.9995 * LIMIT / 2.0, 0, 0])

    verdict = run(scene, plant)
    assert set(verdict.violations) == {"acceleration"} if caught else not verdict.violations


@pytest.mark.parametrize(("share", "caught"), [(0.999, False), (1.0005, False), (1.003, True)])
@pytest.mark.parametrize("by", ["joint", "velocity"])
def test_torque(scene: Scene, share: Any, caught: Any, by: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        if by == "joint":
            frames[t].joint = frames[t].joint + np.eye(A)[2] * share * LIMIT / 100.0
        else:
            frames[t].velocity = np.array([0, 0, share * LIMIT / 2.0, 0])

    only(run(scene, plant), "torque", caught)
