"""What an actor has recorded and its learner has not acknowledged, on the actor's own disk.

A record that was appended outlives its process, and a synced one its machine.  None is removed
before it was acknowledged, and none is written over: where there is no room, nothing is appended.
"""

import contextlib
import os
import struct
from pathlib import Path
from typing import NamedTuple

from rl.bridge import lock
from rl.bridge.learn import segments, whose
from rl.bridge.learn.frames import BOOT, NAME, RECORD, RECORDS
from rl.bridge.learn.segments import Full, Segment

KEY = struct.Struct("<16sQ")  # boot, seq; then the record
QUOTA = 4 << 30  # bytes
SEGMENT = 16 << 20  # bytes after which another file is begun
SHARE = 8  # of the quota that a file may be, so that acknowledged ones make room


class Part(NamedTuple):
    """A file of records of one boot, from `first` up to before `end`."""

    path: Path
    boot: bytes
    first: int
    end: int
    size: int  # bytes


class Journal:
    """Holds its folder until it is closed: no other process can open it."""

    def __init__(self, folder: Path, actor: str, quota: int = QUOTA, run: str = "") -> None:
        """Of what an actor does for one run, or for any; ValueError if another process, actor or
        run has the folder, or if it is damaged."""
        if not NAME.fullmatch(actor):
            raise ValueError(
                f"{actor!r} is no actor's name: it takes up to 64 of a-z, 0-9, _, . and -."
            )
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.actor, self.quota, self.run = folder, actor, quota, run
        self.boot = os.urandom(BOOT)
        self._gone = 0  # the next record's number, where no part says it
        self._limit = min(SEGMENT, quota // SHARE)
        self._open: Segment | None = None  # of the last part
        self._acked: dict[bytes, int] = {}  # the last that is, by boot
        self._cursor = folder, 0, 0  # file, seq and offset of what would be read next
        self._lock = lock.hold(folder / "lock", f"writes the journal {folder} already: end it.")
        try:
            whose.own(folder, actor, run)
            self._acked = whose.acked(folder)
            self._parts = _parts(folder)
        except BaseException:
            self._lock.close()
            raise

    def append(self, record: bytes) -> int:
        """Write a record with the next sequence number, which is returned; `Full` without room."""
        if not 0 < len(record) <= RECORD:
            raise ValueError(f"A record has {len(record)} bytes: it takes 1 to {RECORD}.")
        entry = segments.framed(KEY.pack(self.boot, self.next) + record)
        try:
            self._write(entry)
        except Full:
            if self.pending:
                raise
            self._clear()  # all is acknowledged, so that the file which is written to can go, too
            self._write(entry)
        return self.next - 1

    def sync(self) -> None:
        """Have on the disk what was appended."""
        if self._open:
            self._open.sync()

    def acknowledged(self, boot: bytes, seq: int) -> None:
        """The learner has those of `boot` up to `seq`: files that hold no others are removed."""
        if (held := self.held().get(boot)) is None:
            return
        # No further than what was appended: whoever says more would have later records removed.
        self._acked[boot] = max(min(seq, held.stop - 1), self._acked.get(boot, -1))
        written = self._open and self._open.path
        self._remove([x for x in self._parts if not self._unacked(x) and x.path != written])

    def held(self) -> dict[bytes, range]:
        """Sequence numbers of the records in the folder by boot, oldest first and ours last.

        Where some are gone, as of a file that was damaged, those behind them come after all before
        them are acknowledged."""
        found: dict[bytes, range] = {}
        for part in self._parts:
            before = found.get(part.boot)
            if before is None or self._acked.get(part.boot, -1) >= before.stop - 1:
                found[part.boot] = range(part.first, part.end)
            elif before.stop == part.first:
                found[part.boot] = range(before.start, part.end)
        found.setdefault(self.boot, range(self.next, self.next))
        return found

    def read(self, boot: bytes, seq: int, most: int) -> list[bytes]:
        """Records from `seq` on: one, and more while they have `most` bytes; none where there are
        none."""
        part = next((x for x in self._parts if x.boot == boot and x.first <= seq < x.end), None)
        if part is None:
            return []
        at = self._cursor[2] if self._cursor[:2] == (part.path, seq) else 0
        records, total = list[bytes](), 0
        for body, end in segments.scan(part.path, at):
            _, number = KEY.unpack_from(body)
            if number < seq:
                continue
            total += len(body) - KEY.size
            if records and (total > most or len(records) == RECORDS):
                break
            records.append(body[KEY.size :])
            self._cursor = part.path, number + 1, end
        if not records:
            raise segments.damaged(part.path, at)
        return records

    @property
    def next(self) -> int:
        """The sequence number of the record that is appended next."""
        ours = self._parts and self._parts[-1].boot == self.boot
        return self._parts[-1].end if ours else self._gone

    @property
    def pending(self) -> int:
        """Records that are not acknowledged."""
        return sum(map(self._unacked, self._parts))

    @property
    def size(self) -> int:
        """Bytes of it on the disk."""
        return sum(part.size for part in self._parts)

    def close(self) -> None:
        """Let go of the folder; what was appended is on the disk."""
        if self.pending:
            self.sync()
            self._shut()
            with contextlib.suppress(OSError, Full):  # else the learner says it again
                whose.ack(self.folder, self._acked)
        else:
            self._clear()
        self._lock.close()

    def _write(self, entry: bytes) -> None:
        if self.size + len(entry) > self.quota:
            raise Full(
                f"{self.folder} holds {self.size} bytes that the learner has not acknowledged, "
                f"and may hold {self.quota}: let the learner come, or give it more."
            )
        if self._open is None or 0 < self._parts[-1].size > self._limit - len(entry):
            self._roll()
        assert self._open
        part = self._parts[-1]
        self._open.size = part.size  # whatever interrupted the one before
        self._open.write(entry)
        self._parts[-1] = part._replace(end=part.end + 1, size=self._open.size)

    def _roll(self) -> None:
        """Begin another file."""
        self.sync()  # so that only the last is ever torn
        self._shut()
        if not self._parts or self._parts[-1].size:  # else it was begun, and could not be opened
            number = segments.number_of(self._parts[-1].path) + 1 if self._parts else 0
            path = segments.named(self.folder, number)
            self._parts.append(Part(path, self.boot, self.next, self.next, 0))
        self._open = Segment(self._parts[-1].path, 0)
        segments.sync_folder(self.folder)

    def _clear(self) -> None:
        """Remove all that is there, since it is acknowledged."""
        self._shut()
        self._remove(self._parts)

    def _remove(self, parts: list[Part]) -> None:
        self._gone = self.next
        for part in parts:
            part.path.unlink(missing_ok=True)
        self._parts = [part for part in self._parts if part not in parts]

    def _shut(self) -> None:
        if self._open:
            self._open.close()
        self._open = None

    def _unacked(self, part: Part) -> int:
        """Records of a part that are not acknowledged."""
        return max(part.end - max(part.first, self._acked.get(part.boot, -1) + 1), 0)


def left(folder: Path) -> int:
    """Records of a journal that nobody need hold, of which no acknowledgement is known."""
    acked, parts = whose.acked(folder), map(_surveyed, segments.numbered(folder))
    return sum(max(x.end - max(x.first, acked.get(x.boot, -1) + 1), 0) for x in parts)


def _parts(folder: Path) -> list[Part]:
    """The files in a folder and what each holds; what is torn of the last is cut off."""
    paths, parts = segments.numbered(folder), list[Part]()
    for path in paths:
        part = _surveyed(path)
        if part.size < path.stat().st_size:
            if path != paths[-1] or segments.goes_on(path, part.size):
                raise segments.damaged(path, part.size)
            segments.cut(path, part.size)
        if part.size:
            parts.append(part)
        else:
            path.unlink()
    return parts


def _surveyed(path: Path) -> Part:
    """What a file holds, up to what is not whole."""
    part = Part(path, b"", 0, 0, 0)
    for body, end in segments.scan(path):
        boot, seq = KEY.unpack_from(body)
        if not part.size:
            part = Part(path, boot, seq, seq, 0)
        if (boot, seq) != (part.boot, part.end):
            break
        part = part._replace(end=seq + 1, size=end)
    return part
