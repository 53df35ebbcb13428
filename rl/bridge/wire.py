"""Messages between a robot, a policy and an operator: one datagram each, checked on arrival.

Little-endian: magic, version, kind, flags, 8 bytes of the spec's hash, sequence number, the
sender's time in s; then float32 numbers; then a CRC of all before it.
"""

import contextlib
import itertools
import json
import socket
import struct
import time
import zlib
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from rl.spec import Spec

HEAD = struct.Struct("<4sBBH8sQd")
MAGIC, VERSION = b"rrlb", 2
HELLO, STATE, COMMAND, BYE, ASK, PLAN, OPERATOR, STATUS, TOKEN = range(9)
RESET = 1  # flag of a state: an episode begins, forget the one before
LOST = 8  # flag of a goodbye: the policy was silent
WAITS = 4  # flag of what is asked: the asker's time stands still until it is answered
FAILED = 16  # flag of a state: a motor says that it failed
EPISODES = 32  # flag of a robot's greeting: it is a simulated one, whose episodes begin armed
REFUSED = 512  # flag of the answer to a greeting: who greets is not let in, and the text says why
OTHER = 1024  # flag of that too: it is of another artefact
DAMP = 2  # flag of a command: no stiffness, whatever its numbers say
AGAIN = 4  # flag of a command: a simulated robot's episode is over
MOST = 65_000  # bytes of a datagram
DRAINED = 64  # datagrams that are read at once
Address = tuple[str, int]


class Message(NamedTuple):
    kind: int
    flags: int
    hash: bytes
    seq: int  # of a policy's greeting its artefact's tag
    time: float  # s, the sender's; of a robot's greeting its ticks a second, of a policy's its step
    numbers: np.ndarray  # [n] float32
    text: str = ""  # of a hello


def encode(message: Message) -> bytes:
    head = HEAD.pack(MAGIC, VERSION, message.kind, message.flags, message.hash, message.seq,
                     message.time)  # fmt: skip
    body = message.text.encode() if message.kind == HELLO else message.numbers.tobytes()
    return head + body + checksum(head + body)


def checksum(body: bytes) -> bytes:
    return struct.pack("<I", zlib.crc32(body))


def decode(datagram: bytes) -> Message | None:
    """The message of a datagram; None of what is no message of ours."""
    if not HEAD.size + 4 <= len(datagram) <= MOST:
        return None
    body, (crc,) = datagram[:-4], struct.unpack("<I", datagram[-4:])
    magic, version, kind, flags, spec, seq, time = HEAD.unpack(body[: HEAD.size])
    content = body[HEAD.size :]
    if (magic, version) != (MAGIC, VERSION) or zlib.crc32(body) != crc or kind > TOKEN:
        return None
    if kind == HELLO:
        try:
            return Message(kind, flags, spec, seq, time, np.zeros(0, "<f4"), content.decode())
        except UnicodeDecodeError:
            return None
    whole = len(content) % 4 == 0
    return Message(kind, flags, spec, seq, time, np.frombuffer(content, "<f4")) if whole else None


def goodbye(spec: Spec, flags: int = 0) -> Message:
    return Message(BYE, flags, spec.hash, 0, 0.0, np.zeros(0, "<f4"))


def leaves(datagram: bytes) -> bool:
    """Whether it is a goodbye."""
    message = decode(datagram)
    return message is not None and message.kind == BYE


class State(NamedTuple):
    """What the robot measured."""

    seq: int
    time: float  # s
    readings: dict[str, np.ndarray]
    reset: bool
    waits: bool = False  # lock step
    heat: float = 0.0  # degrees C of the hottest motor, if it is measured
    failed: bool = False  # a motor says so


class Command(NamedTuple):
    """What the motors are to do, in answer to the state `seq`; all [A]."""

    seq: int
    targets: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    damp: bool
    asked: np.ndarray  # [C] the operator's command, for the log
    clear: bool = False  # an operator said so: a robot that keeps errors forgets them
    again: bool = False  # a simulated robot is to begin its next episode


def state_message(spec: Spec, state: State) -> Message:
    readings = (state.readings[sensor.name] for sensor in spec.sensors)
    numbers = np.concatenate([*readings, [state.heat]])
    flags = RESET * state.reset | WAITS * state.waits | FAILED * state.failed
    return Message(STATE, flags, spec.hash, state.seq, state.time, numbers.astype("<f4"))


def state_of(spec: Spec, message: Message) -> State | None:
    """The state in `message`, if its numbers are as many as the spec has."""
    sizes = [sensor.size for sensor in spec.sensors]
    if (message.kind, message.hash) != (STATE, spec.hash) or len(message.numbers) != sum(sizes) + 1:
        return None
    reset, waits, failed = (bool(message.flags & flag) for flag in (RESET, WAITS, FAILED))
    heat = float(message.numbers[-1])
    readings = by_name(spec, message.numbers[:-1])
    return State(message.seq, message.time, readings, reset, waits, heat, failed)


def by_name(spec: Spec, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Readings of all sensors one after another."""
    ends = itertools.accumulate(sensor.size for sensor in spec.sensors)
    return {s.name: numbers[end - s.size : end] for s, end in zip(spec.sensors, ends, strict=True)}


def command_message(spec: Spec, command: Command, time: float) -> Message:
    numbers = np.concatenate([command.targets, command.kp, command.kd, command.asked])
    flags = DAMP * command.damp | AGAIN * command.again
    return Message(COMMAND, flags, spec.hash, command.seq, time, numbers.astype("<f4"))


def command_of(spec: Spec, message: Message) -> Command | None:
    """The command in `message`, if its numbers are as many as the spec has, and finite."""
    count = len(spec.actuators)
    which = message.kind, message.hash, len(message.numbers)
    if which != (COMMAND, spec.hash, 3 * count + len(spec.command)):
        return None
    if not np.isfinite(message.numbers).all():
        return None
    targets, kp, kd, asked = np.split(message.numbers, [count, 2 * count, 3 * count])
    damp, again = (bool(message.flags & flag) for flag in (DAMP, AGAIN))
    return Command(message.seq, targets, kp, kd, damp, asked, again=again)


def hello(spec: Spec) -> Message:
    """Who we are: the names behind the hash, so that a mismatch can be told in words."""
    return Message(HELLO, 0, spec.hash, 0, 0.0, np.zeros(0, "<f4"), json.dumps(asdict(spec)))


def tag(digest: str) -> int:
    """8 bytes of the SHA-256 of an artefact's file, so that no other is taken for it; 0 of none."""
    return int(digest[:16] or "0", 16)


class Link:
    """A UDP socket.  With a peer it hears nobody else: the kernel keeps strangers off, and what
    they send fills no buffer of it."""

    def __init__(self, bind: Address, peer: Address | None = None, shared: bool = False) -> None:
        self.socket, at = socket.socket(socket.AF_INET, socket.SOCK_DGRAM), bind
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, shared)
        try:
            self.socket.bind(bind)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for those beside it
            if peer:
                self.socket.connect(at := peer)
            self.peer = self.socket.getpeername() if peer else None
        except OSError as error:
            self.socket.close()
            what = "listen on" if at is bind else "speak to"
            raise ValueError(
                f"Cannot {what} {at[0]}:{at[1]}: {error.strerror}. Name another address."
            ) from error

    def beside(self, peer: Address) -> "Link":
        """Another at the same port, for `peer` alone."""
        return Link(self.socket.getsockname(), peer, shared=True)

    def send(self, message: Message) -> None:
        """To the peer; what cannot be sent is lost, as datagrams are."""
        self.send_raw(encode(message))

    def send_raw(self, datagram: bytes) -> None:
        with contextlib.suppress(OSError):
            self.socket.send(datagram)

    def answer(self, message: Message, sender: Any) -> None:
        """To who is no peer."""
        with contextlib.suppress(OSError):
            self.socket.sendto(encode(message), sender)

    def receive(self, timeout: float) -> tuple[Message, Any] | None:
        """The next message and who sent it, if one comes within `timeout` s."""
        got = self.receive_raw(timeout)
        message = got and decode(got[0])
        return (message, got[1]) if got and message else None

    def receive_raw(self, timeout: float) -> tuple[bytes, Any] | None:
        """The next datagram, whatever it is, and who sent it; a timeout of 0 does not wait."""
        until = time.monotonic() + timeout
        while True:
            self.socket.settimeout(max(until - time.monotonic(), 0.0))
            try:
                got = self.socket.recvfrom(MOST + 1)
            except ConnectionRefusedError:  # of what was sent: the peer is not there yet
                continue
            except OSError:
                return None
            if self.peer in (None, got[1]):
                return got

    def drain(self, most: int = DRAINED) -> list[bytes]:
        """What was sent and nobody has read; at most so much that a tick has time for."""
        found = iter(lambda: self.receive_raw(0.0), None)
        return [got[0] for got in itertools.islice(found, most)]

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    def close(self) -> None:
        self.socket.close()


def free_address() -> str:
    """host:port of this machine, where nobody listens yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def address(text: str) -> Address:
    """Of host:port; ValueError of anything else."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 <= int(port) < 65536:
        raise ValueError(f"{text!r} is no address: it is host:port, with a port up to 65535.")
    try:
        return socket.gethostbyname(host), int(port)
    except (OSError, UnicodeError):  # the latter of what can be no name
        raise ValueError(f"There is no host {host!r}: give its name or address.") from None
