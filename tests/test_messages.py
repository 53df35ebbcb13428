"""What a bridge, a policy and operators say to each other arrives as it was, or not at all."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rl.bridge import messages, states, wire
from rl.bridge.messages import NONE, Ask, Loop, Operator, Own, Plan, Status
from rl.bridge.refusals import CLEARED, Refused
from rl.spec import Channel
from tests.test_wire import SENSORS, SPEC

XY = Channel("x", "1", -1, 1), Channel("y", "1", -1, 1)
LEARNS = replace(SPEC, action=XY, memory=3)  # its policy

floats = st.floats(width=32)
pairs = arrays("<f4", 2, elements=floats)
ones = arrays("<f4", 1, elements=floats)
ticks = st.integers(0, 2**64 - 1)


def over(message: wire.Message) -> wire.Message | None:
    return wire.decode(wire.encode(message))


def same(got: Any, sent: Any) -> None:
    assert type(got) is type(sent)
    for name, mine, theirs in zip(sent._fields, got, sent, strict=True):
        if isinstance(theirs, Own):
            same(mine, theirs)
        elif isinstance(theirs, dict):
            assert mine.keys() == theirs.keys()
            for key, x in theirs.items():
                np.testing.assert_array_equal(mine[key], x, err_msg=key)
        else:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)


def readings(numbers: np.ndarray) -> dict[str, np.ndarray]:
    return {"left_pos": numbers[:1], "gyro": numbers[1:]}


four = arrays("<f4", 4, elements=floats).map(readings)


@given(
    st.tuples(ticks, st.floats(0, 1e9), four, ones, st.booleans(), st.booleans()).map(
        lambda x: Ask(*x)
    )
)
def test_a_question_arrives_as_it_was(sent: Ask) -> None:
    same(messages.ask_of(SPEC, over(messages.ask_message(SPEC, sent))), sent)


@given(st.builds(
    Ask, ticks, st.floats(0, 1e9), four, ones, st.booleans(), st.booleans(), pairs, st.booleans()
))  # fmt: skip
def test_so_does_a_question_of_one_that_learns(sent: Ask) -> None:
    same(messages.ask_of(LEARNS, over(messages.ask_message(LEARNS, sent))), sent)


finite = st.floats(-1e3, 1e3, width=32)
told = st.builds(
    Own, arrays("<f4", 2, elements=finite), finite, st.integers(0, 2**24 - 1), st.just(NONE)
)
remembered = arrays("<f4", 3, elements=finite)
plans = st.builds(lambda own, memory: own._replace(memory=memory), told, remembered)


@given(st.integers(1, 9).flatmap(lambda n: arrays("<f4", (n, 2), elements=floats)), plans)
def test_and_what_it_tells_of_itself(targets: np.ndarray, own: Own) -> None:
    sent = Plan(3, targets, own)
    same(messages.plan_of(LEARNS, over(messages.plan_message(LEARNS, sent, 0.0))), sent)
    assert messages.plan_of(SPEC, over(messages.plan_message(LEARNS, sent, 0.0))) is None


@given(st.integers(1, 9).flatmap(lambda n: arrays("<f4", (n, 2), elements=floats)), ticks)
def test_a_plan_arrives_as_it_was(targets: np.ndarray, first: int) -> None:
    sent = Plan(first, targets)
    same(messages.plan_of(SPEC, over(messages.plan_message(SPEC, sent, 0.0))), sent)


words = st.tuples(
    ticks, st.integers(-1, len(states.ASKED) - 1), st.integers(0, 2**24 - 1), st.booleans(), ones,
    pairs,
).map(lambda x: Operator(*x))  # fmt: skip


@given(words)
def test_a_word_arrives_as_it_was(sent: Operator) -> None:
    same(messages.operator_of(SPEC, over(messages.operator_message(SPEC, sent, 0.0))), sent)


@given(st.builds(lambda sent, more: sent._replace(**more), words, st.fixed_dictionaries(
    {"action": pairs, "over": st.integers(0, 2**24 - 1), "done": st.booleans()}
)))  # fmt: skip
def test_so_does_one_of_who_acts_in_the_place_of_a_policy(sent: Operator) -> None:
    same(messages.operator_of(LEARNS, over(messages.operator_message(LEARNS, sent, 0.0))), sent)


statuses = st.tuples(
    ticks, st.floats(0, 1e9), st.sampled_from(states.STATES), st.integers(0, 2**16 - 1),
    st.integers(0, 2**16 - 1), st.integers(0, 2**24 - 1), four, pairs, st.booleans(), ones,
    st.builds(Loop, *[floats] * len(Loop._fields)), st.booleans(),
    st.just(Refused()) | st.builds(
        Refused, st.integers(2, CLEARED), st.integers(0, len(states.ASKED) - 1),
        st.integers(0, 2**24 - 1),
    ),
).map(lambda x: Status(*x))  # fmt: skip


@given(statuses)
def test_a_status_arrives_as_it_was(sent: Status) -> None:
    same(messages.status_of(SPEC, over(messages.status_message(SPEC, sent))), sent)


@given(statuses, st.none() | told, st.integers(0, 2**24 - 1))
def test_so_does_one_with_what_a_policy_told(sent: Status, own: Own | None, begun: int) -> None:
    sent = sent._replace(own=own, begun=begun)
    same(messages.status_of(LEARNS, over(messages.status_message(LEARNS, sent))), sent)


@given(statuses, arrays("<f4", 3, elements=floats))
def test_a_refusal_that_there_is_not_is_no_status(sent: Status, numbers: np.ndarray) -> None:
    message = messages.status_message(SPEC, sent._replace(refused=Refused(*numbers)))
    status = messages.status_of(SPEC, over(message))
    assert status is None or status.refused.text or status.refused.why == 0


def test_a_plan_that_does_not_fit_has_no_targets() -> None:
    for count in (0, 1, 3, 5):
        message = wire.Message(wire.PLAN, 0, SPEC.hash, 4, 0.0, np.zeros(count, "<f4"))
        plan = messages.plan_of(SPEC, over(message))
        assert plan is not None
        assert (plan.first, len(plan.targets)) == (4, 0)


@pytest.mark.parametrize("spec", [SPEC, LEARNS])
def test_that_it_is_done_takes_no_more_bytes(spec: Any) -> None:
    blank = Operator(1, -1, 0, True, np.zeros(1), np.zeros(2), np.zeros(len(spec.action)), 0)
    sent = [
        wire.encode(messages.operator_message(spec, blank._replace(done=x), 0.0)) for x in (0, 1)
    ]
    assert len(sent[0]) == len(sent[1])
    assert [messages.operator_of(spec, wire.decode(x)).done for x in sent] == [False, True]


READERS = messages.ask_of, messages.operator_of, messages.status_of


@pytest.mark.parametrize("read", [*READERS, messages.plan_of])
@given(arrays("<f4", st.integers(0, 20), elements=floats), st.integers(0, 9))
def test_noise_in_our_envelope_is_understood_or_not_and_does_no_harm(
    read: Any, numbers: np.ndarray, kind: int
) -> None:
    message = wire.Message(kind, 0, SPEC.hash, 4, 0.0, numbers)
    read(SPEC, message)
    read(SPEC, message._replace(hash=bytes(8)))
    assert read(SPEC, None) is None


@pytest.mark.parametrize("spec", [SPEC, LEARNS])
@pytest.mark.parametrize("bad", [-1.0, 2.0**24, 0.5, 1e30, np.nan, np.inf])
def test_a_number_that_counts_nothing_is_no_word(spec: Any, bad: float) -> None:
    blank = Operator(1, 0, 0, False, np.zeros(1), np.zeros(2), np.zeros(len(spec.action)))
    places = (1, -1) if spec.action else (1,)
    for place in places:
        message = messages.operator_message(spec, blank, 0.0)
        message.numbers[place] = bad
        assert messages.operator_of(spec, message) is None


@pytest.mark.parametrize("bad", [-2.0, len(states.ASKED), 0.5, np.nan, np.inf])
def test_an_event_that_there_is_not_is_no_word(bad: float) -> None:
    blank = Operator(1, 0, 0, False, np.zeros(1), np.zeros(2))
    message = messages.operator_message(SPEC, blank, 0.0)
    assert messages.operator_of(SPEC, message) is not None
    message.numbers[0] = bad
    assert messages.operator_of(SPEC, message) is None
    for state in (-1.0, len(states.STATES), np.nan):
        told = {s.name: np.zeros(s.size) for s in SENSORS}
        made = messages.status_message(SPEC, Status(1, 0.0, "hold", 0, 0, 0, told, np.zeros(2)))
        made.numbers[0] = state
        assert messages.status_of(SPEC, made) is None
