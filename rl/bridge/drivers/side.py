"""What a robot does not measure of itself, and a program of yours says: where things are.

Datagrams of JSON by the sensors' names, {"cube_pos": [0.5, 0.1, 0.02]}: of one or more of them,
whenever there is something new.
"""

import json
import math
from collections.abc import Sequence

import numpy as np

from rl.bridge.wire import DRAINED, Link
from rl.spec import Sensor

MOST_AGE = 0.2  # s of what was said, beyond which nobody acts upon it


class Side:
    """Where it is heard."""

    def __init__(self, sensors: Sequence[Sensor], bind: tuple[str, int]) -> None:
        self.sensors, self.link = sensors, Link(bind)
        self.said: dict[str, list[float]] = {}
        self.when = dict.fromkeys((sensor.name for sensor in sensors), -math.inf)  # s

    def numbers(self, now: float) -> np.ndarray | None:
        """[n] float32 of all its sensors in their order; None while one of them is too old."""
        for _ in range(DRAINED):
            if (got := self.link.receive_raw(0.0)) is None:
                break
            self._take(got[0], now)
        if any(now - when > MOST_AGE for when in self.when.values()):
            return None
        return np.array([x for sensor in self.sensors for x in self.said[sensor.name]], "<f4")

    def close(self) -> None:
        self.link.close()

    def _take(self, datagram: bytes, now: float) -> None:
        """Of what is said that which is as many finite numbers as the sensor has."""
        try:
            facts = json.loads(datagram)
        except (ValueError, RecursionError):
            return
        for sensor in self.sensors if isinstance(facts, dict) else ():
            numbers = facts.get(sensor.name)
            if isinstance(numbers, list) and len(numbers) == sensor.size and all(map(_is, numbers)):
                self.said[sensor.name], self.when[sensor.name] = numbers, now


def _is(number: object) -> bool:
    return isinstance(number, int | float) and abs(number) < 1e6  # not so of NaN
