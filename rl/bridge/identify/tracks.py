"""What joints did and were told to do in a flight, in arrays, by the robot's own clock."""

from typing import NamedTuple

import numpy as np

from rl.bridge.core import Core
from rl.bridge.ears import Codec
from rl.bridge.log.flight import Flight, Row
from rl.spec import Spec

GAP_S = 0.1  # s without a state, after which nobody knows what was
SAME = 1e-4  # share by which gains may be off their full ones


class Track(NamedTuple):
    """A stretch in which motors had all of their gains; T ticks of the robot's, NaN where lost."""

    readings: dict[str, np.ndarray]  # by sensor, [T, size]
    targets: np.ndarray  # [T, A] told in answer to these


class _Tick(NamedTuple):
    time: float  # s, the robot's
    full: bool  # motors had all of their gains
    reset: bool
    readings: dict[str, np.ndarray]
    targets: np.ndarray


def tracks(flight: Flight, codec: Codec) -> list[Track]:
    """The stretches of a flight, which is lived through again for what was told in it.

    A tick is the robot's, not the bridge's: a command is told to the state that it answers, and a
    delay is counted from there.
    """
    setup = flight.about.setup
    core, ticks = Core(setup, codec), {}
    for row in flight.rows:
        if (tick := _lived(core, row)) is not None:
            ticks.setdefault(tick.time, tick)
    runs: list[list[_Tick]] = []
    last = None
    for tick in ticks.values():
        follows = last is not None and 0 < tick.time - last.time <= GAP_S and not tick.reset
        if tick.full:
            if follows and runs and runs[-1][-1] is last:
                runs[-1].append(tick)
            else:
                runs.append([tick])
        last = tick
    return [_track(run, core.dt, setup.spec) for run in runs if len(run) > 1]


def _lived(core: Core, row: Row) -> _Tick | None:
    """What the robot said in a tick of the bridge and was told; None if it said nothing new."""
    before = core.ears.robot
    core.begin(row.now, row.late)
    for heard in row.heard:
        if not heard.answer:
            core.hear(heard.source, heard.datagram)
    core.sense()
    for heard in row.heard:
        if heard.answer:
            core.hear(heard.source, heard.datagram)
    told, robot = core.act(), core.ears.robot
    if robot is None or robot is before or told.command is None:
        return None
    command, motors = told.command, core.setup.spec.actuators
    gains = [[getattr(motor, k) for motor in motors] for k in ("kp", "kd")]
    full = not command.damp and np.allclose([command.kp, command.kd], gains, rtol=SAME)
    return _Tick(robot.time, full, robot.reset, robot.readings, command.targets)


def _track(run: list[_Tick], dt: float, spec: Spec) -> Track:
    slots = np.round((np.array([tick.time for tick in run]) - run[0].time) / dt).astype(int)
    count = slots[-1] + 1
    readings = {sensor.name: np.full((count, sensor.size), np.nan) for sensor in spec.sensors}
    for name, values in readings.items():
        values[slots] = [tick.readings[name] for tick in run]
    held = np.searchsorted(slots, np.arange(count), side="right") - 1  # what motors go on with
    return Track(readings, np.array([tick.targets for tick in run])[held])
