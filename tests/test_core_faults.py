"""What goes wrong around a core, one thing at a time: how it ends, when, and why."""

from typing import Any

import numpy as np
import pytest

from rl.bridge import states, wire
from rl.bridge.checks import Reason
from rl.bridge.core import Told
from rl.bridge.limits import Limits
from rl.bridge.states import ARMED, DISCONNECTED, FAULT, HOLD, PASSIVE
from tests.rig import DT, Rig, body, of

REST, SIT = of("rest"), np.clip(of("rest") + 0.4, of("low"), of("high"))
FAST = 5  # ticks of the wire in a period


def targets(told: Told) -> np.ndarray:
    assert told.command is not None
    return told.command.targets


FAULTS: dict[str, tuple[dict[str, Any], str, Reason]] = {
    "leans": ({"told": body(quat=(np.cos(0.6), np.sin(0.6), 0, 0))}, FAULT, Reason.TILT),
    "beyond": ({"told": body(of("high") + 0.2)}, FAULT, Reason.RANGE | Reason.SENSES),
    "hot": ({"told": body(), "heat": 99.0}, HOLD, Reason.MOTOR),
    "failed": ({"told": body(), "failed": True}, FAULT, Reason.MOTOR),
    "stop": ({"told": body(), "event": states.STOP}, FAULT, Reason.ASKED),
    "wait": ({"told": body(), "event": states.WAIT}, HOLD, Reason.ASKED),
    "relax": ({"told": body(), "event": states.RELAX}, PASSIVE, Reason.ASKED),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_answered_in_the_same_tick(name: str) -> None:
    fault, state, why = FAULTS[name]
    rig = Rig(ticks=FAST).armed()
    told = rig.tick(**fault, wished=REST)
    assert (told.state, rig.core.why) == (state, why)
    assert told.command.damp == (state in (FAULT, PASSIVE))
    for _ in range(20):  # it does not come back by itself
        assert rig.tick(body(), REST).state == state


@pytest.mark.long
@pytest.mark.parametrize("when", ["before the question", "after it", "between two ticks"])
@pytest.mark.parametrize("ticks", [1, FAST])
@pytest.mark.parametrize("who", ["operator", "watcher"])
def test_a_stop_is_heard_at_any_time_of_a_tick(ticks: int, who: str, when: str) -> None:
    """Also while the policy is waited for: the next tick is damped."""
    rig, said = Rig(ticks=ticks).armed(), []
    hear, rig.core.hear = rig.core.hear, lambda _, datagram: said.append(datagram)
    rig.operator(states.STOP)
    rig.core.hear = hear
    rig.number += 1
    rig.core.begin(rig.number * rig.core.dt, 0.0)
    rig.robot(body())
    for now, does in (("before the question", rig.core.sense), ("after it", rig.core.act)):
        if now == when:
            rig.core.hear(who, said[0])
        does()
    if when == "between two ticks":
        rig.core.hear(who, said[0])
    told = rig.tick(body(), REST, operator=False)
    assert (told.state, told.command.damp, rig.core.why) == (FAULT, True, Reason.ASKED)


@pytest.mark.parametrize(("source", "ages"), [("robot", 0.1), ("operator", 0.2)])
def test_who_falls_silent_is_missed_in_time(source: str, ages: float) -> None:
    rig = Rig(Limits(plan_age=90.0), ticks=FAST).armed()
    for t in range(200):  # noqa: B007
        told = None if source == "robot" else body()
        state = rig.tick(told, REST, operator=source != "operator").state
        if state != ARMED:
            break
    assert state == HOLD
    assert ages - 1e-9 < (t + 1) * rig.core.dt <= ages + 2 * rig.core.dt
    assert rig.core.why == {"robot": Reason.STATE, "operator": Reason.OPERATOR}[source]


def test_a_robot_that_is_gone_is_let_go() -> None:
    rig = Rig().armed()
    for _ in range(60):
        told = rig.tick()
    assert told.state == FAULT
    assert told.command.damp
    assert rig.tick(event=states.CLEAR).state == FAULT  # of which the cause is still there
    assert rig.tick(body(), event=states.CLEAR).state == PASSIVE
    for _ in range(60):
        told = rig.tick()
    assert (told.state, told.datagram) == (DISCONNECTED, b"")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("source", ["policy", "robot"])
def test_numbers_that_are_none_are_dropped_then_held_then_damped(source: str, bad: float) -> None:
    rig = Rig(Limits(plan_age=90.0, state_age=9.0)).armed()
    before = targets(rig.tick(body(), REST + 0.05))
    seen = []
    for _ in range(8):
        if source == "policy":
            told = rig.tick(body(), np.where(np.arange(12) == 3, bad, REST))
        else:
            told = rig.tick(body(np.where(np.arange(12) == 3, bad, REST)))
        seen.append(told.state)
        if not told.command.damp:
            np.testing.assert_array_equal(targets(told), before)
    assert seen[0] == ARMED
    assert seen[2] == HOLD  # after two in a row
    if source == "robot":
        assert seen[5] == FAULT  # after five
    assert rig.core.why & Reason.NUMBERS


def test_a_policy_that_was_wrong_may_be_armed_again() -> None:
    """Of its own it cannot do better, as it is not asked."""
    rig = Rig().armed()
    for _ in range(3):
        told = rig.tick(body(), np.full(12, np.nan))
    assert told.state == HOLD
    assert rig.tick(body(), REST, event=states.ARM).state == ARMED
    for _ in range(20):
        assert rig.tick(body(), REST).state == ARMED


def test_another_operators_words_are_heard_though_it_counts_anew() -> None:
    rig = Rig().armed()
    said, last = rig.word, rig.asks
    rig.core.hear("operator", wire.encode(wire.hello(rig.spec)))
    rig.asks, rig.word = 0, said - 1  # so that its first event has the number of the last
    assert rig.asks < last
    assert rig.tick(body(), REST, event=states.STOP).state == FAULT


def test_one_bad_number_now_and_then_is_borne() -> None:
    rig = Rig().armed()
    for t in range(100):
        wish = np.full(12, np.nan) if t % 2 else REST
        assert rig.tick(body(), wish).state == ARMED


def test_a_plan_of_another_shape_is_no_plan() -> None:
    rig = Rig().armed()
    for _ in range(3):
        told = rig.tick(body(), np.zeros(11))
    assert told.state == HOLD
    assert rig.core.why & Reason.NUMBERS


@pytest.mark.parametrize("source", ["robot", "policy", "operator", "watcher"])
def test_noise_is_counted_and_harms_nothing(source: str) -> None:
    rng = np.random.default_rng(0)
    rig = Rig().armed()
    for t in range(500):
        for _ in range(3):
            rig.core.hear(source, rng.bytes(int(rng.integers(0, 300))))
        told = rig.tick(body(), REST + 0.1 * np.sin(t / 9))
        assert told.state == ARMED
        np.testing.assert_allclose(targets(told), REST + 0.1 * np.sin(t / 9), atol=1e-6)
    assert rig.core.ears.counts[f"{source}: unknown"] == 1500


def test_old_states_and_words_are_not_heard() -> None:
    rig = Rig().armed()
    for _ in range(20):
        rig.robot(body(of("high")), seq=rig.seq - 1)  # came late, by another way
        rig.seq -= 1
        assert rig.tick(body(), REST).state == ARMED
    assert rig.core.ears.counts["robot: old"] == 20


def test_an_old_word_is_not_heard_however_long_nothing_was_said() -> None:
    """Nobody's duplicate leads from a hold back to moving."""
    rig, said = Rig().armed(), list[bytes]()
    hear = rig.core.hear
    rig.core.hear = lambda _, datagram: said.append(datagram)
    rig.operator(states.ARM)
    rig.core.hear = hear
    hear("operator", said[0])
    for _ in range(100):
        rig.tick(body(), REST, operator=False)
    assert rig.core.state == HOLD
    hear("operator", said[0])
    assert rig.tick(body(), REST, operator=False).state == HOLD
    assert rig.core.ears.counts["operator: old"] == 1


def test_an_old_beginning_of_an_episode_is_none() -> None:
    rig = Rig(episodes=True)
    rig.tick(body(), REST, reset=True)
    for _ in range(3):
        rig.tick(body(), REST)
    assert rig.tick(body(), REST, event=states.STOP).state == FAULT
    rig.robot(body(), seq=1, reset=True)
    assert rig.tick(body(), REST).state == FAULT
    assert rig.tick(body(), REST, reset=True).state == ARMED


def test_a_joint_that_does_not_follow_is_seen() -> None:
    rig = Rig(Limits(tracking=0.3, tracking_s=0.2)).armed()
    stuck, wish, seen = REST.copy(), REST.copy(), []
    wish[4] += 0.4
    for _ in range(40):
        seen.append(rig.tick(body(stuck), wish).state)
    assert 0.2 < seen.index(HOLD) * DT < 0.3
    assert rig.core.why == Reason.TRACKING


def test_a_link_that_loses_much_is_not_driven_over() -> None:
    rig = Rig(ticks=FAST).armed()
    for t in range(300):
        rig.seq += t % 2  # every third state never came
        state = rig.tick(body(), REST).state
        if state != ARMED:
            break
    assert state == HOLD
    assert rig.core.why == Reason.LINK


def test_a_machine_that_is_late_again_and_again_does_not_drive() -> None:
    rig = Rig(ticks=FAST).armed()
    for _ in range(2):
        assert rig.tick(body(), REST, late=0.02).state == ARMED
    for _ in range(300):
        assert rig.tick(body(), REST, late=0.001).state == ARMED
    for _ in range(3):
        state = rig.tick(body(), REST, late=0.02).state
    assert state == HOLD
    assert rig.core.why == Reason.LATE
