"""What may go wrong with a robot and with what is said to it and by it, at times of a plan.

A fault of the body breaks it, a lie changes what it says of itself, and a fault of frames is done
to datagrams on their way, whoever sent them.
"""

import heapq
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import wire
from rl.bridge.sim.body import Body
from rl.bridge.sim.entries import entries
from rl.bridge.wire import State

MOST = 1e6  # of a size, whatever it is of


@dataclass(frozen=True)
class Fault:
    kind: str  # of BODY, LIES or FRAMES
    since: float  # s, by the clock of whom it befalls
    until: float  # s
    size: float = 1.0  # how much of it: each kind says of what
    motor: int = 0

    def on(self, now: float) -> bool:
        return self.since <= now < self.until


def write(path: Path, faults: Sequence[Fault]) -> None:
    path.write_text(json.dumps([asdict(fault) for fault in faults]))


def read(path: Path) -> list[Fault]:
    """The plan at `path`; ValueError if it is none."""
    return entries(path, "plan of faults", Fault, _wrong)


def _wrong(fault: Fault) -> str:
    """Why it is none; "" if it is one."""
    if fault.kind not in (kinds := (*BODY, *LIES, *FRAMES)):
        return f"{fault.kind!r} is no fault; these are: {', '.join(kinds)}"
    if not 0 <= fault.since < fault.until:
        return f"it is from {fault.since:g} to {fault.until:g} s; it takes 0 <= since < until"
    least = -MOST if fault.kind in LIES else 0.0
    if not least <= fault.size <= MOST:
        return f"its size is {fault.size:g}; it takes {least:g} to {MOST:g}"
    return "" if fault.motor >= 0 else f"its motor is {fault.motor}; it takes a number from 0 on"


# Of a body: what is done to it while the fault is on.
def _stuck(body: Body, fault: Fault) -> None:
    body.stuck[fault.motor] = True


def _limp(body: Body, fault: Fault) -> None:
    body.strength[fault.motor] = 0.0


def _sags(body: Body, fault: Fault) -> None:
    body.strength *= 1 - fault.size


BODY: dict[str, Callable[[Body, Fault], None]] = {
    "joint stuck": _stuck, "motor limp": _limp, "battery sags": _sags,
}  # fmt: skip


class Told(NamedTuple):
    """What a lie knows."""

    state: State
    first: dict[str, np.ndarray]  # readings when it began
    size: float
    since: float  # s, that it has lasted
    position: str  # sensor of the joint that it is about


def _reads(told: Told, **readings: Any) -> State:
    sensed = {k: np.asarray(x, np.float32) for k, x in readings.items() if k in told.state.readings}
    return told.state._replace(readings=told.state.readings | sensed)


def _joint(told: Told, change: Callable[[np.ndarray], Any]) -> State:
    return _reads(told, **{told.position: change(told.state.readings[told.position])})


LIES: dict[str, Callable[[Told], State]] = {
    "encoder frozen": lambda told: _joint(told, lambda x: told.first[told.position]),
    "encoder jumps": lambda told: _joint(told, lambda x: x + told.size),  # rad or m
    "encoder flipped": lambda told: _joint(told, lambda x: -x),
    "encoder creeps": lambda told: _joint(
        told, lambda x: x + told.size * told.since  # rad/s or m/s
    ),
    "encoder says nan": lambda told: _joint(told, lambda x: x * np.nan),
    "imu dead": lambda told: _reads(told, gyro=np.zeros(3), orientation=np.zeros(4)),
    "imu frozen": lambda told: _reads(
        told, **{k: told.first[k] for k in ("gyro", "orientation") if k in told.first}
    ),
    "imu sign flips": lambda told: _reads(
        told, orientation=-told.state.readings.get("orientation", np.zeros(4))
    ),
    "motor hot": lambda told: told.state._replace(heat=told.size),  # degrees C
    "motor failed": lambda told: told.state._replace(failed=True),
    "clock jumps": lambda told: told.state._replace(time=told.state.time + told.size),  # s
    "counts anew": lambda told: told.state._replace(seq=told.state.seq % 7),
}  # fmt: skip


class Sent(NamedTuple):
    """What a fault of frames knows."""

    datagram: bytes
    before: list[bytes]  # that were sent, the newest last
    count: int  # of those since it began
    size: float
    rng: np.random.Generator

    def numbers(self, change: Callable[[np.ndarray], Any]) -> list[tuple[float, bytes]]:
        """The same, with other numbers; of an operator's, none but those it asks for."""
        message = wire.decode(self.datagram)
        assert message is not None
        keep = 2 if message.kind == wire.OPERATOR else 0
        changed = np.asarray(change(message.numbers[keep:].copy()), "<f4")
        numbers = np.concatenate([message.numbers[:keep], changed])
        return [(0.0, wire.encode(message._replace(numbers=numbers)))]

    def head(self, **change: Any) -> list[tuple[float, bytes]]:
        message = wire.decode(self.datagram)
        assert message is not None
        return [(0.0, wire.encode(message._replace(**change)))]

    @property
    def seq(self) -> int:
        message = wire.decode(self.datagram)
        return message.seq if message else 0


Late = list[tuple[float, bytes]]  # s until it is sent, and what


def _flipped(sent: Sent) -> Late:
    """A bit of it, of a share of them."""
    if sent.rng.random() >= sent.size:
        return [(0.0, sent.datagram)]
    at, bit = int(sent.rng.integers(len(sent.datagram))), 1 << int(sent.rng.integers(8))
    bad = sent.datagram[:at] + bytes([sent.datagram[at] ^ bit]) + sent.datagram[at + 1 :]
    return [(0.0, bad)]


def _again(sent: Sent) -> Late:
    """Old ones besides it."""
    old = sent.rng.choice(len(sent.before), 3) if sent.before else []
    return [(0.0, sent.datagram), *((0.0, sent.before[i]) for i in old)]


def _version(sent: Sent) -> Late:
    other = sent.datagram[:4] + bytes([sent.datagram[4] + 1]) + sent.datagram[5:-4]
    return [(0.0, other + wire.checksum(other))]


FRAMES: dict[str, Callable[[Sent], Late]] = {
    "lost": lambda s: [] if s.rng.random() < s.size else [(0.0, s.datagram)],  # a share
    "late": lambda s: [(s.size, s.datagram)],  # s
    "jitters": lambda s: [(float(s.rng.gamma(2, s.size / 2)), s.datagram)],  # s, on average
    "out of order": lambda s: [(s.size * (s.count % 2 == 0), s.datagram)],  # s
    "twice": lambda s: [(0.0, s.datagram)] * 2,
    "flood": lambda s: [(0.0, s.datagram)] * int(s.size),  # times
    "flipped": _flipped,  # a share
    "short": lambda s: [(0.0, s.datagram[: len(s.datagram) // 2])],
    "long": lambda s: [(0.0, s.datagram + bytes(60_000))],
    "old besides": _again,
    "old alone": lambda s: [(0.0, s.before[s.count % len(s.before)])] if s.before else [],
    "another robot's": lambda s: s.head(hash=bytes(8)),
    "another version's": _version,
    "says nan": lambda s: s.numbers(lambda x: x * np.nan),
    "says inf": lambda s: s.numbers(lambda x: np.where(np.arange(x.size) % 2, np.inf, -np.inf)),
    "huge": lambda s: s.numbers(lambda x: np.where(x < 0, -1e30, 1e30)),
    "in another order": lambda s: s.numbers(lambda x: x[::-1]),
    "one too few": lambda s: s.numbers(lambda x: x[:-1]),
    "thrown": lambda s: s.numbers(lambda x: x + s.rng.normal(0, s.size, x.size)),  # rad or m
    "of another question": lambda s: s.head(seq=max(s.seq - int(s.size), 0)),  # periods ago
    "of the future": lambda s: s.head(seq=s.seq + int(s.size)),  # periods
}


class Spoiler:
    """Does to datagrams what a plan says."""

    def __init__(self, faults: Sequence[Fault], rng: np.random.Generator) -> None:
        self.faults = [fault for fault in faults if fault.kind in FRAMES]
        self.rng, self.before, self.count, self.sent = rng, [], 0, 0
        self.under_way: list[tuple[float, int, bytes]] = []

    def through(self, now: float, datagram: bytes) -> list[bytes]:
        """What is sent at a time in s, where this was to be."""
        spoilt: Late = [(0.0, datagram)]
        for fault in self.faults:
            if fault.on(now):
                known = self.before, self.count, fault.size, self.rng
                spoilt = [y for late, x in spoilt for y in _later(late, fault, Sent(x, *known))]
                self.count += 1
        if not any(fault.on(now) for fault in self.faults):  # old ones are from before it began
            self.before = [*self.before[-50:], datagram]
        for late, one in spoilt:
            self.sent += 1
            heapq.heappush(self.under_way, (now + late, self.sent, one))
        return self.due(now)

    def due(self, now: float) -> list[bytes]:
        found = []
        while self.under_way and self.under_way[0][0] <= now + 1e-9:
            found.append(heapq.heappop(self.under_way)[2])
        return found


def _later(late: float, fault: Fault, sent: Sent) -> Late:
    return [(late + more, x) for more, x in FRAMES[fault.kind](sent)]


class Ills:
    """What a robot's body has, and what it says that is not so."""

    def __init__(self, faults: Sequence[Fault], body: Body) -> None:
        self.faults, self.body = faults, body
        self.first: dict[Fault, dict[str, np.ndarray]] = {}

    def befall(self, now: float) -> None:
        """The body, until the next tick."""
        self.body.strength[:], self.body.stuck[:] = 1.0, False
        for fault in self.faults:
            if fault.kind in BODY and fault.on(now):
                BODY[fault.kind](self.body, fault)

    def said(self, now: float, state: State) -> State:
        """The state as it is told."""
        for fault in self.faults:
            if fault.kind in LIES and fault.on(now):
                first = self.first.setdefault(fault, state.readings)
                position = self.body.spec.actuators[fault.motor].position
                since = now - fault.since
                state = LIES[fault.kind](Told(state, first, fault.size, since, position))
        return state
