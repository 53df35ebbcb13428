"""Jogs are within all limits, and a log of them becomes shots of what can be compared."""

import numpy as np
import pytest

from rl.bridge import messages, states, wire
from rl.bridge.identify import bench, shoot
from rl.bridge.identify.excite import Jogs
from rl.bridge.pilot import Word
from tests import planted
from tests.planted import GO2, PANDA, drawn, jogged, policy, stretches


class Still:
    """A pilot who has it stand, and no more."""

    def word(self, status: messages.Status) -> Word:
        return Word(states.STAND if status.state == states.PASSIVE else "")


def test_a_log_in_which_nothing_moves_is_refused() -> None:
    name = GO2
    log = planted.flight(name, drawn(name, 0), Still(), 4.0, rate=250)
    with pytest.raises(ValueError, match=r"No joint moves by more than .* jog the robot"):
        shoot.shots(bench.bench(policy(name)), stretches(log), 1 / 250)


def test_a_base_that_moves_is_left_out() -> None:
    found = stretches(jogged(GO2, 0, 2.0))
    on = bench.bench(policy(GO2))
    kept = shoot.shots(on, found, 1 / 250)
    swings = [x._replace(readings=x.readings | {"gyro": x.readings["gyro"] + 0.5}) for x in found]
    assert kept.unsteady == 0
    with pytest.raises(ValueError, match="the base moves: put the robot on a stand"):
        shoot.shots(on, swings, 1 / 250)


def test_what_is_lost_of_a_log_is_not_scored() -> None:
    """States that never came, a gap, and gains that were not full."""
    whole = jogged(GO2, 0, 2.0)
    (one,) = stretches(whole)
    lost = [row if i % 7 else row._replace(heard=row.heard[1:])
            for i, row in enumerate(whole.rows)]  # fmt: skip
    (some,) = stretches(whole._replace(rows=lost))
    first = one.readings["FR_calf_pos"], some.readings["FR_calf_pos"]
    assert np.isfinite(first[0]).all()
    assert 0.8 < np.isfinite(first[1]).mean() < 0.9
    cut = [row for i, row in enumerate(whole.rows) if not 400 <= i < 450]
    assert len(stretches(whole._replace(rows=cut))) == 2
    soft = whole.rows[: 250 // 2]  # it has stood up for less than its gains take to grow
    assert not stretches(whole._replace(rows=soft))


def test_a_command_stands_at_the_state_that_it_answers() -> None:
    whole = jogged(GO2, 0, 2.0)
    (one,) = stretches(whole)
    commands = [wire.command_of(whole.about.setup.spec, wire.decode(row.told))
                for row in whole.rows if row.told]  # fmt: skip
    told = np.array([x.targets for x in commands if x])[-len(one.targets) :]
    np.testing.assert_allclose(one.targets, told, atol=1e-6)


def test_jogs_stay_within_range_and_pace() -> None:
    for name in (GO2, PANDA):
        spec = policy(name).spec
        jogs = Jogs(spec, 20.0, 0.5, 3)
        path = np.array([jogs.wished(t) for t in np.arange(0, 20, 0.005)])
        low, high, speed = (np.array([getattr(a, k) for a in spec.actuators])
                            for k in ("low", "high", "speed"))  # fmt: skip
        after = path[200:]
        assert (after >= low).all()
        assert (after <= high).all()
        assert (np.abs(np.diff(path, axis=0)) / 0.005 <= speed).all()
        assert (np.ptp(after, axis=0) > 0.01).all()


def test_jogs_end_where_they_were_stopped() -> None:
    jogs = Jogs(policy(GO2).spec, 5.0, 0.3)
    blank = messages.Status(0, 0.0, states.PASSIVE, 0, 0, 0, {}, jogs.rest)
    assert jogs.word(blank).event == states.STAND
    assert jogs.word(blank._replace(time=0.1)).event == ""
    assert jogs.word(blank._replace(time=0.3)).event == states.STAND
    assert jogs.word(blank._replace(state=states.READY)).event == states.ARM
    assert jogs.word(blank._replace(state=states.ARMED)).event == states.TAKE
    assert jogs.word(blank._replace(state=states.INTERVENE, time=1.0)).deadman
    held = jogs.word(blank._replace(state=states.HOLD, why=8, time=2.0))
    assert held.leaves
    assert "operator" in held.why
