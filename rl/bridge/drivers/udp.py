"""A robot that speaks in our own datagrams (rl/bridge/wire.py): simulated, or one of yours."""

import time

from rl.bridge import wire
from rl.bridge.greeting import check_hello
from rl.bridge.wire import Command, Link, State
from rl.spec import Spec

PATIENCE = 9.0  # s for a robot to answer: less than policy and pilot take for a bridge's silence


class Codec:
    """How it speaks: pure functions to and from bytes."""

    name = "udp"

    def __init__(self, spec: Spec) -> None:
        self.spec = spec

    def state(self, datagram: bytes) -> State | None:
        message = wire.decode(datagram)
        return message and wire.state_of(self.spec, message)

    def command(self, command: Command) -> bytes:
        return wire.encode(wire.command_message(self.spec, command, 0.0))


class Udp:
    """The wire to it."""

    def __init__(self, spec: Spec, peer: tuple[str, int]) -> None:
        self.spec, self.codec, self.link = spec, Codec(spec), Link(("0.0.0.0", 0), peer)
        self.rate = 0.0  # ticks a second, as it says
        self.waits = self.episodes = False  # as its greeting says
        self.gone: str = ""  # how it said goodbye

    def meet(self) -> None:
        """Greet it until it answers; ValueError if it is not of our spec, or does not."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.link.send(wire.hello(self.spec))
            if (got := self.link.receive(0.2)) and got[0].kind == wire.HELLO:
                if got[0].flags & wire.REFUSED:
                    raise ValueError(got[0].text)
                check_hello(self.spec, got[0], "The robot")
                flags, self.rate = got[0].flags, got[0].time
                self.waits, self.episodes = bool(flags & wire.WAITS), bool(flags & wire.EPISODES)
                return
        at = self.link.peer and "{}:{}".format(*self.link.peer)
        raise ValueError(
            f"No robot answered at {at} within {PATIENCE:.0f} s: start it first, or say where it "
            "is with --robot."
        )

    def receive(self) -> list[bytes]:
        """What it has said since the last call."""
        found = []
        for datagram in self.link.drain():
            message = wire.decode(datagram)
            if message and message.kind == wire.BYE:
                over = "done" if self.episodes else "left"
                self.gone = "given up" if message.flags & wire.LOST else over
            else:
                found.append(datagram)
        return found

    def send(self, datagram: bytes) -> None:
        self.link.send_raw(datagram)

    def close(self) -> None:
        """Say goodbye to a robot that was met."""
        if self.rate:
            self.link.send(wire.goodbye(self.spec))
        self.link.close()
