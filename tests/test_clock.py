"""When ticks begin that follow a robot's states: just behind them, wherever they began."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.bridge import clock
from rl.bridge.clock import BEHIND_S, Paced

DT = 0.05  # s
NEAR_S = 0.001


class World:
    """A time of its own, in which a robot's states come at `first`, and a period after each."""

    def __init__(self, first: float, period: float = DT) -> None:
        self.now, self.next, self.period = 100.0, 100.0 + first, period
        self.waits = False  # a state has come, and was not read

    def monotonic(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.0)

    def select(self, read: list[Any], write: list[Any], error: list[Any], left: float) -> Any:
        self._come()
        if not self.waits:
            self.now = min(self.now + left, max(self.next, self.now))
            self._come()
        return (read if self.waits else []), [], []

    def read(self) -> float:
        """s since the newest state; NaN where none has come."""
        self._come()
        behind = self.now - (self.next - self.period) if self.waits else float("nan")
        self.waits = False
        return behind

    def _come(self) -> None:
        while self.next <= self.now:
            self.next, self.waits = self.next + self.period, True


def behind(world: World, patch: pytest.MonkeyPatch, ticks: int) -> np.ndarray:
    """s by which each tick is behind the newest state [ticks]."""
    patch.setattr(clock, "time", world)
    patch.setattr(clock, "select", SimpleNamespace(select=world.select))
    paced, found = Paced(DT, SimpleNamespace(socket=None)), []  # type: ignore[arg-type]
    for _ in range(ticks):
        paced.wait()
        found.append(world.read())
    return np.array(found)


@settings(max_examples=50, deadline=None)
@given(st.floats(0, DT))
def test_ticks_come_to_be_just_behind_states(first: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = behind(World(first), patch, 200)
    np.testing.assert_allclose(found[-50:], BEHIND_S, atol=NEAR_S)


@pytest.mark.parametrize("drift", [-1e-3, 1e-3])
def test_they_follow_a_robot_whose_clock_is_another(drift: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        found = behind(World(0.02, DT * (1 + drift)), patch, 2_000)
    np.testing.assert_allclose(found[-50:], BEHIND_S, atol=NEAR_S)


def test_they_go_on_where_no_state_comes() -> None:
    world = World(1e9)
    with pytest.MonkeyPatch.context() as patch:
        behind(world, patch, 100)
    assert world.now - 100.0 == pytest.approx(100 * DT, rel=0.02)
