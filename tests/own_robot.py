"""A simulated robot that the bridge can drive, in the standard library alone: an example to copy.

    python own_robot.py HOST:PORT FACTS.json RATE

It waits at HOST:PORT and speaks RATE ticks a second to the bridge it has. FACTS.json is the spec,
as the bridge's HELLO has it, and its hash besides, as `"hash": "<16 hex digits>"`. To drive motors
instead of numbers, replace Joint and Robot.sense; the rest is the protocol of docs/udp.md.
"""

import contextlib
import json
import math
import select
import signal
import socket
import struct
import sys
import time
import zlib

HELLO, STATE, COMMAND, BYE = range(4)  # kinds
DAMPED, REFUSED = 2, 512  # flags
START = b"rrlb\x02"  # with the version
HEAD = struct.Struct("<5sBH8sQd")
SILENCE, GONE = 0.1, 1.0  # s, without a command and without a word
SUBSTEP = 0.001  # s, of the simulated joints
LEVEL = [1.0, 0.0, 0.0, 0.0]  # w x y z
CONSTANTS = {"orientation": LEVEL, "tool_quat": LEVEL, "up": [0.0, 0.0, 1.0]}
Address = tuple[str, int]


class Joint:
    """A mass on its own, and the motor that moves it."""

    def __init__(self, facts: dict):
        self.facts = facts
        self.inertia = max(facts["kp"] / 40**2, facts["kd"] / 100, 1e-6)  # stable in a SUBSTEP
        self.position, self.velocity, self.clock = facts["rest"], 0.0, time.monotonic()
        self.follow(self.position, 0.0, facts["kd"])

    def follow(self, target: float, kp: float, kd: float) -> None:
        self.target = min(max(target, self.facts["low"]), self.facts["high"])
        self.kp, self.kd = kp, kd

    def simulate(self, now: float) -> None:
        most = self.facts["torque"]
        while self.clock < now:
            torque = self.kp * (self.target - self.position) - self.kd * self.velocity
            self.velocity += SUBSTEP * min(max(torque, -most), most) / self.inertia
            self.position += SUBSTEP * self.velocity
            self.clock += SUBSTEP


class Robot:
    def __init__(self, address: Address, facts: dict, rate: float):
        self.facts, self.rate, self.hash = facts, rate, bytes.fromhex(facts["hash"])
        self.joints = [Joint(actuator) for actuator in facts["actuators"]]
        self.command = struct.Struct(f"<{3 * len(self.joints) + len(facts['command'])}f")
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind(address)
        self.bridge: Address | None = None
        self.stated = self.obeyed = 0  # numbers: of the last state, of the newest command's
        self.start = time.monotonic()
        self.damps_at = self.leaves_at = math.inf  # unless something is heard until then

    def run(self) -> None:
        """Tick n is at start + n / rate, whatever came before; a tick that was missed is left."""
        tick = 0
        while True:
            ticks_at = self.start + tick / self.rate
            due = min(ticks_at, self.damps_at, self.leaves_at)
            select.select([self.socket], [], [], max(due - time.monotonic(), 0.0))
            for joint in self.joints:
                joint.simulate(time.monotonic())
            self.hear()
            now = time.monotonic()
            if now >= self.damps_at:
                self.damp()
                print("damped", flush=True)
            if self.bridge and now >= self.leaves_at:
                self.leave(self.bridge)
            if now >= ticks_at:
                tick = max(tick, math.floor((now - self.start) * self.rate)) + 1
                if self.bridge:
                    self.state(self.bridge, now - self.start)

    def state(self, bridge: Address, clock: float) -> None:
        self.stated += 1
        numbers = [number for sensor in self.facts["sensors"] for number in self.sense(sensor)]
        content = struct.pack(f"<{len(numbers) + 1}f", *numbers, 0.0)  # no thermometer
        self.say(bridge, STATE, clock, content, number=self.stated)

    def sense(self, sensor: dict) -> list[float]:
        name, noise = sensor["name"], 1e-6 * (self.stated % 2)  # no real sensor stands still
        numbers = [joint.position for joint in self.joints if joint.facts.get("position") == name]
        numbers += [joint.velocity for joint in self.joints if joint.facts.get("velocity") == name]
        numbers = numbers or CONSTANTS.get(name) or [0.0] * sensor["size"]
        return [number + noise for number in numbers]

    def say(self, to: Address, kind: int, clock=0.0, content=b"", flags=0, number=0) -> None:
        data = HEAD.pack(START, kind, flags, self.hash, number, clock) + content
        with contextlib.suppress(OSError):  # lost, as any datagram may be
            self.socket.sendto(data + zlib.crc32(data).to_bytes(4, "little"), to)

    def hear(self) -> None:
        """Heed all that waits, before silence is judged; but a flood does not stop the clock."""
        with contextlib.suppress(OSError):  # nothing waits
            for _ in range(100):
                self.heed(*self.socket.recvfrom(65_000))

    def heed(self, data: bytes, sender: Address) -> None:
        data, crc = data[:-4], data[-4:]
        if len(data) < HEAD.size or zlib.crc32(data) != int.from_bytes(crc, "little"):
            return
        start, kind, flags, spec, number, _ = HEAD.unpack_from(data)
        if (start, spec, sender) == (START, self.hash, self.bridge):
            self.leaves_at = time.monotonic() + GONE
        elif (start, kind) != (START, HELLO):
            return
        if kind == HELLO:
            self.greet(sender, spec)
        elif kind == COMMAND:
            self.obey(number, flags, data[HEAD.size :])
        elif kind == BYE:
            self.leave(sender)

    def greet(self, sender: Address, spec: bytes) -> None:
        why = ""
        if spec != self.hash:
            why = f"this robot's spec is {self.hash.hex()}, not {spec.hex()}"
        elif self.bridge not in (None, sender):
            why = "this robot has another bridge"
        elif not self.bridge:
            print("meets {}:{}".format(*sender), flush=True)
            self.bridge, self.leaves_at = sender, time.monotonic() + GONE
            self.obeyed = self.stated + 1  # the states said before were not for this bridge
        if why:
            print("refused {}:{}".format(*sender), flush=True)
        self.say(sender, HELLO, self.rate, why.encode(), REFUSED if why else 0)

    def obey(self, number: int, flags: int, content: bytes) -> None:
        """Follow a command, if it is whole, and answers no older state than the newest one did."""
        if len(content) != self.command.size or not self.obeyed <= number <= self.stated:
            return
        numbers = self.command.unpack(content)
        if not all(map(math.isfinite, numbers)):
            return
        damped, count = flags & DAMPED != 0, len(self.joints)
        if not damped and self.damps_at == math.inf:
            print("follows", flush=True)
        self.obeyed = number
        self.damps_at = math.inf if damped else time.monotonic() + SILENCE
        for i, joint in enumerate(self.joints):
            target, kp, kd = numbers[i : 3 * count : count]
            joint.follow(target, 0.0 if damped else kp, kd)

    def damp(self) -> None:
        self.damps_at = math.inf
        for joint in self.joints:
            joint.follow(joint.position, 0.0, joint.facts["kd"])

    def leave(self, bridge: Address) -> None:
        self.damp()
        self.bridge, self.leaves_at = None, math.inf
        print("left {}:{}".format(*bridge), flush=True)


def main(address: str, facts: str, rate: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    host, _, port = address.rpartition(":")
    with open(facts, encoding="utf-8") as file:
        robot = Robot((host, int(port)), json.load(file), float(rate))
    try:
        robot.run()
    finally:  # after SIGTERM, Ctrl-C and a fault of its own
        robot.damp()
        if robot.bridge:
            robot.say(robot.bridge, BYE)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit("python own_robot.py HOST:PORT FACTS.json RATE")
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
