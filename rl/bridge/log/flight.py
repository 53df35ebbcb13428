"""A flight's log, tick by tick: all that a core heard, and what came of it, to the last bit.

An MCAP file of one message a tick, so that common tools open it; each is whole in itself, and of a
file that was cut short nothing but its last message is lost.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from mcap.exceptions import McapError
from mcap.records import Message, Metadata, Statistics
from mcap.stream_reader import StreamReader
from mcap.writer import CompressionType, Writer

from rl.bridge.core import Setup
from rl.bridge.limits import Limits
from rl.bridge.states import STATES
from rl.spec import from_facts

HEAD = struct.Struct("<QdddBIHHH")  # number, now, late, took, state, mask, heard, stages, command
PART = struct.Struct("<BBH")  # when in the tick, source, length
SOURCES = "robot", "policy", "operator", "watcher", "bridge"
TOPIC, SETUP, SCHEMA = "/tick", "setup", 1


class Heard(NamedTuple):
    source: str  # of SOURCES
    answer: bool  # it was heard after the policy was asked
    datagram: bytes


class Row(NamedTuple):
    """A tick."""

    number: int
    now: float  # s
    late: float  # s
    took: float  # s until the policy answered; NaN if it was not asked, or did not in time
    heard: tuple[Heard, ...]
    told: bytes  # to the robot
    state: str
    mask: int
    stages: np.ndarray  # [stages, A]; [0, A] where none was passed
    lost: int = 0  # ticks before it that are damaged in its log


def pack(row: Row) -> bytes:
    parts = [
        HEAD.pack(
            row.number, row.now, row.late, row.took, STATES.index(row.state), row.mask,
            len(row.heard), len(row.stages), len(row.told),
        )
    ]  # fmt: skip
    for source, answer, datagram in row.heard:
        parts += [PART.pack(answer, SOURCES.index(source), len(datagram)), datagram]
    body = b"".join([*parts, row.told, row.stages.astype("<f8").tobytes()])
    return body + struct.pack("<I", zlib.crc32(body))


def unpack(record: bytes) -> Row | None:
    """The tick of a record; None of one that was cut short or damaged."""
    body = record[:-4]
    if len(body) < HEAD.size or zlib.crc32(body) != struct.unpack("<I", record[-4:])[0]:
        return None
    number, now, late, took, state, mask, count, stages, length = HEAD.unpack_from(body)
    at, heard = HEAD.size, []
    for _ in range(count):
        answer, source, size = PART.unpack_from(body, at)
        at += PART.size
        heard.append(Heard(SOURCES[source], bool(answer), body[at : at + size]))
        at += size
    told, numbers = body[at : at + length], np.frombuffer(body[at + length :], "<f8")
    shaped = numbers.reshape(stages, -1) if stages else numbers.reshape(0, 0)
    return Row(number, now, late, took, tuple(heard), told, STATES[state], mask, shaped)


@dataclass(frozen=True)
class About:
    """Of what a log is."""

    setup: Setup
    codec: str  # how the robot speaks
    start: float  # s since 1970

    @property
    def artefact(self) -> str:
        """SHA-256 of the policy's file."""
        return self.setup.artefact

    def text(self) -> str:
        setup = self.setup
        facts = {"ticks": setup.ticks, "episodes": setup.episodes}
        facts |= {"spec": asdict(setup.spec), "limits": asdict(setup.limits), "schema": SCHEMA}
        facts |= {"codec": self.codec, "artefact": setup.artefact, "start": self.start}
        return json.dumps(facts)


def about(text: str) -> About:
    try:
        facts = json.loads(text)
        if facts["schema"] != SCHEMA:
            raise ValueError("another version wrote it")
        setup = Setup(
            from_facts(facts["spec"]), Limits(**facts["limits"]), facts["ticks"],
            facts["episodes"], facts["artefact"],
        )  # fmt: skip
        return About(setup, facts["codec"], facts["start"])
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError("what it says of itself is damaged") from error


class Log:
    """Writes an MCAP file."""

    def __init__(self, path: Path, text: str) -> None:
        """`text` says of what, as `About` does."""
        self.file = path.open("xb")
        # In no chunks, each of which would be lost whole; CRCs are the messages' own.
        self.writer = Writer(self.file, compression=CompressionType.NONE, use_chunking=False)
        self.writer.start("robotrl", "robotrl")
        self.writer.add_metadata(SETUP, {"json": text})
        schema = self.writer.register_schema("robotrl.tick", "", b"")
        self.channel = self.writer.register_channel(TOPIC, "robotrl.tick", schema)
        self.start = json.loads(text)["start"]

    def add(self, record: bytes) -> None:
        number, now = struct.unpack_from("<Qd", record)
        at = int((self.start + now) * 1e9)
        self.writer.add_message(self.channel, at, record, at, number & 0xFFFFFFFF)

    def close(self) -> None:
        self.writer.finish()
        self.file.close()


class Flight(NamedTuple):
    about: About
    rows: list[Row]
    whole: bool  # it was closed, and nothing of it is damaged


def read(path: Path) -> Flight:
    """What is whole of the log at `path`; ValueError if it is none."""
    try:
        with path.open("rb") as file:
            records = _records(StreamReader(file))
            first = next((x for x in records if isinstance(x, Metadata) and x.name == SETUP), None)
            if first is None:
                raise ValueError("it does not say of what it is")
            rows, lost, messages, written = list[Row](), 0, 0, -1
            for record in records:
                if isinstance(record, Statistics):
                    written = record.message_count
                if isinstance(record, Message):
                    row, messages = unpack(record.data), messages + 1
                    rows += [row._replace(lost=lost)] if row else []
                    lost = 0 if row else lost + 1
            whole = file.read() == b"" and messages == written == len(rows) and _closed(path)
            return Flight(about(first.metadata["json"]), rows, whole)
    except FileNotFoundError:
        raise ValueError(f"There is no log {path}.") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}.") from error
    except (McapError, ValueError) as error:
        raise ValueError(f"{path} is no log of a flight: {error}.") from error


def _records(reader: StreamReader) -> Iterator[Any]:
    """Up to where the file ends, or is damaged."""
    try:
        yield from reader.records
    except (McapError, struct.error, UnicodeDecodeError, IndexError):
        return


def _closed(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-8, 2)
        return file.read() == b"\x89MCAP0\r\n"
