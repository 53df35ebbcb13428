"""A Go2's messages over DDS, as their CDR is, with no object made of them.

The types that DDS compares are made of the same layouts (go2_wire).
"""

import contextlib
from typing import Any

import numpy as np
from cyclonedds import idl
from cyclonedds.core import DDSException
from cyclonedds.domain import Domain, DomainParticipant
from cyclonedds.idl import annotations, types
from cyclonedds.internal import InvalidSample
from cyclonedds.pub import DataWriter
from cyclonedds.qos import Policy, Qos
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic

from rl.bridge.drivers import go2_wire as go2
from rl.bridge.drivers.go2 import network
from rl.bridge.wire import DRAINED

COMMANDS, STATES = "rt/lowcmd", "rt/lowstate"  # topics
TYPES = {
    go2.IMU: "IMUState_", go2.MOTOR_STATE: "MotorState_", go2.BMS_STATE: "BmsState_",
    go2.LOW_STATE: "LowState_", go2.MOTOR_CMD: "MotorCmd_", go2.BMS_CMD: "BmsCmd_",
    go2.LOW_CMD: "LowCmd_",
}  # fmt: skip
SCALARS: dict[str, Any] = {
    "u1": types.uint8, "u2": types.uint16, "u4": types.uint32, "i2": types.int16,
    "i4": types.int32, "f4": types.float32,
}  # fmt: skip
# Ends are found by multicast, on this interface alone, and then spoken to one by one.
CONFIG = """<CycloneDDS><Domain Id="any">
<General><Interfaces><NetworkInterface name="{}"/></Interfaces>
<AllowMulticast>spdp</AllowMulticast></General></Domain></CycloneDDS>"""
# A writer that waits for nobody, whom readers of either kind hear; the newest alone is sent.
WRITES = Qos(Policy.Reliability.Reliable(0), Policy.History.KeepLast(1))
READS = Policy.Reliability.BestEffort, Policy.History.KeepLast(DRAINED)


def message_type(dtype: np.dtype) -> Any:
    """What cyclonedds takes for a type whose messages come and go as bytes."""

    class Message:
        __idl__ = _struct(dtype).__idl__

        def __init__(self, body: bytes) -> None:
            self.body = body

        def serialize(self, **_: Any) -> bytes:
            return self.body

        @classmethod
        def deserialize(cls, body: bytes) -> "Message":
            return cls(body)

        deserialize_key = deserialize  # of a writer's goodbye

    return Message


def _struct(dtype: np.dtype) -> Any:
    fields = {}
    for name, (kind, *_) in (dtype.fields or {}).items():
        base, shape = kind.subdtype or (kind, ())
        each = _struct(base) if base in TYPES else SCALARS[base.str[1:]]
        fields[name] = types.array[each, shape[0]] if shape else each
    made = idl.make_idl_struct(TYPES[dtype], f"unitree_go.msg.dds_.{TYPES[dtype]}", fields)
    return annotations.autoid("sequential")(annotations.final(made))


class Dds:
    """One end: that of who commands a robot, or, if it `serves`, the robot's."""

    def __init__(self, text: str, serves: bool = False) -> None:
        interface, number = network(text)
        self.name = f"{interface}, domain {number}"
        try:
            self.domain = Domain(number, CONFIG.format(interface))
            self.participant = DomainParticipant(number)
        except DDSException as error:
            raise ValueError(f"DDS cannot begin on {self.name}: {error.msg}.") from error
        command, state = (message_type(x) for x in (go2.LOW_CMD, go2.LOW_STATE))
        commands = Topic(self.participant, COMMANDS, command)
        states = Topic(self.participant, STATES, state)
        self.message = state if serves else command
        self.writer = DataWriter(self.participant, states if serves else commands, WRITES)
        # Commands of all but ourselves.
        others = Qos(*READS, Policy.IgnoreLocal.Participant)
        self.readers = [DataReader(self.participant, commands, others)]
        if not serves:
            self.readers.append(DataReader(self.participant, states, Qos(*READS)))

    def call(self) -> None:
        """It is found without."""

    def receive(self) -> list[bytes]:
        """All that came since the last call, as C has it."""
        heard = (x for reader in self.readers for x in reader.take(DRAINED))
        return [go2.from_cdr(x.body) for x in heard if not isinstance(x, InvalidSample)]

    def send(self, datagram: bytes) -> None:
        """What cannot be sent at once is lost."""
        with contextlib.suppress(DDSException):
            self.writer.write(self.message(go2.to_cdr(datagram)))

    def close(self) -> None:
        for entity in (self.writer, *self.readers, self.participant, self.domain):
            entity._delete(entity._ref)  # type: ignore[operator]
