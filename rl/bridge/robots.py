"""Which robot a text means: the driver that speaks with it, and the codec that reads its logs."""

from collections.abc import Callable
from typing import Protocol

from rl.bridge import wire
from rl.bridge.drivers import go2, udp
from rl.bridge.ears import Codec
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


CODECS: dict[str, Callable[[Spec], Codec]] = {"udp": udp.Codec, "go2": go2.Codec}


def driver(spec: Spec, text: str) -> Driver:
    """Of host:port, or of a kind of robot and where it is, as go2:eth0; ValueError of none."""
    kind, _, where = text.partition(":")
    match kind:
        case "go2":
            return go2.Go2(spec, dds(where))
        case "go2+udp":
            return go2.Go2(spec, go2.Udp(wire.address(where)))
    return udp.Udp(spec, wire.address(text))


def check(spec: Spec, text: str) -> bool:
    """Whether it is a robot with a wire of its own; ValueError if it cannot be this policy's."""
    kind, _, where = text.partition(":")
    if kind not in ("go2", "go2+udp"):
        wire.address(text)
        return False
    go2.require(spec)
    go2.network(where) if kind == "go2" else wire.address(where)
    return True


def codec(spec: Spec, name: str) -> Codec:
    """That of a log."""
    if name not in CODECS:
        raise ValueError(f"There is no robot that speaks {name!r}; there are {', '.join(CODECS)}.")
    return CODECS[name](spec)


def dds(where: str, serves: bool = False) -> go2.Transport:
    """A Go2's wire on a network interface, of INTERFACE or INTERFACE/DOMAIN."""
    try:
        from rl.bridge.drivers.go2_dds import Dds
    except ImportError:
        raise ValueError("A Go2 speaks DDS: pip install 'robotrl[go2]'.") from None
    return Dds(where, serves)
