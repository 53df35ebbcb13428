"""Frames that nobody should heed: noise, and damaged, old, forged ones and another protocol's."""

import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import wire
from rl.bridge.desk import PILOT, POLICY
from rl.bridge.wire import Message
from rl.spec import Spec

NOTHING = np.zeros(0, "<f4")
FLAGS = POLICY, PILOT, POLICY | PILOT, wire.WAITS, wire.EPISODES, 0, 0xFFFF  # of greetings


class Known(NamedTuple):
    """Of what a forger makes them."""

    spec: Spec
    rng: np.random.Generator
    frame: bytes  # a good one, of some time


def noise(known: Known) -> bytes:
    return known.rng.bytes(int(known.rng.integers(0, 300)))


def cut(known: Known) -> bytes:
    return known.frame[: int(known.rng.integers(len(known.frame)))]


def flipped(known: Known) -> bytes:
    at, bit = int(known.rng.integers(len(known.frame))), 1 << int(known.rng.integers(8))
    return known.frame[:at] + bytes([known.frame[at] ^ bit]) + known.frame[at + 1 :]


def oversize(known: Known) -> bytes:
    return known.frame + bytes(int(known.rng.integers(1_000, 60_000 - len(known.frame))))


def version(known: Known) -> bytes:
    body = known.frame[:4] + bytes([int(known.rng.integers(3, 256))]) + known.frame[5:-4]
    return body + struct.pack("<I", zlib.crc32(body))


def other(known: Known) -> bytes:
    """Another robot's."""
    return changed(known, hash=known.rng.bytes(8))


def unknown(known: Known) -> bytes:
    """Of a kind that there is not."""
    return changed(known, kind=int(known.rng.integers(wire.TOKEN + 1, 256)))


def replayed(known: Known) -> bytes:
    return known.frame


def misshapen(known: Known) -> bytes:
    return changed(known, numbers=np.zeros(int(known.rng.integers(300)), "<f4"))


def infinite(known: Known) -> bytes:
    """No numbers, and newer than all others."""
    message = wire.decode(known.frame)
    count = message.numbers.size if message else 0
    numbers = known.rng.choice([np.nan, np.inf], count).astype("<f4")
    return changed(known, seq=2**60, numbers=numbers)


def greeting(known: Known) -> bytes:
    return wire.encode(wire.hello(known.spec)._replace(flags=int(known.rng.choice(FLAGS))))


def goodbye(known: Known) -> bytes:
    flags = int(known.rng.choice([0, wire.LOST]))
    return wire.encode(Message(wire.BYE, flags, known.spec.hash, 0, 0.0, NOTHING))


def token(known: Known) -> bytes:
    seq = int(known.rng.integers(100_000))
    return wire.encode(Message(wire.TOKEN, 0, known.spec.hash, seq, 0.002 * seq, NOTHING))


def changed(known: Known, **fields: Any) -> bytes:
    """A whole frame, but for these."""
    message = wire.decode(known.frame)
    return wire.encode(message._replace(**fields)) if message else b""


Forgery = Callable[[Known], bytes]
# What a network may make of a friend's frames ...
DAMAGED: tuple[Forgery, ...] = noise, cut, flipped, oversize, version, other, unknown, replayed
# ... and what anybody may say.
FORGED: tuple[Forgery, ...] = *DAMAGED, misshapen, infinite, greeting, goodbye, token


def forged(spec: Spec, rng: np.random.Generator, recorded: list[bytes],
           kinds: tuple[Forgery, ...] = FORGED) -> bytes:  # fmt: skip
    """One of a kind, made of one of the frames that were recorded."""
    kind, frame = kinds[int(rng.integers(len(kinds)))], recorded[int(rng.integers(len(recorded)))]
    return kind(Known(spec, rng, frame))
