"""Files of entries that are written at the end, each whole or not at all.

Whatever kills who writes, only the last file can be torn, and only behind its last whole entry.
An entry: the length of its body and a CRC of both, little-endian, then the body.
"""

import contextlib
import errno
import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

HEAD = struct.Struct("<II")
MOST = 64 << 20  # bytes of a body: what says more is damaged
BLOCK = 128 << 10  # bytes that are read at once
NO_ROOM = errno.ENOSPC, errno.EDQUOT, errno.EFBIG  # the last of a limit on files' sizes


class Full(ValueError):
    """There was no room, and nothing has changed."""


def framed(body: bytes) -> bytes:
    """The entry of a body."""
    return HEAD.pack(len(body), _crc(body)) + body


def scan(path: Path, at: int = 0) -> Iterator[tuple[bytes, int]]:
    """Bodies from offset `at` on and where each entry ends, up to what is not whole."""
    with path.open("rb", buffering=BLOCK) as file:
        file.seek(at)
        while len(head := file.read(HEAD.size)) == HEAD.size:
            size, crc = HEAD.unpack(head)
            if size > MOST or len(body := file.read(size)) < size or _crc(body) != crc:
                return
            at += HEAD.size + size
            yield body, at


def numbered(folder: Path) -> list[Path]:
    """The segments in a folder, oldest first."""
    return sorted(folder.glob("[0-9]" * 8 + ".log"))


def named(folder: Path, number: int) -> Path:
    return folder / f"{number:08}.log"


def number_of(path: Path) -> int:
    return int(path.stem)


def damaged(path: Path, at: int) -> ValueError:
    """What is wrong with a file that is not whole, though all of it was written."""
    return ValueError(
        f"{path} is damaged at byte {at}. To go on without what is behind: truncate -s {at} {path}"
    )


def goes_on(path: Path, at: int) -> bool:
    """Whether whole entries lie behind what is none at `at`: it is damaged then, and not torn."""
    with path.open("rb") as file:
        file.seek(at)
        rest = file.read()
    for begin in range(1, len(rest) - HEAD.size):
        size, crc = HEAD.unpack_from(rest, begin)
        end = begin + HEAD.size + size
        if size > 0 and end <= len(rest) and _crc(rest[begin + HEAD.size : end]) == crc:
            return True
    return False


def cut(path: Path, size: int) -> None:
    """Leave so many bytes of a file, and those on the disk."""
    with path.open("r+b") as file:
        file.truncate(size)
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Have the names in it on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace(path: Path, data: bytes) -> None:
    """Write a file in the place of what is there, or not at all, whatever happens meanwhile."""
    fresh = path.with_name(path.name + ".partial")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
    except OSError as error:
        fresh.unlink(missing_ok=True)
        raise _told(path, error) from error
    sync_folder(path.parent)


class Segment:
    """An open file of `size` bytes, to which entries are added."""

    def __init__(self, path: Path, size: int) -> None:
        self.path, self.size = path, size
        try:
            self.handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise _told(path, error) from error

    def write(self, entries: bytes) -> None:
        """All of them, or `Full`."""
        view, at = memoryview(entries), self.size
        try:
            while view:
                count = os.pwrite(self.handle, view, at)
                view, at = view[count:], at + count
        except OSError as error:
            with contextlib.suppress(OSError):  # what is left there is no entry
                os.ftruncate(self.handle, self.size)
            raise _told(self.path, error) from error
        self.size = at

    def sync(self) -> None:
        """Have on the disk what was written."""
        os.fdatasync(self.handle)

    def close(self) -> None:
        os.close(self.handle)


def _crc(body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(struct.pack("<I", len(body))))


def _told(path: Path, error: OSError) -> Exception:
    """`Full`, if that is what it is."""
    if error.errno not in NO_ROOM:
        return error
    return Full(f"{path.parent} has no room: {error.strerror}.")
