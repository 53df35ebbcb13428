"""Which robot a text means: the driver that speaks with it, and the codec that reads its logs."""

from collections.abc import Callable
from typing import Protocol

from rl.bridge import wire
from rl.bridge.drivers import franka, franka_codec, go2, udp
from rl.bridge.ears import Codec
from rl.bridge.log.flight import About
from rl.spec import Spec


class Named(Codec, Protocol):
    name: str  # of CODECS


class Driver(Protocol):
    """The wire to a robot."""

    rate: float  # ticks a second
    waits: bool  # lock step
    episodes: bool  # its episodes begin armed
    gone: str  # how it said goodbye, if it did

    @property
    def codec(self) -> Named: ...

    def meet(self) -> None: ...
    def receive(self) -> list[bytes]: ...
    def send(self, datagram: bytes) -> None: ...
    def close(self) -> None: ...


CODECS: dict[str, Callable[[Spec], Codec]] = {
    "udp": udp.Codec, "go2": go2.Codec, "franka": franka_codec.Codec,
}  # fmt: skip


def driver(spec: Spec, text: str, sensors: str = "") -> Driver:
    """Of host:port, or of a kind of robot and where it is, as go2:eth0; ValueError of none.

    `sensors` is where a program says what the robot does not measure, if one does.
    """
    check(spec, text, sensors)
    kind, _, where = text.partition(":")
    match kind:
        case "go2":
            return go2.Go2(spec, dds(where))
        case "go2+udp":
            return go2.Go2(spec, go2.Udp(wire.address(where)))
        case "franka":
            return franka.Franka(spec, where, sensors)
    return udp.Udp(spec, wire.address(text))


def check(spec: Spec, text: str, sensors: str = "") -> bool:
    """Whether it is a robot with a wire of its own; ValueError if it cannot be this policy's."""
    kind, _, where = text.partition(":")
    if sensors and kind != "franka":
        raise ValueError("--sensors is for a Franka: other robots say all of it themselves.")
    match kind:
        case "go2" | "go2+udp":
            go2.require(spec)
            go2.network(where) if kind == "go2" else wire.address(where)
        case "franka":
            franka_codec.check(spec, bool(sensors))
            wire.address(sensors) if sensors else None
        case _:
            wire.address(text)
            return False
    return True


def codec(about: About) -> Codec:
    """Of the robot of a log; ValueError of one that nobody knows."""
    if about.codec not in CODECS:
        known = ", ".join(CODECS)
        raise ValueError(f"No robot is known that speaks {about.codec!r}; there are {known}.")
    return CODECS[about.codec](about.setup.spec)


def dds(where: str, serves: bool = False) -> go2.Transport:
    """A Go2's wire on a network interface, of INTERFACE or INTERFACE/DOMAIN."""
    try:
        from rl.bridge.drivers.go2_dds import Dds
    except ImportError:
        raise ValueError("A Go2 speaks DDS: pip install 'robotrl[go2]'.") from None
    return Dds(where, serves)
