"""What a page shows of a robot: pure functions of what its bridge says, and a memory of changes."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rl.bridge.checks import said
from rl.bridge.messages import Loop, Status
from rl.spec import Spec

PORT = 9880  # of a page, where nobody says another
SILENT_S = 1.0  # s without a word, after which what is shown is old
RATE_S = 2.0  # s over which the wire's rate is counted
MOST_CHANGES = 100
WAITING, LIVE, SILENT, GONE = "waiting", "live", "silent", "gone"  # what is heard of a bridge


class Change(NamedTuple):
    number: int
    at: float  # s since 1970
    state: str
    why: str


def facts(spec: Spec) -> dict[str, Any]:
    """What does not change: names, units and limits of joints and of the command."""
    joints = [{"name": a.name, "unit": a.unit, "low": a.low, "high": a.high}
              for a in spec.actuators]  # fmt: skip
    command = [{"name": c.name, "unit": c.unit, "low": c.low, "high": c.high}
               for c in spec.command]  # fmt: skip
    return {"name": spec.name, "period": spec.control_dt, "joints": joints, "command": command}


def told(spec: Spec, status: Status) -> dict[str, Any]:
    """A status as JSON has it: what is not measured, or no number, is null."""
    joints = [status.readings[a.position][0] if a.position else math.nan for a in spec.actuators]
    asked = np.zeros(len(spec.command)) if status.asked is None else status.asked
    return {
        "state": status.state, "why": said(status.why) if status.why else "",
        "now": said(status.mask) if status.mask else "", "time": _number(status.time),
        "joints": [*map(_number, joints)], "targets": [*map(_number, status.targets)],
        "asked": [*map(_number, asked)],
        "loop": {name: _number(x) for name, x in status.loop._asdict().items()},
    }  # fmt: skip


def _number(x: float) -> float | None:
    return round(float(x), 6) if math.isfinite(x) else None


@dataclass
class Board:
    """What is known of one bridge.  Times of words and of looks are s since 1970."""

    spec: Spec
    status: Status | None = None  # the newest
    heard: float = -math.inf  # when
    since: float | None = None  # when it came to the state it is in
    gone: float | None = None  # when it said goodbye
    changes: deque[Change] = field(default_factory=lambda: deque(maxlen=MOST_CHANGES))
    ticks: deque[tuple[float, float]] = field(default_factory=deque)  # when, and how many
    worst: Loop = Loop()  # since the last look

    def hear(self, status: Status, now: float) -> None:
        before, loop = self.status, status.loop
        if before is None or (before.state, before.why) != (status.state, status.why):
            self.since = now
            self.change(status.state, said(status.why) if status.why else "", now)
        self.status, self.heard, self.gone = status, now, None
        self.worst = loop._replace(
            late=max(self.worst.late, loop.late), took=_later(self.worst.took, loop.took)
        )

    def change(self, state: str, why: str, now: float) -> None:
        number = self.changes[-1].number + 1 if self.changes else 1
        self.changes.append(Change(number, now, state, why))

    def bye(self, now: float) -> None:
        if self.gone is None:
            self.gone = now
            self.change(GONE, "the bridge said goodbye", now)

    def stop(self, now: float) -> None:
        """Somebody pressed it."""
        self.change("stop", "pressed on this page", now)

    @property
    def rate(self) -> float:
        """Ticks of the wire a second, as they came."""
        if len(self.ticks) < 2 or self.ticks[0][0] == self.ticks[-1][0]:
            return 0.0
        (first, before), (last, after) = self.ticks[0], self.ticks[-1]
        return (after - before) / (last - first)

    def bridge(self, now: float) -> str:
        if self.gone is not None:
            return GONE
        if self.status is None:
            return WAITING
        return SILENT if now - self.heard > SILENT_S else LIVE

    def look(self, now: float) -> dict[str, Any]:
        """All that changes, but `changes`, as JSON has it."""
        shown = {"at": now, "bridge": self.bridge(now), "since": self.since, "gone": self.gone}
        if self.status is not None:
            if not self.ticks or self.ticks[-1][0] < self.heard:
                self.ticks.append((self.heard, self.status.tick - self.status.loop.missed))
            while self.ticks[0][0] < self.heard - RATE_S:
                self.ticks.popleft()
            status = self.status._replace(loop=self.worst)
            self.worst = self.worst._replace(late=0.0, took=math.nan)
            shown |= {"heard": self.heard, "rate": round(self.rate, 1), **told(self.spec, status)}
        return shown


def _later(before: float, now: float) -> float:
    """The longer of two times, each of which may be NaN."""
    return now if math.isnan(before) or now > before else before
