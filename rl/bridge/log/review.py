"""What a flight was: how punctual all were, in which states it was and why, what was limited."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import robots, states
from rl.bridge.checks import Reason, said
from rl.bridge.limiter import STAGES
from rl.bridge.log import steps
from rl.bridge.log.flight import Flight
from rl.bridge.log.moments import Listener, Moment
from rl.bridge.log.steps import Episode
from rl.bridge.tally import CUT

JOINTS = 3  # of those that a limit cut most


class Span(NamedTuple):
    """A state, from when to when, in s, and why it was entered."""

    state: str
    begin: float
    end: float
    why: str


class Lateness(NamedTuple):
    """Seconds, of many of which this is the middle, what 99% are below, and the most."""

    p50: float
    p99: float
    most: float


class Cut(NamedTuple):
    share: float  # of the policy's periods
    joints: list[tuple[str, float]]  # that it cut most, with the share of each


class Answers(NamedTuple):
    asked: int
    took: list[float]  # s, of those that came at once
    late: list[float]  # s after which the others came, to a tick
    never: int


class Told(NamedTuple):
    """What there is to tell of a flight."""

    flight: Flight
    lived: list[Moment]
    spans: list[Span]
    episodes: list[Episode]
    late: Lateness  # of ticks
    missed: int
    answers: Answers
    cuts: dict[Reason, Cut]
    counts: Counter[str]  # messages not taken
    refused: Counter[str]  # words of the pilot that led nowhere
    heat: float  # degrees C, 0 where nobody measures it
    loss: float  # share of the robot's states

    @property
    def seconds(self) -> float:
        """From the first tick to the last, and its own."""
        about = self.flight.about
        dt = about.setup.spec.control_dt / about.setup.ticks
        return self.lived[-1].row.now - self.lived[0].row.now + dt


def of(found: Flight, path: Path) -> Told:
    """What there is to tell of a flight; ValueError if it has no tick."""
    if not found.rows:
        raise ValueError(f"{path} has no tick that is whole.")
    setup = found.about.setup
    listener, lived, lost, came = Listener(setup, robots.codec(found.about)), [], 0, 0
    for row in found.rows:
        lived.append(listener.hear(row))
        lost, came = lost + listener.ears.lost, came + listener.ears.came
    late = [x.row.late for x in lived]
    numbers = [x.row.number for x in lived]
    there = len(lived) + sum(row.lost for row in found.rows[1:])  # in the log, if damaged
    refused: Counter[str] = Counter()
    return Told(
        found, lived, list(_spans(lived, refused)), steps.episodes(found), lateness(late),
        numbers[-1] - numbers[0] + 1 - there, _answers(lived), _cuts(found, lived),
        +listener.counts, refused, max((x.robot.heat for x in lived if x.robot), default=0.0),
        lost / max(lost + came, 1),
    )  # fmt: skip


def lateness(seconds: Any) -> Lateness:
    return Lateness(*np.quantile(seconds, [0.5, 0.99, 1.0]).tolist())


def _spans(lived: list[Moment], refused: Counter[str]) -> Iterator[Span]:
    """Its states one after another; counts what was asked for and did not lead there, in that
    state at all: a pilot may ask until its robot stands."""
    begin, before, why = lived[0].row.now, lived[0].row.state, "the log begins"
    vain, last = Counter[str](), list[str]()
    for x in lived[1:]:
        after = x.row.state
        leads = [e for e in x.events if states.TABLE[before].get(e) == after]
        if _leaves(x):  # its pilot did, and was not refused its last word
            vain.subtract(last)
            last = []
        else:
            last = [e for e in x.events if e not in leads]
            vain.update(last)
        if after != before or x.begins:
            refused.update({e: n for e, n in (+vain).items() if e not in leads})
            vain = Counter()
            yield Span(before, begin, x.row.now, why)
            begin, before, why = x.row.now, after, _why(x, leads)
    refused.update(+vain)
    yield Span(before, begin, lived[-1].row.now, why)


def _leaves(x: Moment) -> bool:
    return any(heard.source == "bridge" for heard in x.row.heard)


def _why(x: Moment, leads: list[str]) -> str:
    """In words, why it is in another state."""
    if leads:
        return f"told to {leads[-1]}"
    if x.row.lost:
        return "what led there is damaged"
    if x.row.mask & ~CUT and not x.moving:
        return said(x.row.mask & ~CUT)
    if _leaves(x):
        return "the bridge ends"
    if x.begins:
        return "an episode begins"
    return "the robot speaks" if x.row.state == states.PASSIVE else ""


def _answers(lived: list[Moment]) -> Answers:
    asked, late, never = 0, [], 0
    waiting: dict[int, float] = {}  # periods, and when the policy was asked
    for x in lived:
        if x.begins or x.row.lost:
            never, waiting = never + len(waiting) * (not x.row.lost), {}
        if x.asked:
            asked += 1
            if np.isnan(x.row.took):
                waiting[x.period] = x.row.now
        for first in x.answered:
            if first in waiting:
                late.append(x.row.now - waiting.pop(first))
    took = [x.row.took for x in lived if np.isfinite(x.row.took)]
    return Answers(asked, took, late, never + len(waiting))


def _cuts(found: Flight, lived: list[Moment]) -> dict[Reason, Cut]:
    """Of each limit: in how many of the policy's periods it cut something, and of which joint."""
    spec = found.about.setup.spec
    low, high = (np.array([getattr(a, k) for a in spec.actuators]) for k in ("low", "high"))
    moving = [x for x in lived if x.moving]
    period = np.cumsum([x.starts for x in moving])
    cuts = {}
    for stage, reason in enumerate(STAGES.values()):
        hit = np.array([bool(x.row.mask & reason) for x in moving], bool)
        if not hit.any():
            continue
        after = np.stack([x.row.stages[stage] for x in moving])
        if stage:
            cut = after != np.stack([x.row.stages[stage - 1] for x in moving])
        else:  # what was wished for is not in the log; cut to its range it is at an end of that
            cut = (after == low) | (after == high)
        share = lambda which: len(np.unique(period[which])) / period[-1]  # noqa: E731
        joints = [(a.name, share(hit & cut[:, i])) for i, a in enumerate(spec.actuators)]
        most = sorted(joints, key=lambda x: -x[1])[:JOINTS]
        cuts[reason] = Cut(share(hit), [x for x in most if x[1]])
    return cuts
