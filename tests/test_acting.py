"""A human in the place of a policy that learns: what is pushed, and in whose hands it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge import acting, states
from rl.bridge.acting import GRIP, MOVES, ONE, REST_S, Acting
from rl.bridge.gamepad import AXIS, BUTTON, FULL, HAT_X, HAT_Y, INIT, LEFT, RIGHT, A, Gamepad
from rl.bridge.keys import LITTLE, PRESSED_S
from rl.bridge.states import ARMED, HOLD, INTERVENE, READY
from tests import hands
from tests.guided import Guided
from tests.hands import HAND, JOINTS, Clock, Driven, Pad, now, terminal
from tests.rig import body, of


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


def test_keys_act_where_it_is_in_hand_a_little_or_all_the_way(clock: Clock) -> None:
    with terminal(HAND) as (keys, press):
        robot = Driven(keys, clock)
        robot.own[:] = 0.3, 0.3, 0.3, 0.3, -0.7
        press("wik")
        robot.does(0, 0, 0, 0, -0.7)  # whoever has not taken it does nothing
        assert robot.state == ARMED
        press("t")
        robot.does(0, 0, 0, 0, -0.7)
        assert robot.state == INTERVENE
        robot.own[-1] = 0.9  # what the policy would do meanwhile is nothing to a hand
        press("wqIa")
        assert robot.live().deadman
        robot.does(LITTLE, LITTLE, 1, LITTLE, -0.7)
        press("sEkD")
        robot.does(-LITTLE, -1, -LITTLE, -1, -0.7)
        robot.live(PRESSED_S)
        robot.does(0, 0, 0, 0, -0.7)
        assert not robot.live().deadman
        press("o")
        robot.does(0, 0, 0, 0, 1)
        robot.live(5)  # it is kept, and its hands stay on it
        robot.does(0, 0, 0, 0, 1)
        press("p")
        robot.does(0, 0, 0, 0, -1)
        press("t")
        robot.live()
        assert robot.events == [states.TAKE, states.GIVE]


def test_what_is_no_hands_is_chosen_and_moved(clock: Clock, capsys: Any) -> None:
    with terminal(JOINTS) as (keys, press):
        assert "n b + -: one of hip, knee, ankle" in capsys.readouterr().out
        robot = Driven(keys, clock, INTERVENE)
        press("n+")
        robot.does(0, LITTLE, 0)
        assert "knee +0.20" in capsys.readouterr().out
        press("bb-")
        robot.does(0, 0, -LITTLE)
        press("wI")  # are of a hand's
        robot.live(1)
        robot.does(0, 0, 0)
        assert not robot.live().deadman


def test_what_is_pressed_is_told(clock: Clock, capsys: Any, pad: Pad) -> None:
    with terminal(hands.spec("x", "y", "z")):
        told = capsys.readouterr().out
        assert "f: it failed, begin anew" in told
        assert "in hand  w s: x, q e: y, i k: z; five times as far with the shift" in told
    opened(pad, HAND)
    assert (
        "right stick: yaw, cross right opens, left shuts: grip; a push" in capsys.readouterr().out
    )


@pytest.mark.parametrize("state", [ARMED, INTERVENE, HOLD])
def test_a_key_says_once_that_an_episode_is_over(clock: Clock, state: str) -> None:
    with terminal(HAND) as (keys, press):
        press("f")
        assert keys.word(now(state, begun=5)).over == (0 if state == HOLD else 5)
        assert keys.word(now(state, begun=5)).over == 0


def test_a_stick_takes_it_over_and_gives_it_back(clock: Clock, pad: Pad) -> None:
    made = opened(pad)
    robot = Driven(made, clock)
    robot.live(1)
    assert (robot.state, robot.events) == (ARMED, [])  # nor is it held with no hand on it
    pad.push(AXIS, 1, round(-0.05 * FULL))
    robot.live(1)
    assert robot.state == ARMED  # in the dead zone
    for axis in (1, 0, 3, 4):
        pad.push(AXIS, axis, -FULL)
    robot.does(1, 1, 1, 1, 0)
    assert robot.state == INTERVENE
    for axis, value in ((1, FULL), (0, round(0.55 * FULL)), (3, 0), (4, 0)):
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


def test_a_new_episode_begins_with_an_open_hand(clock: Clock) -> None:
    made = Acting(HAND.action)
    made.action(now(INTERVENE, begun=1), {GRIP: -1.0})
    assert made.action(now(INTERVENE, begun=1), {})[-1] == -1
    assert made.action(now(INTERVENE, begun=2), {})[-1] == 1


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


NAMES = st.sampled_from([*MOVES, GRIP, ONE, "other"])
PUSHED = st.dictionaries(NAMES, st.floats(-1, 1))
SPECS = st.sampled_from([HAND, JOINTS, hands.spec("z", "x"), hands.spec("grip", "roll", "x")])
MOMENTS = st.tuples(PUSHED, st.sampled_from(states.STATES), st.floats(0, 1), st.booleans())


@given(SPECS, st.lists(MOMENTS, max_size=20), st.lists(st.floats(-3, 3), min_size=5, max_size=5))
def test_whatever_is_pushed_an_action_is_one(
    spec: Any, moments: list[Any], own: list[float]
) -> None:
    """Within its range; nothing moves that is not pushed, and nobody takes it without a touch."""
    made, since = Acting(spec.action), 0.0
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        for pushed, state, passed, told in moments:
            clock.now += passed
            status = now(state, own[: len(spec.action)] if told else None)
            action, felt = made.action(status, pushed), made.felt(pushed)
            assert np.isfinite(action).all()
            assert np.abs(action).max() <= 1
            moved = {n for n, x in zip(made.names, action, strict=True) if x and n != GRIP}
            assert moved <= ({*felt} if made.hand else {made.names[made.chosen]})
            assert felt or not moved
            word = made.turns(status, bool(felt))
            since = clock.now if felt else since
            assert word != states.TAKE or (state == ARMED and felt)
            assert word != states.GIVE or (state == INTERVENE and clock.now - since > REST_S)
            made.other(1)


def test_a_word_that_is_on_its_way_is_not_said_again(clock: Clock) -> None:
    made = Acting(HAND.action)
    said = []
    for _ in range(8):
        clock.now += 0.05
        said.append(made.turns(now(ARMED), True))
    assert said.count(states.TAKE) == 2
    assert acting.AGAIN_S == 0.2
