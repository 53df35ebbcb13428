"""Steps from a bridge to the process that keeps them, over a datagram socket of one machine.

The bridge never waits, and forgets nothing that it has not been told is kept: who keeps them may
be killed, and begun again.
"""

import contextlib
import os
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from rl.bridge.wire import Address, Link

HEAD = struct.Struct("<4s16sQQ")  # magic, bridge, number, the oldest that is not known to be kept
KEPT = struct.Struct("<4s16sQ")  # magic, bridge, the first that is not kept
STEP, ACK = b"rrst", b"rrsk"
AGAIN_S = 0.1  # s after which what is not kept is sent again ...
AT_ONCE = 16  # ... and how many of it
KEPT_S = 1.0  # s in which a step is to be kept
MOST = 4096  # steps that wait


class Letter(NamedTuple):
    number: int
    record: bytes
    since: float  # s


class Outbox:
    """A bridge's."""

    def __init__(self, to: Address) -> None:
        self.link, self.bridge = Link(("127.0.0.1", 0), to), os.urandom(16)
        self.waiting: deque[Letter] = deque()
        self.number, self.sent = 0, 0.0

    def put(self, record: bytes) -> None:
        if len(self.waiting) < MOST:  # long before, the robot was held
            self.waiting.append(Letter(self.number, record, time.monotonic()))
            self._send(self.waiting[-1])
        self.number += 1

    @property
    def kept(self) -> bool:
        """Nothing waits for too long; to be asked in each tick, as it sends and hears."""
        now = time.monotonic()
        for datagram in self.link.drain():
            self._hear(datagram)
        if self.waiting and now - self.sent > AGAIN_S:
            for letter in list(self.waiting)[:AT_ONCE]:
                self._send(letter)
        return not self.waiting or now - self.waiting[0].since < KEPT_S

    def close(self) -> bool:
        """Wait for what is left to be kept, but not for ever; whether all of it is."""
        until = time.monotonic() + KEPT_S
        while self.waiting and time.monotonic() < until:
            _ = self.kept
            time.sleep(0.01)
        self.link.close()
        return not self.waiting

    def _send(self, letter: Letter) -> None:
        oldest, self.sent = self.waiting[0].number, time.monotonic()
        head = HEAD.pack(STEP, self.bridge, letter.number, oldest)
        self.link.send_raw(head + letter.record)

    def _hear(self, datagram: bytes) -> None:
        if len(datagram) != KEPT.size:
            return
        magic, bridge, first = KEPT.unpack(datagram)
        if (magic, bridge) != (ACK, self.bridge) or first > self.number:
            return
        while self.waiting and self.waiting[0].number < first:
            self.waiting.popleft()


class Inbox:
    """Of who keeps them: in order, and each once."""

    def __init__(self, bind: Address, keep: Callable[[bytes], bool]) -> None:
        """`keep` is given what is to be kept, and says whether it is."""
        self.link, self.keep = Link(bind), keep
        self.bridge, self.first = b"", 0  # who speaks; the first of its steps that is not kept

    def hear(self) -> int:
        """Keep what has come; how many were new."""
        new = 0
        for _ in range(MOST):
            if (got := self.link.receive_raw(0.0)) is None:
                break
            new += self._heard(*got)
        return new

    def _heard(self, datagram: bytes, sender: Address) -> int:
        if len(datagram) < HEAD.size:
            return 0
        magic, bridge, number, oldest = HEAD.unpack_from(datagram)
        if magic != STEP or oldest > number:
            return 0
        if bridge != self.bridge:
            self.bridge, self.first = bridge, oldest  # what is older is kept, it says
        new = number == self.first and self.keep(self._kept(bridge, number, datagram))
        self.first += new
        with contextlib.suppress(OSError):
            self.link.socket.sendto(KEPT.pack(ACK, bridge, self.first), sender)
        return int(new)

    @staticmethod
    def _kept(bridge: bytes, number: int, datagram: bytes) -> bytes:
        return LABEL.pack(bridge, number) + datagram[HEAD.size :]


LABEL = struct.Struct("<16sQ")  # bridge and number, before a step that is kept


def labelled(record: bytes) -> tuple[bytes, int, bytes] | None:
    """Bridge, number and step of what was kept; None of what is too short."""
    if len(record) < LABEL.size:
        return None
    bridge, number = LABEL.unpack_from(record)
    return bridge, number, record[LABEL.size :]
