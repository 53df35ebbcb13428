"""Writes a flight's log in a process of its own, so that no disk holds up a robot.

python -m rl.bridge.log.recorder LOG, fed by a bridge through its standard input.
"""

import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

from rl.bridge.log.flight import About, Heard, Log, Row, pack

SIZE = struct.Struct("<I")
SYNC_S = 1.0  # s after which what was written is on the disk
MOST = 64 << 20  # bytes that wait for a slow disk: minutes
ENDS_S = 10.0  # s to write what is left


class Feed:
    """Gives ticks to a recorder, and never waits for it."""

    def __init__(self, path: Path, about: About) -> None:
        if path.exists():
            raise ValueError(f"--log {path} is there already: name another.")
        words = [sys.executable, "-m", "rl.bridge.log.recorder", str(path)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        assert self.process.stdin
        self.pipe = self.process.stdin.fileno()
        os.set_blocking(self.pipe, False)
        self.waiting: deque[bytes] = deque()
        self.backlog = 0  # bytes
        self.broken = False
        self.heard: list[Heard] = []
        self._put(about.text().encode())

    def hear(self, source: str, answer: bool, datagram: bytes) -> None:
        self.heard.append(Heard(source, answer, datagram))

    def tick(self, row: Row) -> None:
        self._put(pack(row._replace(heard=tuple(self.heard))))
        self.heard.clear()

    def close(self) -> bool:
        """Wait for what is left to be written, but not for ever; whether all of it was."""
        until, lost = time.monotonic() + ENDS_S, self.broken
        try:
            while self.waiting and not self.broken and (left := until - time.monotonic()) > 0:
                select.select([], [self.pipe], [], left)
                self._flush()
            self.process.stdin.close()  # type: ignore[union-attr]
            lost |= bool(self.waiting)
            return self.process.wait(max(until - time.monotonic(), 0)) == 0 and not lost
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
            return False

    def _put(self, record: bytes) -> None:
        if self.broken or self.backlog > MOST:
            self.broken = True
            return
        self.waiting.append(SIZE.pack(len(record)) + record)
        self.backlog += len(record) + SIZE.size
        self._flush()

    def _flush(self) -> None:
        try:
            while self.waiting:
                first = self.waiting[0]
                sent = os.write(self.pipe, first)
                self.backlog -= sent
                if sent < len(first):
                    self.waiting[0] = first[sent:]
                    return
                self.waiting.popleft()
        except BlockingIOError:
            return
        except OSError:  # the recorder has ended, and has said why
            self.broken = True


def main(path: Path) -> None:
    source = sys.stdin.buffer
    log = Log(path, _next(source).decode())
    synced = time.monotonic()
    while record := _next(source):
        log.add(record)
        if time.monotonic() - synced > SYNC_S:
            log.file.flush()
            os.fdatasync(log.file.fileno())
            synced = time.monotonic()
    log.close()


def _next(source: BinaryIO) -> bytes:
    """The next record; empty at the end."""
    head = source.read(SIZE.size)
    if len(head) < SIZE.size:
        return b""
    return source.read(SIZE.unpack(head)[0])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it writes to the end
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        main(Path(sys.argv[1]))
    except OSError as error:
        sys.exit(f"error: {sys.argv[1]} cannot be written: {error.strerror}.")
