"""A robot driven from a keyboard, in a terminal of the test's own."""

import os
import pty
import select
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rl.bridge import gamepad, states
from rl.bridge.keys import NAMES, PRESSED_S, STEPS, Keys
from rl.bridge.messages import Status
from rl.bridge.refusals import ABSENT, NOWHERE, Refused
from tests.rig import body, go2, of

Press = Any


@pytest.fixture
def keys(capsys: pytest.CaptureFixture[str]) -> Iterator[tuple[Keys, Press]]:
    """The keyboard, and how to press on it."""
    hand, terminal = pty.openpty()
    with os.fdopen(terminal, "rb", buffering=0) as stream, Keys(go2(), stream) as made:

        def press(text: str) -> None:
            os.write(hand, text.encode())
            select.select([stream], [], [], 5)  # a terminal has it a little later

        yield made, press
    os.close(hand)


def now(state: str, why: int = 0) -> Status:
    return Status(7, 0.14, state, why, 0, 0, body(), of("rest"))


def test_keys_ask_for_more_and_less_and_no_more_than_may_be(keys: tuple[Keys, Press]) -> None:
    made, press = keys
    press("ww")
    np.testing.assert_allclose(made.word(now(states.ARMED)).command, [2 * 1.5 / STEPS, 0, 0])
    press("wqd" * 30)
    np.testing.assert_allclose(made.word(now(states.ARMED)).command, [1.5, 0.8, -1.2])
    press("x")
    np.testing.assert_array_equal(made.word(now(states.ARMED)).command, 0)
    assert made.word(now(states.ARMED)).event == ""


def test_a_key_says_that_it_is_done_once(keys: tuple[Keys, Press]) -> None:
    made, press = keys
    assert not made.word(now(states.ARMED)).done
    press("y")
    word = made.word(now(states.ARMED))
    assert (word.done, word.event, word.leaves) == (True, "", False)
    assert not made.word(now(states.ARMED)).done


@pytest.mark.parametrize("key", ["\x1b[A", "\x1b[1;5D", "\x1bOq", "\x1bg", "\x1b", "\x1b[15~"])
def test_keys_that_a_terminal_sends_as_many_letters_are_none(
    keys: tuple[Keys, Press], key: str
) -> None:
    made, press = keys
    press(f"w{key}")
    word = made.word(now(states.READY))
    np.testing.assert_allclose(word.command, [1.5 / STEPS, 0, 0])
    assert (word.event, word.leaves) == ("", False)
    press(f"{key} ")
    assert made.word(now(states.ARMED)).event == states.STOP


@pytest.mark.parametrize("key", [" ", "r", "c"])
def test_who_was_stopped_or_lay_down_is_asked_for_nothing(
    keys: tuple[Keys, Press], key: str
) -> None:
    made, press = keys
    press("ww" + key)
    np.testing.assert_array_equal(made.word(now(states.ARMED)).command, 0)


def test_go_leads_to_being_armed_and_no_further(keys: tuple[Keys, Press]) -> None:
    made, press = keys
    assert made.word(now(states.PASSIVE)).event == ""
    press("g")
    assert made.word(now(states.PASSIVE)).event == states.STAND
    made.hand.tried = -np.inf
    assert made.word(now(states.READY)).event == states.ARM
    assert made.word(now(states.READY)).event == ""  # not all the time
    made.hand.tried = -np.inf
    assert made.word(now(states.READY)).event == states.ARM  # it was on its way still
    made.hand.tried = -np.inf
    assert made.word(now(states.ARMED)).event == ""
    assert made.word(now(states.HOLD)).event == ""  # it does not go on by itself
    press("g")
    assert made.word(now(states.HOLD)).event == states.ARM
    press("r")
    assert made.word(now(states.HOLD)).event == states.RELAX
    made.hand.tried = -np.inf
    assert made.word(now(states.PASSIVE)).event == ""


def test_what_is_refused_is_told_by_what_is_pressed(
    keys: tuple[Keys, Press], capsys: pytest.CaptureFixture[str]
) -> None:
    assert {*NAMES} == {*gamepad.NAMES} == {*states.ASKED}
    where, what = states.STATES.index(states.PASSIVE), states.ASKED.index(states.WAIT)
    keys[0].word(now(states.PASSIVE)._replace(refused=Refused(NOWHERE, what, where)))
    assert (
        "h leads nowhere from passive; an operator may say u, r, SPACE." in capsys.readouterr().out
    )


def test_of_what_is_pressed_in_a_bridges_silence_a_stop_alone_is_said_later(
    keys: tuple[Keys, Press], capsys: pytest.CaptureFixture[str]
) -> None:
    made, press = keys
    press("gw ")
    assert not made.silent(1.2)
    assert "NO WORD of the bridge for 1 s: no stop reaches it" in capsys.readouterr().out
    word = made.word(now(states.ARMED))
    assert (word.event, word.command.tolist()) == (states.STOP, [0, 0, 0])
    assert made.word(now(states.ARMED)).event == ""
    press("z")
    assert made.silent(3.0)


def test_a_walker_is_asked_for_nothing_until_it_is_armed(keys: tuple[Keys, Press]) -> None:
    made, press = keys
    for state in (states.PASSIVE, states.READY, states.HOLD):
        press("ww")
        made.word(now(state))
        np.testing.assert_array_equal(made.word(now(state)).command, 0)


def test_who_is_to_go_from_a_fault_is_told_what_comes_first(
    keys: tuple[Keys, Press], capsys: pytest.CaptureFixture[str]
) -> None:
    made, press = keys
    press("g")
    assert made.word(now(states.FAULT)).event == ""
    assert "g leads nowhere from fault; an operator may say c, SPACE." in capsys.readouterr().out


def test_a_stop_is_heard_among_all_that_is_pressed(keys: tuple[Keys, Press]) -> None:
    made, press = keys
    press("gw hgw")
    assert made.word(now(states.ARMED)).event == states.STOP
    press("c")
    assert made.word(now(states.FAULT)).event == states.CLEAR
    press("z")
    assert made.word(now(states.PASSIVE)).leaves


def test_what_it_is_in_is_shown_once_with_the_reason(
    keys: tuple[Keys, Press], capsys: pytest.CaptureFixture[str]
) -> None:
    made, _ = keys
    for _ in range(3):
        made.word(now(states.FAULT, why=16))
    said = capsys.readouterr().out
    assert said.count("fault (it leans too far)   asked +0.00 +0.00 +0.00") == 1


def test_joints_are_taken_in_hand_chosen_and_jogged(keys: tuple[Keys, Press]) -> None:
    """While a key is pressed, and a moment longer."""
    made, press = keys
    press("t")
    assert made.word(now(states.ARMED)).event == states.TAKE
    press("nnb+")
    word = made.word(now(states.INTERVENE))
    motor = go2().actuators[1]
    assert word.deadman
    np.testing.assert_allclose(word.jog, np.eye(12)[1] * (motor.high - motor.low) / 10)
    press("-")
    np.testing.assert_allclose(made.word(now(states.INTERVENE)).jog, -np.asarray(word.jog))
    made.pressed_at -= PRESSED_S
    let = made.word(now(states.INTERVENE))
    assert not let.deadman
    np.testing.assert_array_equal(let.jog, 0)
    press("t")
    assert made.word(now(states.INTERVENE)).event == states.GIVE


def test_what_was_refused_is_shown_once(
    keys: tuple[Keys, Press], capsys: pytest.CaptureFixture[str]
) -> None:
    made, _ = keys
    refused = Refused(ABSENT, states.ASKED.index(states.ARM))
    for why in (refused, refused, Refused(), refused):
        made.word(now(states.READY)._replace(refused=why))
    assert capsys.readouterr().out.count("g is refused: no policy has come.\n") == 2
