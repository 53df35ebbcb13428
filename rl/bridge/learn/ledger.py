"""What a learner has received, on its own disk: written by one process, read by others as it grows.

A segment begins with what was durable before it, so that opening reads the last alone.  Records
are durable from the mark behind them on, which is written when they are on the disk, and wherever
another segment follows.
"""

import contextlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rl.bridge import lock
from rl.bridge.learn import segments
from rl.bridge.learn.segments import Full, Segment

HEAD = struct.Struct("<c16sQB")  # kind, boot, seq, length of the actor's name; it, and the record
RECORD, MARK, BEFORE = b"R", b"M", b"B"  # kinds of entries, in their first byte
SEGMENT = 32 << 20  # bytes after which another is begun
MANY = 8 << 20  # bytes that a reader gives at once, and the rest of their group


class Position(NamedTuple):
    """Where a reader goes on."""

    segment: int = 0
    offset: int = 0  # bytes


START = Position()


class Row(NamedTuple):
    """A record that is durable."""

    actor: str
    boot: bytes
    seq: int
    record: bytes
    after: Position  # from where on the next is read


class Ledger:
    """Holds its folder until it is closed: no other process can write it.

    What raises OSError, or `Full` without room, leaves nothing of what was not on the disk yet.
    """

    def __init__(self, folder: Path) -> None:
        """ValueError if another process has it, or if it is damaged."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.durable: dict[tuple[str, bytes], int] = {}  # the last seq, by actor and boot
        self._fresh: dict[tuple[str, bytes], int] = {}  # of what is not on the disk yet
        self._open: Segment | None = None
        self._last: Path | None = None  # the newest segment, open or not
        self._kept = self._bare = 0  # bytes of it that are on the disk, and without records
        self._lock = lock.hold(folder / "lock", f"writes the ledger {folder} already: end it.")
        try:
            if paths := segments.numbered(folder):
                self._recover(paths[-1])
        except BaseException:
            self._lock.close()
            raise

    def last(self, actor: str, boot: bytes) -> int:
        """The number of the last record of a boot, on the disk or not yet; -1 of none."""
        key = actor, boot
        return self._fresh.get(key, self.durable.get(key, -1))

    def append(self, actor: str, boot: bytes, first: int, records: list[bytes]) -> None:
        """Write records that are numbered from `first` on; ValueError if one is there already."""
        if first <= self.last(actor, boot):
            raise ValueError(f"{self.folder} has record {first} of {actor} already.")
        name = actor.encode()
        bodies = (HEAD.pack(RECORD, boot, first + i, len(name)) + name + record
                  for i, record in enumerate(records))  # fmt: skip
        if self._open is None or self._kept > SEGMENT:
            self._roll()
        self._add(b"".join(map(segments.framed, bodies)))
        self._fresh[actor, boot] = first + len(records) - 1

    def sync(self) -> None:
        """Have on the disk what was appended, and let readers see it."""
        if self._open is None or not self._fresh:
            return
        self._or_abandon(self._open.sync)
        self.durable |= self._fresh
        self._fresh.clear()
        self._kept = self._open.size
        self._mark()

    def close(self) -> None:
        self.sync()
        self._shut()
        self._lock.close()

    def _mark(self) -> None:
        """Say that all before is on the disk."""
        self._add(segments.framed(MARK))
        assert self._open
        self._kept = self._open.size

    def _add(self, entries: bytes) -> None:
        assert self._open
        segment = self._open
        self._or_abandon(lambda: segment.write(entries))

    def _or_abandon(self, act: Callable[[], None]) -> None:
        """Do it, or write to this segment no more.

        After a sync that failed nobody knows what is on the disk; and a reader may have seen what
        failed, in whose place nothing else must stand then."""
        try:
            act()
        except (OSError, Full):
            self._fresh.clear()
            self._shut()
            raise

    def _shut(self) -> None:
        if self._open:
            self._open.close()
        self._open = None

    def _roll(self) -> None:
        """Begin another segment: in the place of the last, if that is without records."""
        self.sync()
        self._shut()
        number = 0
        if self._last:
            segments.cut(self._last, self._kept)
            number = segments.number_of(self._last) + (self._kept > self._bare)
        facts = [(actor, boot.hex(), seq) for (actor, boot), seq in self.durable.items()]
        before = segments.framed(BEFORE + json.dumps(facts).encode())
        path = segments.named(self.folder, number)
        segments.replace(path, before)
        self._kept = self._bare = len(before)
        self._open, self._last = Segment(path, len(before)), path

    def _recover(self, path: Path) -> None:
        """Go on with the newest segment, without what is torn of it."""
        for body, end in segments.scan(path):
            if body[:1] == BEFORE and not self._bare:
                facts, self._bare = json.loads(body[1:]), end
                self.durable = {(actor, bytes.fromhex(boot)): seq for actor, boot, seq in facts}
            elif body[:1] == RECORD and self._bare:
                row = _row(body, START)
                self.durable[row.actor, row.boot] = row.seq
            elif body != MARK or not self._bare:
                break
            self._kept = end
        if not self._bare:
            raise ValueError(f"{path} is no segment of a ledger: move it elsewhere.")
        with path.open("rb") as file:
            file.seek(self._kept)
            if segments.framed(MARK) in file.read():  # all before that was on the disk
                raise segments.damaged(path, self._kept)
        segments.cut(path, self._kept)
        self._open, self._last = Segment(path, self._kept), path
        with contextlib.suppress(OSError, Full):  # on a disk that is full, too, actors are heard
            self._mark()


class Tail:
    """Reads a ledger from another process: each record once, when it is durable."""

    def __init__(self, folder: Path, at: Position = START) -> None:
        self.folder, self.at = folder, at

    def read(self) -> list[Row]:
        """Some records that were not read before, oldest first; none if there are none yet."""
        rows = list[Row]()
        while not rows:
            number = self.at.segment
            path = segments.named(self.folder, number)
            final = segments.named(self.folder, number + 1).exists()  # before what is there is read
            rows = self._durable(path, final) if path.exists() else []
            if not rows and not final:
                break
            self.at = rows[-1].after if rows else Position(number + 1)
        return rows

    def _durable(self, path: Path, final: bool) -> list[Row]:
        """What is durable of a segment, to which no more is written if it is `final`."""
        rows, waiting, size, end = list[Row](), list[Row](), 0, self.at.offset
        for body, end in segments.scan(path, self.at.offset):
            if body == MARK:
                rows += waiting
                waiting = []
                if size > MANY:
                    return rows
            elif body[:1] == RECORD:
                waiting.append(_row(body, self.at._replace(offset=end)))
                size += len(body)
        if final and end < path.stat().st_size:
            raise segments.damaged(path, end)
        return rows + waiting if final else rows


def _row(body: bytes, after: Position) -> Row:
    _, boot, seq, length = HEAD.unpack_from(body)
    at = HEAD.size + length
    return Row(body[HEAD.size : at].decode(), boot, seq, body[at:], after)
