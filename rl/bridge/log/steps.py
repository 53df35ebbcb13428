"""A flight as steps of its policy: what was seen, what was told, who drove, and how it ended."""

from typing import NamedTuple

import numpy as np

from rl.bridge import robots, states
from rl.bridge.checks import Reason
from rl.bridge.log import moments
from rl.bridge.log.flight import Flight
from rl.bridge.log.moments import Moment
from rl.bridge.tally import CUT
from rl.spec import Spec


class Episode(NamedTuple):
    """T whole periods of the policy, from where it was armed to where it no longer was, and what
    was seen after the last.

    A period that the end cut short is no step; what was seen as it began is what was seen last.
    """

    readings: np.ndarray  # [T+1, n] of all sensors, in the spec's order
    command: np.ndarray  # [T+1, C]
    targets: np.ndarray  # [T, A] that were told in the last tick of a period
    wish: np.ndarray  # [T, A] of the policy, which may lie anywhere; before its first, the targets
    planned: np.ndarray  # [T] bool, its plan reached this period; else its last target was held
    human: np.ndarray  # [T] bool, who drove
    limited: np.ndarray  # [T] Reason, what cut the targets in any of its ticks
    time: np.ndarray  # [T] s since the log began
    why: Reason  # it ended; 0: the log did, or a simulated robot began anew
    fell: bool  # it leaned too far, and was damped


def episodes(flight: Flight) -> list[Episode]:
    """Of a log that is damaged in its midst an episode ends there, and another begins with the
    next period, if it was moving before, or with the next `arm`."""
    setup, found, run, goes = flight.about.setup, list[Episode](), list[Moment](), False
    codec = robots.codec(flight.about)
    for moment in moments.moments(setup, codec, flight.rows):
        lost, begins = bool(moment.row.lost), moment.begins
        if run and (lost or begins or not moment.moving):
            after = None if lost or begins else moment
            found += _episode(setup.spec, run, setup.ticks, after)
            run = []
        # Where it was armed in what is lost, nobody knows when its periods begin.
        goes = moment.moving and (not lost if begins else goes)
        if goes and (run or moment.starts):
            run.append(moment)
    return found + _episode(setup.spec, run, setup.ticks, None)


def _episode(spec: Spec, run: list[Moment], ticks: int, after: Moment | None) -> list[Episode]:
    """That of a run of ticks, `after` which it moved no longer; none if it has no whole period."""
    starts, ends = run[::ticks], run[ticks - 1 :: ticks]
    if after and len(run) % ticks == 0:
        starts.append(after)
    if (count := len(starts) - 1) < 1:
        return []
    ends = ends[:count]
    targets = np.stack([x.targets for x in ends])
    wishes = [x.targets if x.wish is None else x.wish for x in ends]
    masks = np.array([x.row.mask & CUT for x in run[: count * ticks]]).reshape(count, ticks)
    why = moments.why(after) if after else Reason(0)
    return [Episode(
        readings=np.stack([_readings(spec, x) for x in starts]),
        command=np.stack([x.command for x in starts]),
        targets=targets.astype(np.float32),
        wish=np.stack(wishes).astype(np.float32),
        planned=np.array([x.planned for x in ends]),
        human=np.array([x.row.state == states.INTERVENE for x in ends]),
        limited=np.bitwise_or.reduce(masks, axis=1),
        time=np.array([x.row.now for x in starts[:-1]]),
        why=why,
        fell=bool(after and after.row.state == states.FAULT and why & Reason.TILT),
    )]  # fmt: skip


def _readings(spec: Spec, moment: Moment) -> np.ndarray:
    assert moment.robot is not None  # it moves
    return np.concatenate([moment.robot.readings[s.name] for s in spec.sensors])


def names(spec: Spec) -> tuple[list[str], list[str]]:
    """Of all numbers of the readings, and of the command."""
    numbers = [
        x.name if x.size == 1 else f"{x.name}.{i}" for x in spec.sensors for i in range(x.size)
    ]
    return numbers, [channel.name for channel in spec.command]
