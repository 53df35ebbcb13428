"""Flights in this process: a rig whose ticks are recorded, as a bridge's are."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from rl.bridge import states, wire
from rl.bridge.core import Told
from rl.bridge.limits import Limits
from rl.bridge.log import flight
from rl.bridge.log.flight import About, Heard, Log, Row
from tests.rig import Rig, body, go2, of

QUICK = Limits(stand_s=0.5, blend_s=0.1)
TICKS = 5  # of the wire in a period


class Flown(Rig):
    """A rig that keeps what a log has of each tick, and a body that goes where it is told."""

    def __init__(self, limits: Limits = QUICK, ticks: int = TICKS, **more: Any) -> None:
        super().__init__(limits, ticks, **more)
        self.rows: list[Row] = []
        self.said = [Heard("policy", False, wire.encode(wire.hello(self.spec)))]
        self.took = np.nan
        self.at, self.answering = of("rest") + 0.1, False
        hear, sense = self.core.hear, self.core.sense

        def heard(source: str, datagram: bytes) -> None:
            self.said.append(Heard(source, self.answering, datagram))
            hear(source, datagram)

        def sensed() -> bytes:
            question = sense()
            self.answering = True
            return question

        self.core.hear, self.core.sense = heard, sensed  # type: ignore[method-assign]

    def tick(self, told: Any = None, wished: Any = None, event: str = "", late: float = 0.0,
             **more: Any) -> Told:  # fmt: skip
        self.answering = False
        found = super().tick(told, wished, event, late, **more)
        took = 0.001 if self.asked and wished is not None else np.nan
        stages = found.stages if found.stages.size else np.zeros((0, 0))
        self.rows.append(Row(
            self.number, self.core.now, late, took, tuple(self.said), found.datagram, found.state,
            int(found.mask), stages,
        ))  # fmt: skip
        self.said.clear()
        if found.command is not None and not found.command.damp:
            self.at = self.at + 0.2 * (found.command.targets - self.at)
        return found

    def live(self, count: int, event: str = "", wished: Any = None, **more: Any) -> "Flown":
        """So many ticks of a robot that follows; the event is asked for in the first."""
        for t in range(count):
            wish = wished() if callable(wished) else wished
            quat = more.get("quat", (1, 0, 0, 0))
            rest = {name: x for name, x in more.items() if name != "quat"}
            self.tick(body(self.at, quat=quat), wish, event if t == 0 else "", **rest)
        return self

    def armed(self, told: Any = None) -> "Flown":
        self.live(2).live(190, states.STAND)
        return self


def about(rig: Rig) -> About:
    return About(rig.core.setup, "udp", 1.75e9)


def write(path: Path, rig: Flown, rows: Iterable[Row] | None = None) -> Path:
    made = Log(path, about(rig).text())
    for row in rig.rows if rows is None else rows:
        made.add(flight.pack(row))
    made.close()
    return path


def wishes(seed: int, spread: float = 0.2) -> Any:
    """A policy that wants something else each time."""
    rng = np.random.default_rng(seed)
    return lambda: (of("rest") + rng.normal(0, spread, 12)).astype(np.float32)


FALLEN = (np.cos(0.6), np.sin(0.6), 0.0, 0.0)  # 69 degrees


def eventful() -> Flown:
    """Stands up, is armed, taken, jogged, given back, stopped; then armed again, and falls."""
    rig = Flown().armed()
    jog = np.linspace(-0.5, 0.5, 12)
    rig.live(50, states.ARM, wishes(0), command=np.array([0.5, 0.0, 0.0]))
    rig.live(33, states.TAKE, wishes(1), deadman=True, jog=jog)
    rig.live(40, states.GIVE, wishes(2))
    rig.live(20, states.WAIT).live(160, states.STAND)
    rig.live(52, states.ARM, wishes(3), command=np.array([2.0, 0.0, 0.3]))
    rig.live(10, "", wishes(4), quat=FALLEN)
    return rig


assert go2().max_tilt < 69


def ends(log: Path) -> list[int]:
    """Where in a log's file each tick ends."""
    whole, found, at = log.read_bytes(), list[int](), 8
    while at < len(whole) - 8:
        opcode, size = struct.unpack_from("<BQ", whole, at)
        at += 9 + size
        found += [at] if opcode == 0x05 else []
    return found
