"""From what a robot, a policy and an operator say to what motors are told, state by state."""

import numpy as np
import pytest

from rl.bridge import states
from rl.bridge.core import Told
from rl.bridge.limits import Limits
from rl.bridge.states import ARMED, DISCONNECTED, FAULT, HOLD, INTERVENE, PASSIVE, READY
from tests.rig import DT, Rig, body, of

REST, SIT = of("rest"), np.clip(of("rest") + 0.4, of("low"), of("high"))
FAST = 5  # ticks of the wire in a period


def targets(told: Told) -> np.ndarray:
    assert told.command is not None
    return told.command.targets


def test_who_says_nothing_is_told_nothing() -> None:
    rig = Rig()
    for _ in range(5):
        told = rig.tick()
        assert (told.state, told.datagram) == (DISCONNECTED, b"")
    told = rig.tick(body())
    assert told.state == PASSIVE
    assert told.command.damp
    assert (told.command.kp == 0).all()


@pytest.mark.parametrize("ticks", [1, FAST])
def test_it_stands_up_slowly_from_where_it_is(ticks: int) -> None:
    rig = Rig(ticks=ticks)
    rig.tick(body(SIT))
    rows = [rig.tick(body(SIT), event=states.STAND)]
    rows += [rig.tick(body(SIT)) for _ in range(round(3 / rig.core.dt))]
    assert {row.state for row in rows} == {READY}
    way = np.stack([targets(row) for row in rows])
    np.testing.assert_allclose(way[0], SIT, atol=1e-6)
    np.testing.assert_allclose(way[-1], REST, atol=1e-6)
    pace = np.diff(way, axis=0) / rig.core.dt
    assert np.abs(pace).max() < 0.25 * of("speed").min()
    assert np.abs(np.diff(pace, axis=0) / rig.core.dt).max() < 2  # no jerks
    stiff = np.stack([row.command.kp for row in rows]) / of("kp")
    once = round(1 / rig.core.dt)
    assert (np.diff(stiff[:, 0]) >= 0).all()
    assert [stiff[0].max() < 0.03, stiff[once].min()] == [True, 1.0]


def test_it_is_not_armed_before_it_stands_nor_without_a_policy() -> None:
    rig = Rig()
    rig.tick(body(SIT))
    rig.tick(body(SIT), event=states.STAND)
    assert rig.tick(body(SIT), event=states.ARM).state == READY
    assert "it is still on its way to its rest" in rig.core.refused
    alone = Rig()
    alone.core.ears.met = False
    for event in (states.STAND, *[""] * 200):
        alone.tick(body(), event=event)
    assert alone.tick(body(), event=states.ARM).state == READY
    assert "no policy has come" in alone.core.refused


def test_an_event_that_leads_nowhere_is_refused_and_changes_nothing() -> None:
    rig = Rig()
    assert rig.tick(body(), event=states.ARM).state == PASSIVE
    assert "'arm' leads nowhere from passive; an operator may say stand, relax" in rig.core.refused


def test_an_event_happens_once_however_often_it_is_said() -> None:
    rig = Rig().armed()
    rig.tick(body(), REST, event=states.WAIT)
    rig.tick(body(), event=states.ARM)
    assert rig.tick(body(), REST).state == ARMED
    for _ in range(5):  # the event's number is the same
        rig.word -= 1
        assert rig.tick(body(), REST, event=states.WAIT).state == ARMED


@pytest.mark.parametrize("ticks", [1, FAST])
def test_a_policy_is_asked_once_in_its_period_and_blended_in(ticks: int) -> None:
    rig, wish = Rig(ticks=ticks), REST + 0.2
    rig.tick(body())
    for event in (states.STAND, *[""] * round(3 / rig.core.dt)):
        rig.tick(body(), event=event)
    asked, way = [], []
    for t in range(2 * round(1 / rig.core.dt)):
        way.append(targets(rig.tick(body(), wish, event=states.ARM if t == 0 else "")))
        asked.append(rig.asked is not None)
        if t == 0:
            assert rig.asked.reset
        elif rig.asked:
            assert not rig.asked.reset
    assert asked == [t % ticks == 0 for t in range(len(asked))]
    rise = (np.stack(way) - REST) / 0.2
    half = round(0.5 / rig.core.dt)
    np.testing.assert_allclose(rise[half], 0.5, atol=0.05)
    np.testing.assert_allclose(way[-1], wish.astype("f4"), rtol=0, atol=0)
    assert (np.diff(rise, axis=0) >= -1e-6).all()


def test_a_plan_is_followed_by_counting_and_its_last_target_held() -> None:
    rig = Rig(Limits(plan_age=3.0)).armed()
    chunk = REST + 0.01 * np.arange(1, 5)[:, None]
    got = [targets(rig.tick(body(), chunk))]
    rig.core.wishes.due = lambda robot: False  # nothing is asked
    got += [targets(rig.tick(body())) for _ in range(6)]
    np.testing.assert_allclose(np.stack(got) - REST, 0.01 * np.array(
        [1, 2, 3, 4, 4, 4, 4])[:, None] * np.ones(12), atol=1e-6)  # fmt: skip
    assert rig.core.state == ARMED
    rig.tick(body())
    assert rig.tick(body()).state == HOLD


def test_a_late_plan_begins_where_time_has_come_to() -> None:
    rig = Rig(Limits(plan_age=9.0)).armed()
    first = rig.core.wishes.period
    for _ in range(3):
        rig.tick(body())  # three periods without an answer
    rig.policy(REST + 0.01 * np.arange(1, 7)[:, None], first)
    got = targets(rig.tick(body()))
    np.testing.assert_allclose(got - REST, 0.04, atol=1e-6)
    rig.policy(REST[None] + 0.5, first - 1)  # an older one
    rig.policy(REST[None] + 0.5, rig.core.wishes.period + 1)  # one of the future
    np.testing.assert_allclose(targets(rig.tick(body())) - REST, 0.05, atol=1e-6)
    assert rig.core.ears.counts["policy: old"] == 2


def test_an_answer_from_before_it_was_armed_again_is_none() -> None:
    """However its network held it up: the same number is never asked twice."""
    rig = Rig().armed()
    old = []
    for _ in range(3):
        rig.tick(body(), REST)
        old.append(rig.asked.period)
    rig.tick(body(), REST, event=states.WAIT)
    rig.tick(body(), event=states.ARM)
    assert (rig.core.state, rig.asked.reset) == (ARMED, True)
    assert rig.asked.period > max(old)
    for first in old:
        rig.policy(REST[None] + 0.5, first)
    rig.tick(body())
    assert rig.core.wishes.plan is None
    assert rig.core.ears.counts["policy: old"] == 3
    rig.tick(body(), REST)
    assert rig.core.wishes.plan is not None


@pytest.mark.parametrize("ticks", [1, FAST])
def test_without_a_policy_it_is_held_and_a_walker_then_damped(ticks: int) -> None:
    """In 2.5 periods and 2 ticks; one that stands still is held for ever."""
    for speeds, end in ((1.0, FAULT), (0.0, HOLD)):
        rig = Rig(ticks=ticks).armed()
        told = rig.tick(body(speeds=speeds), REST + 0.05)
        states_, way = [], []
        for _ in range(round(1.5 / rig.core.dt)):
            told = rig.tick(body(speeds=speeds))
            states_.append(told.state)
            way.append(targets(told))
        held = states_.index(HOLD)
        assert held * rig.core.dt <= 2.5 * DT + 2 * rig.core.dt
        assert states_[-1] == end
        while_held = [x for x, state in zip(way, states_, strict=True) if state == HOLD]
        np.testing.assert_array_equal(while_held, while_held[:1] * len(while_held))
        if end == FAULT:
            assert 0.5 < states_.count(HOLD) * rig.core.dt < 0.5 + 3 * rig.core.dt


def test_a_human_takes_over_from_where_it_is_and_gives_back() -> None:
    rig, wish, jog = Rig().armed(), REST + 0.2, np.zeros(12)
    jog[2] = -0.5
    rig.tick(body(), wish)
    assert rig.tick(body(), wish, event=states.TAKE).state == INTERVENE
    before = rig.core.limiter.targets.copy()
    for _ in range(10):
        told = rig.tick(body(), wish, jog=jog, deadman=True)
        assert rig.asked is not None  # its memory stays warm
        assert not rig.asked.reset
    np.testing.assert_allclose(targets(told) - before, 10 * DT * jog, atol=1e-6)
    for _ in range(10):
        told = rig.tick(body(), wish, jog=jog)  # no hand on it
    np.testing.assert_allclose(targets(told) - before, 10 * DT * jog, atol=1e-6)
    way = [targets(rig.tick(body(), wish, event=states.GIVE))]
    way += [targets(rig.tick(body(), wish)) for _ in range(60)]
    assert not rig.asked.reset
    assert np.abs(np.diff(way, axis=0)).max() < 0.02  # no jump
    np.testing.assert_allclose(way[-1], wish, atol=1e-6)


def test_a_watcher_may_stop_it_and_nothing_else() -> None:
    rig = Rig().armed()
    sayer = Rig()
    said: list[bytes] = []
    sayer.core.hear = lambda source, datagram: said.append(datagram)
    for event in states.ASKED:
        sayer.operator(event)
    for datagram, event in zip(said, states.ASKED, strict=True):
        if event != states.STOP:
            rig.core.hear("watcher", datagram)
            assert rig.tick(body(), REST).state == ARMED
    rig.tick(body(), REST)
    rig.core.ears.events.clear()
    rig.number += 1
    rig.core.begin(rig.number * DT, 0.0)
    rig.core.hear("watcher", said[states.ASKED.index(states.STOP)])
    rig.core.sense()
    assert rig.core.act().state == FAULT


def test_a_simulated_episode_begins_armed_and_another_robots_never() -> None:
    rig = Rig(episodes=True)
    told = rig.tick(body(SIT), SIT, reset=True)
    assert (told.state, rig.asked.reset) == (ARMED, True)
    np.testing.assert_allclose(targets(told), SIT, atol=1e-6)
    rig.tick(body(), event=states.STOP)
    assert rig.tick(body(SIT), SIT, reset=True).state == ARMED
    real = Rig()
    assert real.tick(body(), REST, reset=True).state == PASSIVE


@pytest.mark.parametrize("ticks", [1, FAST])
def test_the_same_messages_lead_to_the_same_commands(ticks: int) -> None:
    found = []
    for _ in range(2):
        rng, rig = np.random.default_rng(3), Rig(ticks=ticks)
        rig.armed()
        found.append(
            [
                rig.tick(body(REST + rng.normal(0, 0.1, 12)), REST + rng.normal(0, 1, 12)).datagram
                for _ in range(300)
            ]
        )
    assert found[0] == found[1]
