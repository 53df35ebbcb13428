"""Who speaks to a robot, and how: by what its name begins with, or in our own datagrams."""

from typing import Any

from rl.bridge import wire
from rl.bridge.drivers import franka, franka_codec, udp
from rl.bridge.ears import Codec
from rl.spec import Spec

FRANKA = "franka:"
CODECS = {x.name: x for x in (udp.Codec, franka_codec.Codec)}  # as logs of flights name them


def driver_of(spec: Spec, robot: str, sensors: str) -> Any:
    """Of franka:HOST, or host:port; ValueError of a robot that cannot be what `spec` needs.

    `sensors` is where a program says what it does not measure, if one does.
    """
    check(spec, robot, sensors)
    if prefixed(robot):
        return franka.Franka(spec, robot.removeprefix(FRANKA), sensors)
    return udp.Udp(spec, wire.address(robot))


def check(spec: Spec, robot: str, sensors: str) -> None:
    """Raise the ValueError that `driver_of` would, before there is one."""
    if prefixed(robot):
        franka_codec.check(spec, bool(sensors))
        if sensors:
            wire.address(sensors)
    elif sensors:
        raise ValueError("--sensors is for a Franka: other robots say all of it themselves.")
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
