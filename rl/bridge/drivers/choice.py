"""Who speaks to a robot, and how: by what its name begins with, or in our own datagrams."""

from typing import Any

from rl.bridge import wire
from rl.bridge.drivers import franka, franka_codec, udp
from rl.bridge.ears import Codec
from rl.spec import Spec

FRANKA = "franka:"
CODECS = {x.name: x for x in (udp.Codec, franka_codec.Codec)}  # as logs of flights name them


def driver_of(spec: Spec, robot: str) -> Any:
    """Of franka:HOST, or host:port; ValueError of a robot that cannot be what `spec` needs."""
    if prefixed(robot):
        return franka.Franka(spec, robot.removeprefix(FRANKA))
    return udp.Udp(spec, wire.address(robot))


def check(spec: Spec, robot: str) -> None:
    """Raise the ValueError that `driver_of` would, before there is one."""
    if prefixed(robot):
        franka_codec.check(spec)
    else:
        wire.address(robot)


def prefixed(robot: str) -> bool:
    """It is a maker's, and speaks as that has it."""
    return robot.startswith(FRANKA)


def codec_of(name: str, spec: Spec) -> Codec:
    """Of a flight's log; ValueError of one that nobody knows."""
    if name not in CODECS:
        raise ValueError(f"The robot spoke as {name!r}, which this version does not know.")
    return CODECS[name](spec)
