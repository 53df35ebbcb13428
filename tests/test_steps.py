"""Steps to learn from: who acted, what each would have done, and what came of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.learn.steps import End, Step, Steps, pack, unpack
from rl.bridge.messages import Own
from tests.guided import MEMORY, SIZE, Guided, spec
from tests.rig import body, of

REST = of("rest")


class Kept(Guided):
    """A rig whose steps are kept."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.kept: list[Step | End | None] = []
        self.steps = Steps(self.spec, lambda record: self.kept.append(unpack(self.spec, record)))
        sense, act = self.core.sense, self.core.act

        def asked() -> bytes:
            if question := sense():
                self.steps.ask(self.core)
            return question

        def told() -> Any:
            found = act()
            self.steps.tick(self.core, found)
            return found

        self.core.sense, self.core.act = asked, told  # type: ignore[method-assign]


def numbered(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_a_step_says_who_acted_and_what_each_would_have_done() -> None:
    rig = Kept(episodes=True)
    rig.own = Own(numbered(0.1, 0.2, 0.3), 0.0, 7, numbered(5, 6))
    rig.tick(body(), REST, reset=True, action=numbered(1, 0, -1))
    rig.own = Own(numbered(0.4, 0.5, 0.6), 1.0, 8, numbered(7, 8))
    rig.tick(body(), REST, event=states.TAKE, action=numbered(0.5, -0.5, 9))
    rig.tick(body(), REST, event=states.GIVE)
    first, second = rig.kept
    assert isinstance(first, Step)
    assert isinstance(second, Step)
    assert (first.acts, second.acts) == (False, True)
    assert (first.weights, first.done, second.weights, second.done) == (7, 0.0, 8, 1.0)
    np.testing.assert_array_equal(first.policy, numbered(0.1, 0.2, 0.3))
    np.testing.assert_array_equal([first.memory, second.memory], [[5, 6], [7, 8]])
    np.testing.assert_array_equal(first.human, numbered(1, 0, -1))
    np.testing.assert_array_equal(second.policy, numbered(0.4, 0.5, 0.6))
    np.testing.assert_array_equal(second.human, numbered(0.5, -0.5, 1))  # within its range
    assert (first.episode, first.period + 1) == (1, second.period)
    assert first.followed
    assert not first.over


def test_who_acts_is_asked_for_and_the_policy_with_it() -> None:
    """The question has the human's action, and whether it counts."""
    rig = Kept(episodes=True)
    rig.tick(body(), REST, reset=True, action=numbered(1, 0, -1))
    assert rig.asked is not None
    assert not rig.asked.human
    rig.tick(body(), REST, event=states.TAKE, action=numbered(0.5, -0.5, 0))
    assert rig.asked is not None
    assert rig.asked.human
    np.testing.assert_array_equal(rig.asked.action, numbered(0.5, -0.5, 0))


def test_targets_go_on_as_they_are_when_hands_change() -> None:
    """A human acts through the policy, whose targets nothing blends or holds."""
    rig, wish = Kept(episodes=True), REST + 0.01
    rig.tick(body(), REST, reset=True)
    rig.tick(body(), wish, event=states.TAKE)
    told = rig.tick(body(), wish, event=states.GIVE)
    assert told.state == states.ARMED
    assert told.command is not None
    np.testing.assert_allclose(told.command.targets, wish)


def test_a_period_that_is_not_answered_is_no_step_and_one_that_is_late_says_so() -> None:
    rig = Kept(episodes=True, ticks=2)
    rig.tick(body(), REST, reset=True)
    rig.tick(body())
    rig.tick(body(), None)  # asked, and not answered in its first tick
    rig.policy(REST[None], rig.asked.period if rig.asked else -1)
    rig.tick(body())
    rig.tick(body(), None)  # never
    rig.tick(body())
    rig.tick(body(), REST)
    rig.tick(body())
    rig.tick(body(), REST)
    kept = [x for x in rig.kept if isinstance(x, Step)]
    assert [x.period - kept[0].period for x in kept] == [0, 1, 3]
    assert [x.followed for x in kept] == [True, False, True]


def test_an_episode_ends_with_why() -> None:
    rig = Kept(episodes=True)
    rig.tick(body(), REST, reset=True)
    rig.tick(body(), REST)
    rig.tick(body(quat=(1, 1, 0, 0)), REST)
    end = rig.kept[-1]
    assert isinstance(end, End)
    assert (end.episode, end.why, end.fell) == (1, Reason.TILT, True)
    assert len(rig.kept) == 2  # the period in which it fell is no step
    rig.tick(body(), REST, reset=True)
    rig.tick(body(), REST)
    rig.tick(body(), REST, event=states.WAIT)
    end = rig.kept[-1]
    assert isinstance(end, End)
    assert (end.episode, end.why, end.fell) == (2, Reason.ASKED, False)


def test_an_operator_ends_an_episode_of_a_simulated_robot_and_no_other() -> None:
    rig = Kept(episodes=True)
    rig.tick(body(), REST, reset=True)
    assert not rig.tick(body(), REST, over=7).command.again  # type: ignore[union-attr]
    assert rig.tick(body(), REST, over=1).command.again  # type: ignore[union-attr]
    assert not rig.tick(body(), REST, reset=True, over=1).command.again  # type: ignore[union-attr]
    rig.tick(body(), REST)
    over = [x.over for x in rig.kept if isinstance(x, Step)]
    assert over == [False, False, True, False]
    assert [type(x) for x in rig.kept] == [Step, Step, Step, End, Step]


def test_that_it_is_done_is_said_of_the_episode_that_it_is_said_of() -> None:
    rig = Kept(episodes=True)
    rig.tick(body(), REST, reset=True, over=0, done=True)
    rig.tick(body(), REST, over=7, done=True)
    rig.tick(body(), REST, over=1, done=True)
    rig.tick(body(), REST, over=1)
    rig.tick(body(), REST, reset=True, over=1, done=True)
    rig.tick(body(), REST)
    steps = [x for x in rig.kept if isinstance(x, Step)]
    assert [x.said for x in steps] == [False, False, True, False, False]
    assert [x.over for x in steps] == [False, False, True, True, False]


def test_it_is_said_in_any_tick_of_a_step() -> None:
    rig = Kept(episodes=True, ticks=2)
    rig.tick(body(), REST, reset=True)
    rig.tick(body(), over=1, done=True)
    rig.tick(body(), REST)
    rig.tick(body())
    rig.tick(body(), REST)
    assert [x.said for x in rig.kept if isinstance(x, Step)] == [True, False]


numbers = st.floats(width=32)
shapes = [sum(s.size for s in spec().sensors), len(spec().command), SIZE, SIZE]
steps = st.tuples(
    st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.floats(0, 1e9),
    *(arrays("<f4", size, elements=numbers) for size in shapes), st.booleans(), st.booleans(),
    st.booleans(), st.floats(0, 1, width=32), st.integers(0, 2**24 - 1),
    st.integers(0, 2**17 - 1).map(Reason), arrays("<f4", MEMORY, elements=numbers), st.booleans(),
).map(lambda x: Step(*x))  # fmt: skip


@given(steps)
def test_a_step_is_kept_as_it_was(sent: Step) -> None:
    got = unpack(spec(), pack(sent))
    assert isinstance(got, Step)
    for name, mine, theirs in zip(sent._fields, got, sent, strict=True):
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


@given(st.binary(max_size=400))
def test_what_is_no_step_is_none(noise: bytes) -> None:
    unpack(spec(), noise)
    whole = pack(End(3, 4, 0.5, Reason.TILT, True))
    assert unpack(spec(), whole) == End(3, 4, 0.5, Reason.TILT, True)
    assert unpack(spec(), whole[:-1]) is None


@pytest.mark.parametrize("more", [b"", b"\0\0\0\0"])
def test_a_step_of_another_robot_is_none(more: bytes) -> None:
    step = Step(1, 2, 0.0, *(np.zeros(n, "<f4") for n in shapes), False, True, False, 0.0, 0,
                Reason(0), np.zeros(MEMORY, "<f4"))  # fmt: skip
    assert (unpack(spec(), pack(step) + more) is None) == bool(more)
