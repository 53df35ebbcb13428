"""An actor's connection to its learner, made again for as long as it takes."""

import re
import struct
import time
from collections.abc import Iterator
from typing import Any

import zmq

from rl.bridge.learn import frames
from rl.bridge.learn.frames import FRAME, Message

AGAIN_S = 0.1  # between two tries
ANEW_S = 2.0  # after which another socket tries: libzmq gives up after a breach of its protocol
HANDSHAKE_S = 2.0  # after which who has not finished it is put out
BEAT_S, DEAD_S = 1.0, 5.0  # of silence that is broken, and that ends a connection
QUEUED = 128  # frames, each way
EVENT = struct.Struct("=hi")
MET, UP = zmq.EVENT_CONNECTED, zmq.EVENT_HANDSHAKE_SUCCEEDED
DOWN = zmq.EVENT_DISCONNECTED
TROUBLE: dict[int, str] = {
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: "The learner does not know the key of this actor.",
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: "Whoever listens there is no learner of ours.",
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: "The learner there has another key, or does not answer.",
}
BOTH: dict[int, Any] = {  # ends of a line
    zmq.MAXMSGSIZE: 2 * FRAME, zmq.HANDSHAKE_IVL: int(1e3 * HANDSHAKE_S),
    zmq.HEARTBEAT_IVL: int(1e3 * BEAT_S), zmq.HEARTBEAT_TIMEOUT: int(1e3 * DEAD_S),
}  # fmt: skip
OPTIONS: dict[int, Any] = BOTH | {
    zmq.LINGER: 200, zmq.SNDHWM: QUEUED, zmq.RCVHWM: QUEUED,
    zmq.IMMEDIATE: 1,  # what one connection did not send the next does not either
    zmq.CONNECT_TIMEOUT: int(1e3 * ANEW_S), zmq.RECONNECT_IVL: int(1e3 * AGAIN_S),
}  # fmt: skip


class Line:
    def __init__(self, address: str, secret: bytes, learner: bytes, poller: zmq.Poller) -> None:
        """To who has the secret to the public key `learner`; what comes wakes the poller."""
        port = re.fullmatch(r"tcp://[^\s/]+:(\d{1,5})", address)
        if not port or not 0 < int(port[1]) < 65536:
            raise ValueError(f"{address} is no address: it is as tcp://127.0.0.1:9890.")
        self.address, self._secret, self._learner = address, secret, learner
        self._poller, self._context = poller, zmq.Context()
        self.up = False  # the learner is there, and each knows the other's key
        self.trouble = self._nobody = f"Nobody answers at {address}."  # why it is not
        self._open()

    def look(self) -> bool:
        """Whether it has come up since it was looked at last, or come up again."""
        came, now = False, time.monotonic()
        for event in self._happened():
            came |= event == UP
            self.up, self._meets = event == UP, event == MET
            self.trouble = self._nobody if self.up else TROUBLE.get(event, self.trouble)
        if self.up or self._meets:
            self._tried = now
        elif now - self._tried > ANEW_S:
            self.anew()
        return came

    def anew(self) -> None:
        """Try with another socket."""
        self._shut()
        self._open()

    def send(self, message: Message) -> bool:
        """Whether it is under way; a line that is down or full takes nothing."""
        try:
            self._socket.send(frames.encode(message), zmq.NOBLOCK)
        except zmq.Again:
            return False
        return True

    def receive(self) -> Message | str | None:
        """The next message, or why it is none; None if nothing has come."""
        try:
            parts = self._socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return None
        return frames.decode(parts[0]) if len(parts) == 1 else "parts"

    def owns(self, ready: Any) -> bool:
        """Whether something at the poller is of the line."""
        return ready in (self._socket, self._events)

    def close(self) -> None:
        self._shut(linger=OPTIONS[zmq.LINGER])
        self._context.term()

    def _open(self) -> None:
        self.up = self._meets = False
        self._tried = time.monotonic()
        self._socket = self._context.socket(zmq.DEALER)
        for option, value in OPTIONS.items():  # which hold only for what is connected afterwards
            self._socket.set(option, value)
        self._socket.set(zmq.CURVE_SERVERKEY, self._learner)
        self._socket.set(zmq.CURVE_SECRETKEY, self._secret)
        self._socket.set(zmq.CURVE_PUBLICKEY, zmq.curve_public(self._secret))
        self._events = self._socket.get_monitor_socket(MET | UP | DOWN | sum(TROUBLE))
        for each in (self._socket, self._events):
            self._poller.register(each, zmq.POLLIN)
        self._socket.connect(self.address)

    def _happened(self) -> Iterator[int]:
        """Events that were not looked at."""
        while self._events.poll(0):
            yield EVENT.unpack(self._events.recv_multipart()[0])[0]

    def _shut(self, linger: int = 0) -> None:
        for each in (self._socket, self._events):
            self._poller.unregister(each)
        for _ in self._happened():  # libzmq waits for room for them, and then we would for libzmq
            pass
        self._socket.disable_monitor()
        self._events.close(linger=0)
        self._socket.close(linger=linger)
