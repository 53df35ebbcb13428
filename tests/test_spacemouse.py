"""A SpaceMouse beside keys: what its cap and buttons do, and that it is let go."""

import os
import pty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge import states
from rl.bridge.acting import REST_S
from rl.bridge.keys import LITTLE
from rl.bridge.source import By
from rl.bridge.spacemouse import FULL, MOST, NOTHING, SILENT_S, SpaceMouse
from rl.bridge.states import ARMED, INTERVENE
from tests.hands import HAND, Clock, Driven, Mouse, now, terminal
from tests.rig import go2

MOVED, TURNED = 1, 2


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def mouse(tmp_path: Path) -> Mouse:
    return Mouse(tmp_path / "hidraw0")


@pytest.fixture
def driven(clock: Clock, mouse: Mouse) -> Iterator[tuple[Driven, Any, Mouse]]:
    """A robot whose human has keys, and a SpaceMouse beside them."""
    with terminal(HAND, SpaceMouse(mouse.path)) as (keys, press):
        yield Driven(keys, clock), press, mouse


def pushes(robot: Driven, mouse: Mouse, *axes: int) -> Any:
    """What is done while a cap is held so, and says so all the time; in two reports."""
    for _ in range(4):
        mouse.say(MOVED, *axes[:3])
        mouse.say(TURNED, *axes[3:])
        word = robot.live()
    return word.action


NOISE = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=20)).map(
        lambda x: bytes([x[0]]) + x[1]
    ),
)


@given(looks=st.lists(st.lists(NOISE, max_size=6), max_size=6))
def test_no_noise_asks_for_what_is_no_action(
    looks: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And where nothing is held, no hand is on it."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        other = Mouse(tmp_path_factory.mktemp("mouse") / "hidraw0")
        with terminal(HAND, SpaceMouse(other.path)) as (keys, _):
            robot = Driven(keys, clock)
            for reports in looks:
                for report in filter(None, reports):  # none is empty, on a wire
                    os.write(other.end, report)
                word = robot.live()
                assert keys.beside is not None
                held = keys.beside.seen != NOTHING or any(x[:1] == b"\3" for x in reports)
                assert held or not word.deadman
            robot.live(SILENT_S + 0.1)
            other.press(0)
            robot.live()
            assert not robot.live().deadman
        other.out()


def test_a_touch_takes_it_over_and_each_axis_goes_its_way(driven: Any) -> None:
    robot, _, mouse = driven
    robot.live(1)
    assert robot.state == ARMED
    assert not pushes(robot, mouse, 20, -20, 20, -20, 20, -20)[:4].any()  # a hand rests on it
    assert robot.state == ARMED
    np.testing.assert_array_equal(pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0), [1, 0, 0, 0, 0])
    assert robot.state == INTERVENE
    for axes, action in (
        ((0, FULL, 0, 0, 0, 0), (-1, 0, 0, 0, 0)),  # to the user: back
        ((FULL, 0, 0, 0, 0, 0), (0, -1, 0, 0, 0)),  # right
        ((0, 0, -FULL, 0, 0, 0), (0, 0, 1, 0, 0)),  # up
        ((0, 0, 0, 0, 0, FULL), (0, 0, 0, -1, 0)),  # clockwise
        ((0, 0, 0, FULL, FULL, 0), (0, 0, 0, 0, 0)),  # tilted, which no action is
        ((32767, -32768, 0, 0, 0, -700), (1, -1, 0, 1, 0)),
    ):
        np.testing.assert_array_equal(pushes(robot, mouse, *axes), action)
    np.testing.assert_allclose(pushes(robot, mouse, 0, -192, 0, 0, 0, 0)[0], 0.5, atol=0.01)
    pushes(robot, mouse, *[0] * 6)
    robot.live(REST_S)
    assert robot.state == ARMED
    assert robot.events == [states.TAKE, states.GIVE]


def test_buttons_shut_and_open_and_take_it_over(driven: Any) -> None:
    robot, _, mouse = driven
    for buttons, grip in ((1, -1), (2, 1)):
        mouse.press(buttons)
        mouse.press(0)  # within one look
        robot.does(0, 0, 0, 0, grip)
        robot.does(0, 0, 0, 0, grip)
    assert robot.events == [states.TAKE]


def test_what_says_nothing_any_more_is_let_go(driven: Any) -> None:
    """A wireless one may be out of reach."""
    robot, _, mouse = driven
    pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0)
    robot.live(SILENT_S - 0.1)
    assert robot.live().deadman
    robot.live(0.1)
    assert not robot.live().deadman
    robot.live(REST_S)
    assert robot.state == ARMED


def test_what_came_before_others_were_forgotten_is_no_news(driven: Any) -> None:
    robot, _, mouse = driven
    for _ in range(MOST):
        mouse.say(MOVED, 0, -FULL, 0)
    assert not robot.live().deadman
    mouse.say(MOVED, 0, -FULL, 0)
    assert robot.live().deadman


def test_one_that_is_gone_pushes_nothing_and_is_gone_on_with(driven: Any, capsys: Any) -> None:
    robot, press, mouse = driven
    pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0)
    mouse.press(2)
    assert robot.live().deadman
    mouse.out()
    for _ in range(3):
        word = robot.live()
        assert (word.deadman, word.action[0]) == (False, 0)
    robot.live(REST_S)
    assert robot.state == ARMED
    assert capsys.readouterr().out.count("The SpaceMouse is gone: nothing is pushed until") == 1
    press(" ")
    assert robot.live().event == states.STOP  # keys are there
    robot.state = ARMED
    mouse.back()
    robot.live(0.5)
    assert capsys.readouterr().out.count("hidraw0 is there") == 1
    assert robot.state == ARMED
    np.testing.assert_array_equal(pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0)[0], 1)
    assert robot.state == INTERVENE


def test_keys_act_beside_it(driven: Any) -> None:
    robot, press, mouse = driven
    press("t")
    robot.live()
    press("i")
    robot.does(0, 0, LITTLE, 0, 0)
    robot.live(2)
    assert robot.state == INTERVENE  # it was taken by a key, and stays
    mouse.press(1)
    robot.does(0, 0, 0, 0, -1)


def test_a_joint_of_an_ordinary_robot_is_jogged(clock: Clock, mouse: Mouse) -> None:
    with terminal(go2(), SpaceMouse(mouse.path)) as (keys, press):
        press("n")
        mouse.say(MOVED, 0, -2 * FULL, 0)  # no further than all the way
        word = keys.word(now(INTERVENE))
        motor = go2().actuators[1]
        np.testing.assert_allclose(word.jog, np.eye(12)[1] * (motor.high - motor.low) / 10)
        assert (word.deadman, word.event) == (True, "")
        mouse.say(MOVED, 0, 0, 0)
        let = keys.word(now(INTERVENE))
        assert (let.deadman, let.jog.any()) == (False, np.False_)


def test_a_command_line_has_it_beside_keys(
    clock: Clock, mouse: Mouse, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    end, other = pty.openpty()
    with os.fdopen(other, "rb", buffering=0) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        with By(spacemouse=(mouse.path,)).source(HAND, terminal=False) as words:
            assert "its buttons shut, and open" in capsys.readouterr().out
            mouse.say(MOVED, FULL, 0, 0)
            assert words.word(now(ARMED)).event == states.TAKE
            assert not words.silent(1.0)  # what is pushed meanwhile reaches nobody
            for buttons in (1, 0):
                mouse.press(buttons)
            words.silent(1.0)
            word = words.word(now(INTERVENE))
            assert word.action is not None
            assert word.action.tolist() == [0, -1, 0, 0, 1]
        with pytest.raises(ValueError, match="--spacemouse takes one device"):
            By(spacemouse=(mouse.path, mouse.path)).source(HAND, terminal=False)
    os.close(end)
