"""Where actors come to their learner: a port at which those alone are heard whose keys are known.

Who somebody is, his key says.  Who does not finish a handshake in time, sends what is too large or
falls silent is put out; and all of it is counted.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

import zmq
from zmq.utils import z85

from rl.bridge.learn import frames
from rl.bridge.learn.frames import Message
from rl.bridge.learn.line import BOTH, EVENT

QUEUED = 32  # frames of an actor, each way
ARRIVING = 64  # connections that are not accepted yet
AT_ONCE = 128  # frames that are heard before what they say is put on the disk
STRANGERS = 10_000  # requests, and events, that are looked at: more than libzmq keeps
EVENTS = {
    zmq.EVENT_ACCEPTED: "connections", zmq.EVENT_DISCONNECTED: "disconnections",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "handshakes that failed",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "handshakes that failed",
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "handshakes that were refused",
}  # fmt: skip
OPTIONS: dict[int, Any] = BOTH | {
    zmq.CURVE_SERVER: 1, zmq.ZAP_DOMAIN: b"learner", zmq.LINGER: 0, zmq.BACKLOG: ARRIVING,
    zmq.SNDHWM: QUEUED, zmq.RCVHWM: QUEUED,
}  # fmt: skip


class Heard(NamedTuple):
    peer: bytes  # a connection
    actor: str  # whose key it has
    message: Message | str  # or why it is none


class Gate:
    def __init__(self, address: str, secret: bytes, actors: Mapping[str, bytes]) -> None:
        """Listen at `address`, as tcp://host:port, for actors with these public keys."""
        self.counts: Counter[str] = Counter()
        self._names = {z85.decode(key): name.encode() for name, key in actors.items()}
        self._context = zmq.Context()
        self._requests = self._context.socket(zmq.REP)  # of libzmq: is this key known?
        self._requests.bind("inproc://zeromq.zap.01")
        self._router = self._context.socket(zmq.ROUTER)
        for option, value in OPTIONS.items():
            self._router.set(option, value)
        self._router.set(zmq.CURVE_SECRETKEY, secret)
        self._events = self._router.get_monitor_socket(sum(EVENTS))
        self._poller = zmq.Poller()
        for each in (self._requests, self._router, self._events):
            self._poller.register(each, zmq.POLLIN)
        try:
            self._router.bind(address)
        except zmq.ZMQError as error:
            self._context.destroy(linger=0)
            why = zmq.strerror(error.errno or 0)
            raise ValueError(
                f"Cannot listen on {address}: {why}. Name another, as tcp://127.0.0.1:9890."
            ) from error
        self.address = self._router.get_string(zmq.LAST_ENDPOINT)

    def hear(self, timeout: float) -> Iterator[Heard]:
        """Some of what actors say, if it comes within `timeout` s."""
        self._poller.poll(int(1e3 * timeout))
        for request in _received(self._requests, STRANGERS):
            self._answer(*map(bytes, request))
        self._count()
        for peer, *parts in _received(self._router, AT_ONCE):
            message = frames.decode(parts[0].buffer) if len(parts) == 1 else "parts"
            yield Heard(bytes(peer), parts[0].get("User-Id"), message)

    def send(self, peer: bytes, message: Message) -> None:
        """To a connection; nothing to one that is gone, or that does not read what it is sent."""
        self._router.send_multipart([peer, frames.encode(message)])

    def close(self) -> None:
        self._count()  # libzmq waits for room for them, and then we would for libzmq
        self._router.disable_monitor()
        self._context.destroy(linger=0)

    def _count(self) -> None:
        """What befell connections."""
        for event, _ in _received(self._events, STRANGERS):
            self.counts[EVENTS[EVENT.unpack(event)[0]]] += 1

    def _answer(self, version: bytes, request: bytes, *facts: bytes) -> None:
        """Let in whose key is known (ZAP, RFC 27)."""
        name = self._names.get(facts[-1])
        self.counts["keys that are not known"] += name is None
        told = (b"400", b"This key is not known.", b"") if name is None else (b"200", b"", name)
        self._requests.send_multipart([version, request, *told, b""])


def _received(socket: zmq.Socket[Any], most: int) -> Iterator[list[Any]]:
    """What there is, part by part."""

    def one() -> list[Any] | None:
        try:
            return socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None

    return islice(iter(one, None), most)
