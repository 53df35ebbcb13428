"""Weights that a learner gives to its actors: files in a folder, and pieces of them on the wire.

A file's name, VERSION-SHA256.weights, is its manifest; who has pulled one holds it to that.
"""

import contextlib
import hashlib
import re
from collections import Counter
from pathlib import Path
from typing import BinaryIO, NamedTuple

from rl.bridge.learn import segments
from rl.bridge.learn.frames import CHUNK, TEXT, WEIGHTS, Chunk, Manifest, Pull

NAME = re.compile(r"(\d{12})-([0-9a-f]{64})\.weights")
KEPT = 2  # files
OVER = "over"  # a file beside them, where no more will come: why
REFUSED = "refused.jsonl"  # beside them: those that were not taken, and why
AHEAD = 4  # pieces that are asked for at once
PATIENCE_S = 1.0  # after which what was asked for is asked for again


class Weights(NamedTuple):
    version: int
    blob: bytes


def publish(folder: Path, version: int, blob: bytes) -> bool:
    """Put weights there, whole or not at all, if they are newer than those that are there."""
    if not 0 < len(blob) <= WEIGHTS:
        raise ValueError(f"Weights have {len(blob)} bytes: they take 1 to {WEIGHTS}.")
    if not 0 <= version < 10**12:
        raise ValueError(f"Weights of version {version}: it takes a number from 0, of 12 digits.")
    folder.mkdir(parents=True, exist_ok=True)
    if (before := _listed(folder)) and version <= _version(before[-1]):
        return False
    for torn in folder.glob("*.partial"):
        torn.unlink()
    segments.replace(folder / f"{version:012}-{hashlib.sha256(blob).hexdigest()}.weights", blob)
    for old in _listed(folder)[:-KEPT]:
        old.unlink()
    return True


class Shelf:
    """The weights in a folder, for who sends them; it need not be there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.newest: Manifest | None = None
        self.over = ""  # why no more will come
        self._files: dict[str, tuple[int, BinaryIO]] = {}  # what each actor pulls: it may be old

    def look(self) -> bool:
        """Whether newer ones have come."""
        with contextlib.suppress(OSError):  # even newer ones have just taken its place
            *_, last = [None, *_listed(self.folder)]
            if last and (self.newest is None or _version(last) > self.newest.version):
                digest, size = last.stem.split("-")[1], last.stat().st_size
                self.newest = Manifest(_version(last), bytes.fromhex(digest), size)
                return True
        return False

    def ended(self) -> bool:
        """Whether that no more will come is new."""
        with contextlib.suppress(OSError):
            if not self.over:
                self.over = (self.folder / OVER).read_text(errors="replace")[:TEXT]
                return bool(self.over)
        return False

    def chunk(self, actor: str, pull: Pull) -> Chunk | None:
        """A piece for an actor; None of what is not there."""
        with contextlib.suppress(OSError, StopIteration):
            if self._files.get(actor, (-1,))[0] != pull.version:
                self.forget(actor)
                path = next(x for x in _listed(self.folder) if _version(x) == pull.version)
                self._files[actor] = pull.version, path.open("rb")
            file = self._files[actor][1]
            file.seek(pull.offset)
            if data := file.read(CHUNK):
                return Chunk(*pull, data)
        return None

    def forget(self, actor: str) -> None:
        if actor in self._files:
            self._files.pop(actor)[1].close()

    def close(self) -> None:
        for actor in [*self._files]:
            self.forget(actor)


class Fetch:
    """An actor's side: pulls the newest weights it was told of, and never takes older ones."""

    def __init__(self) -> None:
        self.newest: Weights | None = None
        self.counts: Counter[str] = Counter()  # of what was not taken, by why
        self._had: Manifest | None = None  # the newest's
        self._pulled: Manifest | None = None
        self._next: Manifest | None = None  # told of meanwhile
        self._got, self._hash = bytearray(), hashlib.sha256()
        self._asked = 0  # bytes
        self._due = 0.0  # s, when what was asked for and has not come is asked for again

    def offered(self, manifest: Manifest) -> None:
        """The learner has these."""
        if self._had is None or manifest.version > self._had.version:
            self._next = manifest
        elif manifest != self._had:  # which it tells again to who comes again
            self.counts["older"] += 1

    def asks(self, now: float) -> list[Pull]:
        """What to ask the learner for at `now`, s."""
        if self._pulled is None or now >= self._due:
            if self._next not in (None, self._pulled):
                self._pulled = self._next
                self._forget()
            self._next, self._asked, self._due = None, len(self._got), now + PATIENCE_S
        if self._pulled is None:
            return []
        most = min(self._pulled.nbytes, len(self._got) + AHEAD * CHUNK)
        pieces = range(self._asked, most, CHUNK)
        self._asked += len(pieces) * CHUNK
        return [Pull(self._pulled.version, at) for at in pieces]

    def arrived(self, chunk: Chunk, now: float) -> None:
        """What was asked for, in its order; what was not is left."""
        pulled = self._pulled
        if pulled is None or (chunk.version, chunk.offset) != (pulled.version, len(self._got)):
            return
        self._got += chunk.data
        self._hash.update(chunk.data)  # now, for at the end it would take long
        self._due = now + PATIENCE_S
        if len(self._got) < pulled.nbytes:
            return
        if self._hash.digest() == pulled.sha256:
            self.newest = Weights(pulled.version, bytes(self._got))
            self._had, self._pulled = pulled, None
        else:
            self.counts["damaged"] += 1  # and asked for again, when it is due
        self._forget()

    def _forget(self) -> None:
        self._got, self._hash = bytearray(), hashlib.sha256()


def newest(folder: Path, above: int) -> Weights | None:
    """The newest that are there, whole, if their version is above that one."""
    if not (found := _listed(folder)) or _version(found[-1]) <= above:
        return None
    with contextlib.suppress(FileNotFoundError):  # even newer ones have just taken its place
        blob = found[-1].read_bytes()
        if hashlib.sha256(blob).hexdigest() == found[-1].stem.split("-")[1]:
            return Weights(_version(found[-1]), blob)
    return None


def _listed(folder: Path) -> list[Path]:
    """Files of weights, oldest first."""
    return sorted(path for path in folder.glob("*.weights") if NAME.fullmatch(path.name))


def _version(path: Path) -> int:
    return int(path.stem.split("-")[0])
