"""Each rule for a whole robot is planted, and the referee finds that one only."""

import copy
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.truths import (  # fmt: skip
    PERIOD,
    PLANT,
    RELEASED,
    RESET,
    A,
    Frame,
    Scene,
    header,
    only,
    run,
    shift,
    state,
)


def tilted(degrees: float) -> list[float]:
    half = np.radians(degrees) / 2
    return [3 * np.cos(half), 3 * np.sin(half) * 0.6, 3 * np.sin(half) * 0.8, 0.0]


@pytest.mark.parametrize(
    ("quaternion", "caught"),
    [(tilted(49.99), False), (tilted(50.03), True), (tilted(170), True), ([0.0] * 4, True)],
)
def test_tilt(scene: Scene, quaternion: Any, caught: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        frames[t].quaternion = quaternion

    only(run(scene, plant), "tilt", caught)
    first = round(RESET * scene[0] / PERIOD)
    only(run(scene, lambda frames, t: plant(frames, first)), "tilt", caught)
    first = next(i for i, frame in enumerate(scene[1]) if frame.damped)
    only(run(scene, lambda frames, t: plant(frames, first)), "tilt", False)
    top = header(scene[0])
    top["spec"]["max_tilt"] = top["limits"]["max_tilt"] = 180
    only(run(scene, plant, spec=top["spec"], limits=top["limits"]), "", False)


@pytest.mark.parametrize(
    ("up", "caught"), [([0, 2, 2], False), ([0, 3, 2], True), ([0, 0, -1], True), ([0] * 3, True)]
)
def test_tilt_by_up(scene: Scene, up: Any, caught: Any) -> None:
    """The sensor "up" lies in the quaternion's last three numbers."""
    top = header(scene[0])
    top["spec"]["sensors"][:1] = [{"name": "w", "size": 1}, {"name": "up", "size": 3}]

    def plant(frames: list[Frame], t: int) -> None:
        for frame in frames:
            frame.quaternion = [0, 0, 0, 1]
        frames[t].quaternion = [0, *up]

    only(run(scene, plant, spec=top["spec"]), "tilt", caught)


@pytest.mark.parametrize(("out", "caught"), [(0.0999, False), (0.1001, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_beyond(scene: Scene, sign: Any, out: Any, caught: Any) -> None:
    """The motor rests at its limit during the whole file."""

    def plant(frames: list[Frame], t: int) -> None:
        for frame in frames:
            frame.joint = frame.joint * [1, 1, 0, 1] + sign * np.eye(A)[2]
            frame.target = frame.target * [1, 1, 0, 1] + sign * np.eye(A)[2]
        frames[t].joint = frames[t].joint + sign * out * np.eye(A)[2]

    only(run(scene, plant), "beyond", caught)


@pytest.mark.parametrize(("ticks", "caught"), [(0, False), (1, True)])
@pytest.mark.parametrize(
    ("rule", "inside", "outside"),
    [
        ("crushed", {"joints": [0, 0, 1.149, 0]}, {"joints": [0, 0, 1.151, 0]}),
        ("crushed", {"joints": [0, -1.149, 0, 0]}, {"joints": [0, -1.151, 0, 0]}),
        ("fallen", {"lean": 59.9}, {"lean": 60.1}),
    ],
)
def test_what_sensors_hide_may_be_for_a_second(
    scene: Scene, rule: Any, inside: Any, outside: Any, ticks: Any, caught: Any
) -> None:
    def plant(frames: list[Frame], truths: list[tuple[float, float, Any]]) -> None:
        for start, seconds, truth in truths:
            first = round(start * scene[0] / PERIOD)
            for frame in frames[first : first + round(seconds * scene[0] / PERIOD) + ticks]:
                frame.truth = truth

    at_once = [(0.5, 1.0, outside)]
    only(run(scene, lambda frames, _: plant(frames, at_once)), rule, caught)
    only(run(scene, lambda frames, _: plant(frames, [(0.5, 1.0, inside)])), rule, False)
    interrupted = [(0.5, 1.5, outside), (1.0, 0.02, inside)]
    only(run(scene, lambda frames, _: plant(frames, interrupted)), rule, False)
    only(run(scene, lambda frames, _: plant(frames, [(2.2, 1.5, outside)])), rule, False)  # damped
    only(run(scene, lambda frames, _: plant(frames, [(4.9, 1.2, outside)])), rule, False)  # reset


def test_fallen_is_not_judged_while_damped_silent_or_just_released(scene: Scene) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        for before, frame in pairwise(frames):
            if before.damped or frame.damped or frame.silent:
                frame.joint, frame.quaternion = frame.joint + np.eye(A)[0] * 1.5, [0.0] * 4
            if before.damped and not frame.damped:
                frame.target = np.array([1.0, *frame.target[1:]])

    verdict = run(scene, plant)
    assert not {"tilt", "beyond"} & set(verdict.violations), verdict.first


@pytest.mark.parametrize(("late", "caught"), [(2, False), (3, True)])
@pytest.mark.parametrize("move", [0.0, 5e-7, 1e-4])
def test_stale(scene: Scene, late: Any, caught: Any, move: Any) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        age = round(5 * scene[0]) + late
        for frame in frames[t + 1 : t + age + 1]:
            frame.heard = False
        shift(frames, t + age, 0, move)

    only(run(scene, plant), "stale", caught and move > 1e-6)


def test_stale_without_any_state(scene: Scene) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        frames[0].heard = False

    only(run(scene, plant), "stale")


@pytest.mark.parametrize("sequence", [0, -1])
def test_an_old_state_is_none(scene: Scene, sequence: Any) -> None:
    """It would be beyond, tilted and out of torque."""

    def plant(frames: list[Frame], t: int) -> None:
        bad = copy.deepcopy(frames[t])
        bad.joint, bad.quaternion = bad.joint + 3, [0.0] * 4
        frames[t].noise = [state(bad, frames[t].sequence + sequence)]

    only(run(scene, plant), "", False)


def test_sequence_numbers_restart_at_a_reset_only(scene: Scene) -> None:
    """A high number shuts out all later states of its episode."""

    def plant(frames: list[Frame], t: int) -> None:
        frames[t].sequence = 10**9

    only(run(scene, plant), "stale")


@pytest.mark.parametrize("silent", [0, 1])
def test_returned(scene: Scene, silent: Any) -> None:
    """A damped command is not left without a release, not after a pause either."""

    def plant(frames: list[Frame], t: int) -> None:
        for frame in frames[t : t + 1 + silent]:
            frame.damped, frame.kp, frame.kd = True, np.zeros(A), np.full(A, 1.5)
        frames[t + silent].silent = bool(silent)
        for frame in frames[t + 1 :]:
            frame.kp = np.minimum(frame.kp, 100.0)

    only(run(scene, plant), "returned")
    only(run(scene, plant, released=[[PLANT, PLANT + 0.1], RELEASED]), "returned", False)
    only(run(scene, lambda frames, t: None, released=[]), "returned")


def test_a_reset_ends_damping(scene: Scene) -> None:
    def plant(frames: list[Frame], t: int) -> None:
        for frame in frames[round(5.2 * len(frames) / 7) : round(5.5 * len(frames) / 7)]:
            frame.damped, frame.kp, frame.kd = True, np.zeros(A), np.full(A, 1.5)

    only(run(scene, plant), "returned", False)
