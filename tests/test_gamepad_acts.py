"""A gamepad in the hands of a human who acts in the place of a policy that learns."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.bridge import states
from rl.bridge.acting import REST_S
from rl.bridge.gamepad import AXIS, BUTTON, FULL, HAT_X, HAT_Y, INIT, LEFT, RIGHT, A, Gamepad
from rl.bridge.states import ARMED, HOLD, INTERVENE, READY
from tests.guided import Guided
from tests.hands import HAND, Clock, Driven, Pad, now
from tests.rig import body, of

HAND_NAMES = [channel.name for channel in HAND.action]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def pad(tmp_path: Path) -> Iterator[Pad]:
    made = Pad(tmp_path / "js0")
    yield made
    made.out()


def opened(pad: Pad, spec: Any = HAND) -> Gamepad:
    made = Gamepad(spec, pad.path).__enter__()
    for number in range(8):
        pad.push(INIT | AXIS, number, 0)
        pad.push(INIT | BUTTON, number, 0)
    return made


def test_what_is_pushed_is_told(pad: Pad, capsys: Any) -> None:
    opened(pad)
    told = capsys.readouterr().out
    assert "right stick: yaw, cross right opens, left shuts: grip; a push" in told


def test_a_stick_takes_it_over_and_gives_it_back(clock: Clock, pad: Pad) -> None:
    made = opened(pad)
    robot = Driven(made, clock)
    robot.live(1)
    assert (robot.state, robot.events) == (ARMED, [])  # nor is it held with no hand on it
    pad.push(AXIS, 1, round(-0.05 * FULL))
    robot.live(1)
    assert robot.state == ARMED  # in the dead zone
    for axis, action in ((1, "x"), (0, "y"), (4, "z"), (3, "yaw")):
        pad.push(AXIS, axis, -FULL)
        robot.does(*(float(name == action) for name in HAND_NAMES))
        assert robot.state == INTERVENE
        pad.push(AXIS, axis, 0)
    for axis, value in ((1, FULL), (0, round(0.55 * FULL))):
        pad.push(AXIS, axis, value)
    np.testing.assert_allclose(robot.live(3).action, [-1, -0.5, 0, 0, 0], atol=1e-3)
    for axis in (1, 0):
        pad.push(AXIS, axis, 0)
    robot.live(REST_S - 0.1)
    assert robot.state == INTERVENE
    robot.live(0.2)
    assert robot.state == ARMED
    assert robot.events == [states.TAKE, states.GIVE]


def test_a_shoulder_holds_it_and_the_cross_takes_it_for_good(clock: Clock, pad: Pad) -> None:
    robot = Driven(opened(pad), clock)
    pad.push(BUTTON, RIGHT)
    assert robot.live(3).deadman
    assert robot.state == INTERVENE
    pad.push(BUTTON, RIGHT, 0)
    assert not robot.live(1).deadman
    assert robot.state == ARMED
    pad.push(AXIS, HAT_Y, FULL)
    robot.live(3)
    assert robot.state == INTERVENE
    pad.push(AXIS, HAT_Y, 0)
    pad.push(AXIS, HAT_Y, FULL)
    robot.live()
    assert robot.state == ARMED


def test_the_cross_shuts_and_opens_and_the_grip_is_the_policys_again_after(
    clock: Clock, pad: Pad
) -> None:
    robot = Driven(opened(pad), clock)
    robot.own[-1] = 0.4
    robot.does(0, 0, 0, 0, 0.4)
    for value in (-FULL, 0):  # a tap, between two looks
        pad.push(AXIS, HAT_X, value)
    robot.does(0, 0, 0, 0, -1)
    robot.does(0, 0, 0, 0, -1)
    assert robot.events == [states.TAKE]
    robot.live(REST_S + 0.1)
    assert robot.state == ARMED
    robot.does(0, 0, 0, 0, 0.4)
    pad.push(AXIS, HAT_X, FULL)
    robot.does(0, 0, 0, 0, 1)


def test_the_left_shoulder_says_that_it_is_over_and_both_stop(clock: Clock, pad: Pad) -> None:
    made = opened(pad)
    pad.push(BUTTON, LEFT)
    word = made.word(now(ARMED, begun=3))
    assert (word.over, word.event) == (3, "")
    assert made.word(now(ARMED, begun=3)).over == 0
    pad.push(BUTTON, RIGHT)
    assert made.word(now(ARMED, begun=3)).event == states.STOP


def test_a_pad_that_is_gone_holds_its_robot_until_it_is_back_and_a_pressed(
    clock: Clock, pad: Pad, capsys: Any
) -> None:
    """Even where somebody else would have it stand up again."""
    robot = Driven(opened(pad), clock)
    pad.push(AXIS, 1, -FULL)
    robot.live()
    assert robot.state == INTERVENE
    pad.out()
    word = robot.live()
    assert (word.event, word.deadman, word.action[0]) == (states.WAIT, False, 0)
    for state in (HOLD, READY, ARMED, INTERVENE):
        robot.state = state
        assert robot.live().event == states.WAIT
    assert capsys.readouterr().out.count("The gamepad is gone") == 1
    pad.back()
    pad.push(INIT | BUTTON, A, 1)
    clock.now += 1
    robot.live()
    assert robot.live().event == states.WAIT
    pad.push(BUTTON, A)
    robot.live()
    assert robot.events[-1] == states.ARM


def test_it_acts_through_a_core(clock: Clock, pad: Pad) -> None:
    """What the policy's program is asked to do is what is pushed."""
    rig = Guided().armed()
    made = opened(pad, rig.spec)

    def lived(ticks: int) -> None:
        for t in range(ticks):
            clock.now += 0.02
            word = made.word(rig.core.status(t))
            rig.tick(body(), of("rest"), event=word.event, action=word.action,
                     deadman=word.deadman, command=np.asarray(word.command))  # fmt: skip

    pad.push(AXIS, 1, -FULL)
    lived(10)
    assert rig.core.state == INTERVENE
    assert rig.asked is not None
    assert (rig.asked.human, rig.asked.action.tolist()) == (True, [1, 0, 0])
    pad.push(AXIS, 1, 0)
    lived(round(REST_S / 0.02) + 5)
    assert rig.core.state == ARMED
    assert rig.core.refused == ""
