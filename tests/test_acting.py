"""A human in the place of a policy that learns: what is pushed, and in whose hands it is."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge import states
from rl.bridge.acting import GRIP, MOVES, ONE, REST_S, Acting
from rl.bridge.keys import LITTLE, PRESSED_S
from rl.bridge.pilot import AGAIN_S
from rl.bridge.states import ARMED, HOLD, INTERVENE
from tests import hands
from tests.hands import HAND, JOINTS, Clock, Driven, now, terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


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


def test_what_is_pressed_is_told(clock: Clock, capsys: Any) -> None:
    with terminal(hands.spec("x", "y", "z")):
        told = capsys.readouterr().out
        assert "f: it failed, begin anew" in told
        assert "in hand  w s: x, q e: y, i k: z; five times as far with the shift" in told


@pytest.mark.parametrize("state", [ARMED, INTERVENE, HOLD])
def test_a_key_says_once_that_an_episode_is_over(clock: Clock, state: str) -> None:
    with terminal(HAND) as (keys, press):
        press("f")
        assert keys.word(now(state, begun=5)).over == (0 if state == HOLD else 5)
        assert keys.word(now(state, begun=5)).over == 0


def test_a_new_episode_begins_with_an_open_hand(clock: Clock) -> None:
    made = Acting(HAND.action)
    made.action(now(INTERVENE, begun=1), {GRIP: -1.0})
    assert made.action(now(INTERVENE, begun=1), {})[-1] == -1
    assert made.action(now(INTERVENE, begun=2), {})[-1] == 1


def test_a_grip_that_was_told_stays_while_its_taking_over_is_on_its_way(clock: Clock) -> None:
    made, policys = Acting(HAND.action), [0.0, 0.0, 0.0, 0.0, 0.4]
    assert made.action(now(ARMED, policys), {})[-1] == 0.4
    assert made.action(now(ARMED, policys), {GRIP: -1.0})[-1] == -1
    clock.now += AGAIN_S / 2
    assert made.action(now(ARMED, policys), {})[-1] == -1
    clock.now += AGAIN_S
    assert made.action(now(ARMED, policys), {})[-1] == 0.4


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
    assert AGAIN_S == 0.2
