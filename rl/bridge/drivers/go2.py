"""A Unitree Go2: its states as a policy's sensors, a bridge's commands as its motors'.

Joints, IMU and motors are found by name.  docs/go2.md says what of it has been proven.
"""

import socket
import sys
import time
from collections import deque
from typing import Protocol

import numpy as np

from rl.bridge import wire
from rl.bridge.drivers import go2_wire as go2
from rl.bridge.drivers.go2_wire import LOW_CMD, LOW_STATE, MOTORS
from rl.bridge.wire import Command, Link, State
from rl.spec import Spec

PATIENCE_S = 10.0  # s for a first state
LISTEN_S = 2.0  # s in which nobody else may command its motors before we do
WRAP = 1 << 32  # ticks
ANEW_MS = 1000  # its clock went back by more than any state is late: it was switched on anew
LOST_MS, LOST_MOST = 100, 5  # ms in which a motor may not answer the robot so often
REMOTE = int(4 * go2.words(LOW_STATE, "wireless_remote")[0])  # byte at which its remote's begin
STOP = (REMOTE + 2, 1 << 5), (REMOTE + 3, 1 << 1)  # bits of its keys L2 and B
FOREIGN_MS = 1000  # ms after somebody else's last command in which motors count as failed
IMU = (
    ("gyro", "gyroscope", 3), ("orientation", "quaternion", 4),
    ("accelerometer", "accelerometer", 3),
)  # fmt: skip
# Of the sensors that it has: numbers, and where in a state they are.
SENSORS = {
    f"{motor}_{what}": (1, go2.words(LOW_STATE, f"motor_state.{field}", [i]))
    for what, field in (("pos", "q"), ("vel", "dq"))
    for i, motor in enumerate(MOTORS)
}
SENSORS |= {
    name: (size, go2.words(LOW_STATE, f"imu_state.{field}", size=size)) for name, field, size in IMU
}


def require(spec: Spec) -> None:
    """Raise ValueError unless this robot has all that a policy reads and writes."""
    if not spec.name.startswith("go2"):
        raise ValueError(f"This policy is one for {spec.name}, and this robot is a Go2.")
    for sensor in spec.sensors:
        if SENSORS.get(sensor.name, (0,))[0] != sensor.size:
            raise ValueError(f"A Go2 measures no {sensor.name!r}, which this policy reads.")
    if sorted(motor.name for motor in spec.actuators) != sorted(MOTORS):
        raise ValueError(f"A Go2 has the motors {', '.join(MOTORS)}, and this policy has others.")


class Codec:
    """How it speaks.  It remembers the last states, to count what lies between two."""

    name = "go2"

    def __init__(self, spec: Spec) -> None:
        require(spec)
        self.spec = spec
        self.sensed = np.concatenate([SENSORS[sensor.name][1] for sensor in spec.sensors])
        each = range(len(MOTORS))
        self.heats = 4 * go2.words(LOW_STATE, "motor_state.temperature", each)  # bytes
        self.losses = go2.words(LOW_STATE, "motor_state.lost", each)
        self.tick_at = go2.words(LOW_STATE, "tick")[0]
        ours = [MOTORS.index(motor.name) for motor in spec.actuators]
        self.q, self.dq, self.kp, self.kd = (
            go2.words(LOW_CMD, f"motor_cmd.{field}", ours) for field in ("q", "dq", "kp", "kd")
        )
        self.blank = np.frombuffer(blank(), "<f4")
        self.tick: int | None = None
        self.seq = self.ms = 0  # states, and ms of its clock, since the first
        self.lost: deque[tuple[int, np.ndarray]] = deque()  # ms, and answers that motors owe
        self.foreign = -FOREIGN_MS  # ms, when somebody else commanded its motors

    def state(self, datagram: bytes) -> State | None:
        if len(datagram) == go2.COMMAND_SIZE:  # which is none of ours
            self.foreign = self.ms
        if not is_state(datagram):
            return None
        counts = np.frombuffer(datagram, "<u4")
        seq = self._count(int(counts[self.tick_at]))
        heat = int(np.frombuffer(datagram, "u1")[self.heats].max())
        failed = self._loses(counts[self.losses]) or self.ms - self.foreign < FOREIGN_MS
        failed |= is_stop(datagram)
        readings = wire.by_name(self.spec, np.frombuffer(datagram, "<f4")[self.sensed])
        return State(seq, self.ms / 1e3, readings, False, False, float(heat), failed)

    def command(self, command: Command) -> bytes:
        numbers = self.blank.copy()
        if not command.damp:
            numbers[self.q], numbers[self.kp] = command.targets, command.kp
        numbers[self.dq], numbers[self.kd] = 0.0, command.kd
        return go2.signed(numbers.tobytes()[:-4])

    def _count(self, tick: int) -> int:
        """The number of a state; that of the last, or less, for one that is not newer."""
        before, since = self.tick, 0
        if before is not None:
            since = (tick - before + WRAP // 2) % WRAP - WRAP // 2
            if -ANEW_MS < since <= 0:
                return self.seq
        self.tick, self.ms = tick, self.ms + max(since, 0)
        self.seq += max(since // go2.TICK_MS, 1)
        return self.seq

    def _loses(self, lost: np.ndarray) -> bool:
        """A motor does not answer the robot."""
        self.lost.append((self.ms, lost.astype(np.int64)))
        while self.lost[0][0] < self.ms - LOST_MS:
            self.lost.popleft()
        return bool((self.lost[-1][1] - self.lost[0][1] > LOST_MOST).any())


def is_state(datagram: bytes) -> bool:
    return len(datagram) == go2.STATE_SIZE and go2.is_whole(datagram)


def is_stop(datagram: bytes) -> bool:
    """A state in which the remote's L2 and B are pressed, with which its makers damp it, too."""
    return all(datagram[at] & bit for at, bit in STOP)


def blank() -> bytes:
    """A command that moves nothing: motors on, without a target, a speed or gains."""
    command = np.zeros(1, LOW_CMD)
    command["head"], command["level_flag"] = go2.HEAD, go2.LOW_LEVEL
    motors = command["motor_cmd"]
    motors["mode"], motors["q"], motors["dq"] = go2.SERVO, go2.POS_STOP, go2.VEL_STOP
    return go2.signed(command.tobytes()[:-4])


def network(text: str) -> tuple[str, int]:
    """Interface and domain, of INTERFACE or INTERFACE/DOMAIN."""
    name, _, domain = text.partition("/")
    there = [name for _, name in socket.if_nameindex()]
    if name not in there:
        raise ValueError(f"There is no network interface {name!r}; there are {', '.join(there)}.")
    if domain and not (domain.isdigit() and int(domain) <= 232):
        raise ValueError(f"{domain!r} is no domain of DDS: it is a number up to 232.")
    return name, int(domain or 0)


class Transport(Protocol):
    """What carries its datagrams."""

    name: str  # of the robot's end, in words

    def call(self) -> None: ...
    def receive(self) -> list[bytes]: ...
    def send(self, datagram: bytes) -> None: ...
    def close(self) -> None: ...


class Udp:
    """The same bytes as datagrams, for tests and for who has no DDS.

    An empty datagram asks a robot to say how it is to who sent it.
    """

    def __init__(self, peer: tuple[str, int]) -> None:
        self.link, self.name = Link(("0.0.0.0", 0), peer), "{}:{}".format(*peer)
        self.receive, self.send, self.close = self.link.drain, self.link.send_raw, self.link.close

    def call(self) -> None:
        self.link.send_raw(b"")


class Go2:
    """The wire to it."""

    def __init__(self, spec: Spec, transport: Transport) -> None:
        self.codec, self.transport, self.rate = Codec(spec), transport, float(go2.HZ)
        self.waits = self.episodes = False
        self.gone = ""
        self.send, self.close = transport.send, transport.close
        self.listens = False
        self.told = ""  # why it is damped, where a bridge cannot know

    def meet(self) -> None:
        """Hear it; ValueError if it says nothing, what we cannot read, or is commanded already."""
        began, heard, torn = time.monotonic(), 0.0, False
        while time.monotonic() - (heard or began) < (LISTEN_S if heard else PATIENCE_S):
            self.transport.call()
            for datagram in self.transport.receive():
                if len(datagram) == go2.COMMAND_SIZE:
                    raise ValueError(
                        f"Somebody else commands the motors of the Go2 at {self.transport.name}: "
                        "end its sport mode, and other programs, first (docs/go2.md)."
                    )
                whole = is_state(datagram)
                heard, torn = heard or whole * time.monotonic(), torn or not whole
            time.sleep(0.05)
        if not heard:
            what = "only states with a wrong checksum came" if torn else "no state came"
            raise ValueError(
                f"No Go2 at {self.transport.name}: {what} within {PATIENCE_S:.0f} s. Is it on, and "
                "is this its network?"
            )

    def receive(self) -> list[bytes]:
        """What it has said since the last call, and commands of others."""
        found = self.transport.receive()
        if not self.listens:  # what came while nobody listened is old, and too much for a wire
            while more := self.transport.receive():
                found = more
            self.listens, found = True, found[-1:]
        why = max(map(_trouble, found), default="")
        if why and not self.told:
            print(f"error: {why}", file=sys.stderr, flush=True)
        self.told = self.told or why
        return found


def _trouble(datagram: bytes) -> str:
    if len(datagram) == go2.COMMAND_SIZE:
        return "Somebody else commands its motors, too."
    stops = len(datagram) == go2.STATE_SIZE and is_stop(datagram)
    return "Its remote says stop." if stops else ""
