"""A robot of which nothing new is heard: it does not move, and old words of it are none."""

import pytest

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.states import ARMED, FAULT, HOLD, PASSIVE
from tests.rig import Rig, body
from tests.test_core_faults import FAST, REST, SIT


@pytest.mark.parametrize("ticks", [1, FAST])
def test_old_states_are_none_however_long_there_are_no_new_ones(ticks: int) -> None:
    """It is damped in the end, and only then may its robot count anew, as after a start."""
    rig, seen = Rig(ticks=ticks).armed(), set()
    for _ in range(round(1.5 / rig.core.dt)):
        told = rig.tick(body(SIT), REST, seq=5)
        seen.add(told.state)
        assert rig.core.ears.robot.seq > 5 or told.state == FAULT
    assert (told.state, seen) == (FAULT, {ARMED, HOLD, FAULT})
    assert rig.core.ears.robot.seq == 5
    rig.seq = 5
    rig.tick(body(), event=states.CLEAR)
    assert rig.tick(body()).state == PASSIVE


def test_a_robot_that_is_not_heard_does_not_stand_up() -> None:
    """Found by adversaries: damped, it need not be heard; to move, it must be."""
    rig = Rig(ticks=FAST)
    rig.tick(body())
    for _ in range(round(0.3 / rig.core.dt)):
        rig.tick()
    assert rig.tick(event=states.STAND).state == PASSIVE
    assert "no state for too long" in rig.core.refused
    rig.tick(body())
    assert rig.tick(body(), event=states.STAND).state == states.READY


def test_a_robot_that_falls_silent_is_held_for_that_and_not_for_a_policy_that_is_not_asked() -> (
    None
):
    rig = Rig(ticks=FAST).armed()
    while rig.core.state == ARMED:
        rig.tick()
    assert (rig.core.state, rig.core.why) == (HOLD, Reason.STATE)
