"""Every state against every event; and what holds of the table as a whole, whatever it says."""

import pytest

from rl.bridge import states
from rl.bridge.states import (
    ARM,
    ARMED,
    ASKED,
    CLEAR,
    CONNECT,
    DISCONNECT,
    DISCONNECTED,
    EVENTS,
    FAIL,
    FAULT,
    GIVE,
    HOLD,
    INTERVENE,
    MOVING,
    PASSIVE,
    PAUSE,
    READY,
    RELAX,
    STAND,
    STATES,
    STOP,
    TAKE,
    WAIT,
    Illegal,
    after,
)  # fmt: skip

# What the robot's safety asks for, written out: where each state may go, by what, and nowhere else.
LEGAL = {
    (DISCONNECTED, CONNECT): PASSIVE,
    (DISCONNECTED, DISCONNECT): DISCONNECTED,
    (DISCONNECTED, PAUSE): DISCONNECTED,
    (PASSIVE, DISCONNECT): DISCONNECTED,
    (PASSIVE, PAUSE): PASSIVE,
    (PASSIVE, STAND): READY,
    (PASSIVE, RELAX): PASSIVE,
    (READY, ARM): ARMED,
    (READY, PAUSE): HOLD,
    (READY, WAIT): HOLD,
    (READY, RELAX): PASSIVE,
    (ARMED, TAKE): INTERVENE,
    (ARMED, PAUSE): HOLD,
    (ARMED, WAIT): HOLD,
    (ARMED, RELAX): PASSIVE,
    (INTERVENE, GIVE): ARMED,
    (INTERVENE, PAUSE): HOLD,
    (INTERVENE, WAIT): HOLD,
    (INTERVENE, RELAX): PASSIVE,
    (HOLD, STAND): READY,
    (HOLD, ARM): ARMED,
    (HOLD, PAUSE): HOLD,
    (HOLD, WAIT): HOLD,
    (HOLD, RELAX): PASSIVE,
    (FAULT, PAUSE): FAULT,
    (FAULT, CLEAR): PASSIVE,
} | {(state, event): FAULT for state in STATES for event in (FAIL, STOP)}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES)
def test_every_event_leads_where_it_should_or_nowhere(state: str, event: str) -> None:
    if (state, event) in LEGAL:
        assert after(state, event) == LEGAL[state, event]
    else:
        with pytest.raises(Illegal, match=f"'{event}' leads nowhere from {state}; an operator may"):
            after(state, event)


def reached(start: str, events: tuple[str, ...]) -> set[str]:
    """All states that these events alone lead to."""
    found, open_ = {start}, [start]
    while open_:
        here = open_.pop()
        for event in events:
            if event in states.TABLE[here] and (there := after(here, event)) not in found:
                found.add(there)
                open_.append(there)
    return found


def test_nothing_moves_again_unless_an_operator_says_so() -> None:
    own = tuple(event for event in EVENTS if event not in ASKED)
    for state in (DISCONNECTED, PASSIVE, HOLD, FAULT):
        assert not reached(state, own) & {READY, *MOVING}


def test_a_fault_is_left_by_clearing_it_alone() -> None:
    others = tuple(event for event in EVENTS if event != CLEAR)
    assert reached(FAULT, others) == {FAULT}
    assert after(FAULT, CLEAR) == PASSIVE


def test_a_stop_and_a_failure_are_heard_in_every_state() -> None:
    for state in STATES:
        assert after(state, STOP) == after(state, FAIL) == FAULT


def test_every_state_can_be_reached_and_left() -> None:
    for state in STATES:
        assert reached(state, EVENTS) == set(STATES)
