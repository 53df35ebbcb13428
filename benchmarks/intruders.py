"""Who has no business at a learner's port, or not that one: python -m benchmarks.intruders

Each does for some seconds what it does, and then says how often, as JSON.
"""

import itertools
import json
import random
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread

import tyro
import zmq

from benchmarks.process import guard
from rl.bridge.learn import certs, frames

BOOT = b"of an intruder.."
SLOW = 1200  # connections that send a byte now and then: more than a process has files
OWN = [b"its own %d" % i for i in range(10)]  # records that it may send
HERE = "127.0.0.1"


@dataclass(frozen=True)
class Args:
    """Be one of them."""

    kind: str
    folder: Path  # with the keys of learner and bad
    port: int
    seconds: float = 3.0
    frames: int = 100_000  # of fuzz, whatever time that takes
    seed: int = 0


def main(args: Args) -> None:
    until = time.monotonic() + args.seconds
    sent = KINDS[args.kind](args)
    print(json.dumps(next(count for count in sent if time.monotonic() > until)))


@contextmanager
def known(args: Args, port: int, secret: bytes = b"", learner: bytes = b"") -> Iterator[zmq.Socket]:
    """A socket with the keys of bad and of the learner, or others."""
    secret = secret or certs.read_secret(args.folder / "keys" / "bad.secret")
    learner = learner or certs.read_public(args.folder / "keys" / "learner.public")
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.set(zmq.LINGER, 0)
        made.set(zmq.CURVE_SERVERKEY, learner)
        made.set(zmq.CURVE_SECRETKEY, secret)
        made.set(zmq.CURVE_PUBLICKEY, zmq.curve_public(secret))
        made.connect(f"tcp://{HERE}:{port}")
        yield made


def stranger(args: Args, known_to_us: bool) -> Iterator[int]:
    """Comes with a key that nobody knows, or to a learner that has another."""
    for count in itertools.count(1):
        public, secret = zmq.curve_keypair()
        with known(args, args.port, *([secret] if known_to_us else [b"", public])) as made:
            made.send(frames.encode(frames.Ping(1.0)))
            made.poll(5)
        yield count


def garbage(args: Args) -> Iterator[int]:
    rng = random.Random(args.seed)
    for count in itertools.count(1):
        with suppress(OSError), socket.create_connection((HERE, args.port)) as one:
            one.sendall(b"GET / HTTP/1.1\r\n\r\n" if count % 4 == 0 else rng.randbytes(2000))
        yield count


def slow(args: Args) -> Iterator[int]:
    """Many connections, each with a byte now and then; who is put out comes again."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    opened, count = list[socket.socket](), 0
    while True:
        for _ in range(SLOW - len(opened)):
            opened.append(one := socket.socket())
            one.setblocking(False)
            one.connect_ex((HERE, args.port))
            count += 1
        time.sleep(0.2)
        for one in [*opened]:
            try:
                one.send(b"\xff")
            except BlockingIOError:  # it is not let in yet
                continue
            except OSError:
                opened.remove(one)
                one.close()
        yield count


def replay(args: Args) -> Iterator[int]:
    """All that it said in a session of its own, byte by byte, on other connections."""
    heard, door = bytearray(), socket.create_server((HERE, 0))
    thread = Thread(target=overhear, args=(door, args.port, heard))
    thread.start()
    with known(args, door.getsockname()[1]) as made:
        greet(made)
        made.send(frames.encode(frames.data(BOOT, 0, OWN)))
        made.recv()
    thread.join()
    door.close()
    for count in itertools.count(1):
        with suppress(OSError), socket.create_connection((HERE, args.port)) as one:
            one.sendall(heard)
            one.settimeout(0.05)
            while one.recv(1000):
                pass
        yield count


def overhear(door: socket.socket, port: int, heard: bytearray) -> None:
    """One connection, and what goes through it."""
    here, there = door.accept()[0], socket.create_connection((HERE, port))

    def back() -> None:
        with suppress(OSError):
            while data := there.recv(65536):
                here.sendall(data)

    thread = Thread(target=back)
    thread.start()
    while data := here.recv(65536):
        heard += data
        there.sendall(data)
    there.shutdown(socket.SHUT_RDWR)
    thread.join()
    here.close()
    there.close()


def greet(made: zmq.Socket) -> None:
    made.send(frames.encode(frames.Hello("bad", BOOT, b"", {BOOT: 0}, "")))
    made.recv()


def again(args: Args) -> Iterator[int]:
    """The same records again and again."""
    with known(args, args.port) as made:
        greet(made)
        for count in itertools.count(1):
            made.send(frames.encode(frames.data(BOOT, 0, OWN)))
            made.recv()
            yield count


def large(args: Args) -> Iterator[int]:
    """More than a frame may have, and much more."""
    for count in itertools.count(1):
        with known(args, args.port) as made:
            made.send(bytes(frames.FRAME + 1 if count % 2 else 3 * frames.FRAME))
            made.poll(50)
        yield count


def fuzz(args: Args) -> Iterator[int]:
    """Damaged frames, all of them, whatever time that takes."""
    rng = random.Random(args.seed)
    whole = [
        frames.Hello("bad", BOOT, b"", {BOOT: 0}, ""), frames.Ping(1.0), frames.Bye(),
        frames.data(BOOT, 0, OWN), frames.Pull(1, 0), frames.Stats({"a": 1}),
        frames.Welcome({BOOT: 3}), frames.Refused("no"), frames.Chunk(1, 0, b"x" * 100),
    ]  # fmt: skip
    sent = [frames.encode(message) for message in whole]
    with known(args, args.port) as made:
        for _ in range(args.frames):
            frame = bytearray(rng.choice(sent))
            for _ in range(rng.randint(1, 5)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            made.send(frame[: rng.choice([len(frame), len(frame), rng.randrange(len(frame))])])
            while made.poll(0):
                made.recv()
        made.send(frames.encode(frames.Hello("nobody", BOOT, b"", {}, "")))
        answer = b""
        while b"not nobody's" not in answer:  # all before it was heard
            answer = made.recv()
    yield from itertools.repeat(args.frames)


KINDS: dict[str, Callable[[Args], Iterator[int]]] = {
    "unknown": partial(stranger, known_to_us=True),
    "mistaken": partial(stranger, known_to_us=False),
    "garbage": garbage, "slow": slow, "replay": replay, "again": again, "large": large,
    "fuzz": fuzz,
}  # fmt: skip

if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.intruders")))
