"""Messages between an actor and its learner: a frame of msgpack each, checked on arrival.

A list: version, kind, and the fields of that kind, in their order.
"""

import math
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack

VERSION = 2
FRAME = 320 << 10  # bytes, at most
RECORD = 256 << 10  # of one
RECORDS = 1024  # in a frame
CHUNK = 64 << 10  # bytes of weights at once
WEIGHTS = 256 << 20
BOOT = 16  # bytes of the random number that a process of an actor is known by
BOOTS = 64  # of which one message tells
TEXT = 500  # characters
STAT = 200  # characters of a text that an actor tells of itself
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")
WHOLE = struct.Struct("<16sQI")


class Hello(NamedTuple):
    """Who comes, for which robot, and what its journal holds; an actor's first word."""

    actor: str
    boot: bytes
    spec: bytes  # the robot's, hashed; none of records that are no robot's
    held: dict[bytes, int]  # the first that is not removed, by boot
    run: str  # that it practises for; none of who practises for any


class Welcome(NamedTuple):
    """Send on from what is durable."""

    durable: dict[bytes, int]  # the last, by boot; -1 of none


class Data(NamedTuple):
    """Records of a boot, numbered from `first` on."""

    boot: bytes
    first: int
    records: list[bytes]
    crc: int


class Ack(NamedTuple):
    """What is on the learner's disk now."""

    durable: dict[bytes, int]


class Manifest(NamedTuple):
    """The newest weights."""

    version: int
    sha256: bytes
    nbytes: int


class Pull(NamedTuple):
    """A piece of weights is asked for."""

    version: int
    offset: int


class Chunk(NamedTuple):
    version: int
    offset: int
    data: bytes


class Refused(NamedTuple):
    """Who comes is not let in, and the text says why."""

    text: str


class Ping(NamedTuple):
    sent: float  # s, of the actor's clock


class Pong(NamedTuple):
    sent: float  # as asked
    received: float  # s, of the learner's clock
    replied: float


class Stats(NamedTuple):
    """What an actor says of itself, for who watches."""

    values: dict[str, Any]  # numbers and short texts


class Bye(NamedTuple):
    """The actor ends."""


class Over(NamedTuple):
    """Nothing more is learned, as the text says; what the actor still has is taken in."""

    text: str


KINDS = Hello, Welcome, Data, Ack, Manifest, Pull, Chunk, Refused, Ping, Pong, Stats, Bye, Over
Message = (
    Hello | Welcome | Data | Ack | Manifest | Pull | Chunk | Refused | Ping | Pong | Stats | Bye
    | Over
)  # fmt: skip


def encode(message: Message) -> bytes:
    return msgpack.packb([VERSION, KINDS.index(type(message)), *message])


def decode(frame: bytes | memoryview) -> Message | str:
    """The message, or a word for why it is none: as which it is counted."""
    if len(frame) > FRAME:
        return "oversize"
    try:
        words = msgpack.unpackb(
            frame, strict_map_key=True, max_str_len=TEXT * 4, max_bin_len=RECORD,
            max_array_len=RECORDS, max_map_len=BOOTS + 1, max_ext_len=0,
        )  # fmt: skip
    except ValueError:
        return "format"
    if type(words) is not list or not _int(*words[:2]) or len(words) < 2:
        return "format"
    version, kind, *fields = words
    if version != VERSION:
        return "version"
    if kind >= len(KINDS):
        return "kind"
    names = KINDS[kind]._fields
    if len(fields) != len(names) or not all(map(fits, names, fields)):
        return "fields"
    message = KINDS[kind](*fields)
    if isinstance(message, Data) and message.crc != crc(*message[:3]):
        return "crc"
    return message


def crc(boot: bytes, first: int, records: list[bytes]) -> int:
    """Of the records, and of where one ends and which they are."""
    found = zlib.crc32(WHOLE.pack(boot, first, len(records)))
    for record in records:
        found = zlib.crc32(record, zlib.crc32(len(record).to_bytes(4, "little"), found))
    return found


def data(boot: bytes, first: int, records: list[bytes]) -> Data:
    return Data(boot, first, records, crc(boot, first, records))


def fits(name: str, field: Any) -> bool:
    """Whether a field of that name may have this value."""
    return CHECKS[name](field)


def _int(*numbers: Any) -> bool:
    """Natural numbers, as many as a file can have bytes."""
    return all(type(x) is int and 0 <= x < 1 << 62 for x in numbers)


def _bytes(least: int, most: int) -> Callable[[Any], bool]:
    return lambda x: type(x) is bytes and least <= len(x) <= most


def _text(most: int) -> Callable[[Any], bool]:
    return lambda x: type(x) is str and len(x) <= most


def _time(x: Any) -> bool:
    return type(x) is float and math.isfinite(x)


def _by_boot(each: Callable[[Any], bool]) -> Callable[[Any], bool]:
    boot = _bytes(BOOT, BOOT)
    return lambda x: type(x) is dict and all(boot(key) and each(y) for key, y in x.items())


def _records(x: Any) -> bool:
    return type(x) is list and len(x) > 0 and all(map(_bytes(1, RECORD), x))


def _values(x: Any) -> bool:
    word, text = _text(64), _text(STAT)
    return type(x) is dict and len(x) <= BOOTS and all(
        word(key) and (_time(y) or text(y) or (type(y) in (bool, int) and abs(y) < 1 << 63))
        for key, y in x.items()
    )  # fmt: skip


DURABLE = _by_boot(lambda x: x == -1 or _int(x))
CHECKS: dict[str, Callable[[Any], bool]] = {
    "actor": lambda x: type(x) is str and NAME.fullmatch(x) is not None,
    "boot": _bytes(BOOT, BOOT), "spec": _bytes(0, 32), "held": _by_boot(_int), "run": _text(64),
    "durable": DURABLE, "records": _records, "first": _int, "crc": _int,
    "version": _int, "offset": _int, "sha256": _bytes(32, 32),
    "nbytes": lambda x: _int(x) and 0 < x <= WEIGHTS, "data": _bytes(1, CHUNK),
    "text": _text(TEXT), "sent": _time, "received": _time, "replied": _time, "values": _values,
}  # fmt: skip
