"""What a deployed policy reads and writes: names, units, frames, limits, gains and rates."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

NEW = "action", "memory"  # fields that came later: the hash of who has none is as it was


@dataclass(frozen=True)
class Sensor:
    """A reading by its name."""

    name: str
    size: int
    unit: str
    frame: str


@dataclass(frozen=True)
class Actuator:
    """A motor that holds a target: torque = kp (target - q) - kd dq, within +-torque."""

    name: str
    unit: str
    low: float
    high: float
    rest: float  # where it stands before it is told anything
    kp: float
    kd: float
    torque: float
    speed: float  # most of its joint, in units a second
    position: str = ""  # the sensor of its joint's position, if the policy reads one
    velocity: str = ""
    acceleration: float = 0.0  # most of its joint, in units a second squared; 0: no limit
    torque_rate: float = 0.0  # most that its torque may change in a second; 0: no limit


@dataclass(frozen=True)
class Channel:
    """A number of the command."""

    name: str
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class Spec:
    """What a policy reads and writes, in order, and how often."""

    name: str
    sensors: tuple[Sensor, ...]
    actuators: tuple[Actuator, ...]
    command: tuple[Channel, ...]
    control_dt: float  # s between calls
    physics_dt: float  # s between the steps of the model it was trained on
    max_tilt: float  # degrees; a robot that leans more has failed
    action: tuple[Channel, ...] = ()  # what a human may do in the place of a policy that learns
    memory: int = 0  # numbers that such a policy remembers, and tells of

    @cached_property  # every message has it
    def hash(self) -> bytes:
        """8 bytes that change with anything here."""
        facts = {name: x for name, x in asdict(self).items() if x or name not in NEW}
        text = json.dumps(facts, sort_keys=True)
        return hashlib.sha256(text.encode()).digest()[:8]

    @property
    def asked(self) -> int:
        """Numbers that a policy takes besides readings (rl/guided.py)."""
        return len(self.command) + (len(self.action) + 3 if self.action else 0)

    def require(self, sensors: Sequence[str], actuators: Sequence[str], whose: str) -> None:
        """Raise unless these names are ours, in our order."""
        for what, ours, theirs in (
            ("sensor", [s.name for s in self.sensors], [*sensors]),
            ("actuator", [a.name for a in self.actuators], [*actuators]),
        ):
            if ours == theirs:
                continue
            if lacking := [name for name in ours if name not in theirs]:
                raise ValueError(
                    f"{whose} has no {what} {lacking[0]!r}, which is needed; "
                    f"it has {', '.join(theirs)}."
                )
            pairs = enumerate(zip(ours, theirs, strict=False))
            at = next((i for i, (mine, other) in pairs if mine != other), len(ours))
            raise ValueError(
                f"{whose} has {theirs[at]!r} as its {what} {at}, and not "
                f"{ours[at] if at < len(ours) else 'none'!r}: names and order must be the same."
            )


def from_facts(facts: dict[str, Any]) -> Spec:
    """The spec that `asdict` made these of; ValueError of numbers that no robot has."""
    for name in ("control_dt", "physics_dt"):
        if not (isinstance(facts[name], float) and 0 < facts[name] < math.inf):
            raise ValueError(f"its {name} is {facts[name]!r} and no time")
    if not (isinstance(memory := facts.get("memory", 0), int) and memory >= 0):
        raise ValueError(f"its memory is {memory!r} and no count")
    if not 0 < facts["max_tilt"] <= 180:
        raise ValueError(f"its max_tilt is {facts['max_tilt']!r}, and not in degrees up to 180")
    for actuator in facts["actuators"]:
        for name in ("kp", "kd", "torque", "speed", "acceleration", "torque_rate"):
            if not actuator.get(name, 0) >= 0:
                raise ValueError(f"the {name} of {actuator['name']} is {actuator[name]}")
    return Spec(
        name=facts["name"],
        sensors=tuple(Sensor(**x) for x in facts["sensors"]),
        actuators=tuple(Actuator(**x) for x in facts["actuators"]),
        command=tuple(Channel(**x) for x in facts["command"]),
        control_dt=facts["control_dt"],
        physics_dt=facts["physics_dt"],
        max_tilt=facts["max_tilt"],
        action=tuple(Channel(**x) for x in facts.get("action", ())),
        memory=facts.get("memory", 0),
    )
