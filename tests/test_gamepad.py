"""A robot driven with a gamepad: the events of a joystick, byte by byte, through a pipe."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.bridge import gamepad, states
from rl.bridge.gamepad import AXIS, BUTTON, EVENT, FULL, HAT_X, HAT_Y, INIT, LEFT, RIGHT, A, B, X, Y
from rl.bridge.gamepad import Gamepad as Pad
from rl.bridge.messages import Status
from rl.bridge.refusals import ABSENT, Refused
from rl.bridge.states import ARMED, FAULT, HOLD, INTERVENE, PASSIVE, READY
from rl.spec import Channel, Spec
from tests.rig import Rig, body, go2, of

ARM = replace(go2(), max_tilt=180.0, command=(Channel("x", "m", 0.3, 0.7),))
Push = Callable[..., None]


def now(state: str, time: float = 0.0, **more: Any) -> Status:
    return Status(7, time, state, 0, 0, 0, body(), of("rest"), **more)


class Plug:
    """A gamepad's other end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self.end = path, os.open(path, os.O_RDWR)

    def push(self, kind: int, number: int, value: int = 1) -> None:
        os.write(self.end, EVENT.pack(9, value, kind, number))

    def press(self, *buttons: int) -> None:
        for value in (1, 0):
            for button in buttons:
                self.push(BUTTON, button, value)

    def out(self) -> None:
        os.close(self.end)

    def back(self) -> None:
        self.end = os.open(self.path, os.O_RDWR)


@pytest.fixture
def plug(tmp_path: Path) -> Iterator[Plug]:
    made = Plug(tmp_path / "js0")
    yield made
    made.out()


def opened(plug: Plug, spec: Spec | None = None) -> Pad:
    """One that has said how it is, as the kernel has it do."""
    made = Pad(spec or go2(), plug.path).__enter__()
    for number in range(8):
        plug.push(INIT | AXIS, number, 0)
        plug.push(INIT | BUTTON, number, 0)
    return made


def test_sticks_ask_for_a_share_of_what_may_be_while_the_shoulder_is_held(plug: Plug) -> None:
    pad = opened(plug)
    plug.push(AXIS, 1, -FULL)  # ahead
    plug.push(AXIS, 3, FULL)  # to the right
    np.testing.assert_array_equal(pad.word(now(ARMED)).command, 0)
    plug.push(BUTTON, RIGHT)
    np.testing.assert_allclose(pad.word(now(ARMED)).command, [1.5, 0, -1.2])
    plug.push(AXIS, 0, round(-0.55 * FULL))
    np.testing.assert_allclose(pad.word(now(ARMED)).command, [1.5, 0.4, -1.2], atol=1e-3)
    for value in (0.09, -0.09):  # the dead zone
        plug.push(AXIS, 1, round(value * FULL))
        assert pad.word(now(ARMED)).command[0] == 0
    plug.push(AXIS, 1, -32768)
    assert pad.word(now(ARMED)).command[0] == 1.5
    plug.push(BUTTON, RIGHT, 0)
    let = pad.word(now(ARMED))
    np.testing.assert_array_equal(let.command, 0)
    assert (let.event, let.deadman) == ("", False)  # a walker stands


def test_an_arm_is_held_when_the_shoulder_is_let_go(plug: Plug) -> None:
    """And its goal goes where the stick is pushed, at a pace, within its range."""
    pad = opened(plug, ARM)
    plug.press(A)
    pad.hand.tried = -np.inf
    assert pad.word(now(READY)).event == ""  # nobody has a hand on it
    plug.push(BUTTON, RIGHT)
    assert pad.word(now(READY)).event == states.ARM
    plug.push(AXIS, 1, -FULL)
    goals = [pad.word(now(ARMED, 0.05 * t)).command[0] for t in range(60)]
    np.testing.assert_allclose(np.diff(goals[:30]), 0.4 / 4 * 0.05)
    assert (goals[0], goals[-1], max(goals)) == (0.5, 0.7, 0.7)  # from the middle to the end
    plug.push(BUTTON, RIGHT, 0)
    let = pad.word(now(ARMED, 3.0))
    assert (let.event, let.command[0]) == (states.WAIT, goals[-1])
    plug.push(BUTTON, RIGHT)
    pad.hand.tried = -np.inf
    assert pad.word(now(HOLD)).event == ""  # it does not go on by itself


def test_buttons_are_words_that_are_said_once(plug: Plug) -> None:
    pad = opened(plug)
    for button, state, event in (
        (X, ARMED, states.WAIT), (Y, HOLD, states.RELAX), (B, ARMED, states.STOP),
    ):  # fmt: skip
        plug.press(button)
        assert pad.word(now(state)).event == event
        assert pad.word(now(state)).event == ""
    for axis, value, state, event in (
        (HAT_Y, -FULL, FAULT, states.CLEAR), (HAT_Y, FULL, ARMED, states.TAKE),
        (HAT_Y, FULL, INTERVENE, states.GIVE),
    ):  # fmt: skip
        plug.push(AXIS, axis, value)
        plug.push(AXIS, axis, 0)
        plug.push(AXIS, axis, value)
        assert pad.word(now(state)).event == event
        assert pad.word(now(state)).event == ""
        plug.push(AXIS, axis, 0)
        assert pad.word(now(state)).event == ""


@pytest.mark.parametrize("stop", [(B,), (LEFT, RIGHT), (RIGHT, LEFT)])
def test_a_stop_is_heard_among_all_that_is_pressed(plug: Plug, stop: tuple[int, ...]) -> None:
    pad = opened(plug)
    plug.press(A)
    plug.press(X)
    for button in stop:
        plug.push(BUTTON, button)
    plug.press(A)
    plug.press(Y)
    assert pad.word(now(ARMED)).event == states.STOP
    pad.hand.tried = -np.inf
    assert pad.word(now(PASSIVE)).event == ""


def test_it_stands_up_and_is_armed_by_one_press_and_no_further(plug: Plug) -> None:
    pad = opened(plug)
    plug.press(A)
    found = []
    for state in (PASSIVE, READY, READY, ARMED, HOLD):
        pad.hand.tried = -np.inf
        found.append(pad.word(now(state)).event)
    assert found == [states.STAND, states.ARM, states.ARM, "", ""]


def test_one_that_is_gone_holds_its_robot_and_goes_on_by_a_word_alone(
    plug: Plug, capsys: pytest.CaptureFixture[str]
) -> None:
    pad = opened(plug)
    plug.push(BUTTON, RIGHT)
    plug.push(AXIS, 1, -FULL)
    assert pad.word(now(ARMED)).command[0] == 1.5
    plug.out()
    for state, event in ((ARMED, states.WAIT), (INTERVENE, states.WAIT), (READY, states.WAIT),
                         (HOLD, ""), (FAULT, ""), (PASSIVE, "")):  # fmt: skip
        pad.tried = -np.inf
        told = pad.word(now(state))
        assert (told.event, told.deadman, told.command.tolist()) == (event, False, [0, 0, 0])
    assert capsys.readouterr().out.count("The gamepad is gone: the robot is held until") == 1
    plug.back()
    for number, value in ((RIGHT, 1), (A, 1)):  # held when it was plugged in
        plug.push(INIT | BUTTON, number, value)
    for _ in range(3):
        pad.tried = pad.hand.tried = -np.inf
        assert pad.word(now(HOLD)).event == ""
    assert "is there" in capsys.readouterr().out
    plug.press(A)
    pad.hand.tried = -np.inf
    assert pad.word(now(HOLD)).event == states.ARM


def test_joints_are_chosen_and_jogged(plug: Plug) -> None:
    """Over a core: none moves but with a hand on it, and that as fast as it is pushed."""
    pad, rig, moved = opened(plug), Rig().armed(), []
    plug.push(AXIS, HAT_Y, FULL)
    for value in (FULL, 0, FULL, 0, -FULL, 0):  # two on, one back
        plug.push(AXIS, HAT_X, value)

    def lived(ticks: int) -> None:
        for t in range(ticks):
            word = pad.word(rig.core.status(t))
            command, jog = np.asarray(word.command), np.asarray(word.jog)
            rig.tick(body(), of("rest"), event=word.event, command=command, jog=jog,
                     deadman=word.deadman)  # fmt: skip
        moved.append(rig.core.limiter.targets - of("rest"))

    lived(10)
    assert rig.core.state == INTERVENE
    plug.push(AXIS, 1, FULL)  # back
    lived(10)
    np.testing.assert_allclose(moved[-1], 0, atol=1e-6)
    plug.push(BUTTON, RIGHT)
    lived(50)
    motor = go2().actuators[1]
    assert moved[-1][1] == pytest.approx(-50 * 0.02 * (motor.high - motor.low) / 10, rel=0.01)
    np.testing.assert_allclose(np.delete(moved[-1], 1), 0, atol=1e-6)
    plug.push(BUTTON, RIGHT, 0)
    lived(20)
    np.testing.assert_array_equal(moved[-1], moved[-2])


def test_events_that_come_in_pieces_and_of_other_kinds_do_no_harm(plug: Plug) -> None:
    pad = opened(plug)
    whole = EVENT.pack(1, -FULL, AXIS, 1) + EVENT.pack(1, 1, BUTTON, RIGHT)
    for at in range(len(whole)):
        os.write(plug.end, whole[at : at + 1])
        pad.word(now(ARMED))
    assert pad.word(now(ARMED)).command[0] == 1.5
    rng = np.random.default_rng(0)
    for _ in range(200):
        os.write(plug.end, rng.bytes(8 * 5))
        word = pad.word(now(ARMED))
        assert np.abs(word.command).max() <= 1.5
        assert word.event in ("", *states.ASKED)


def test_what_was_refused_is_shown_in_a_line_of_its_own(
    plug: Plug, capsys: pytest.CaptureFixture[str]
) -> None:
    pad = opened(plug)
    for _ in range(3):
        pad.word(now(READY, refused=Refused(ABSENT, states.ASKED.index(states.ARM))))
    assert capsys.readouterr().out.count("A is refused: no policy has come.\n") == 1


def test_without_one_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"There is no gamepad at .*js9: plug it in"):
        Pad(go2(), tmp_path / "js9")
    for other in ("/dev/null", __file__):
        with pytest.raises(ValueError, match=f"{other} is no gamepad"):
            Pad(go2(), Path(other))
    assert gamepad.DEVICE.name == "js0"
