"""How a Franka arm and its hand speak: what was read of them and what is set, in fixed structs.

Pure functions to and from bytes, so that a flight's log has all of it and is lived through again
where there is no robot, and no library of its maker.  Who reads and sets is franka.py.
"""

import struct
from typing import Any, NamedTuple

import numpy as np

from rl.bridge.wire import Command, State
from rl.spec import Sensor, Spec

ARM = tuple(f"joint{i}" for i in range(1, 8))
FINGERS = "finger1", "finger2"  # both are half as wide as the hand is open
SENSORS = {f"{name}_{what}" for name in (*ARM, *FINGERS) for what in ("pos", "vel")} | {
    "tool_pos", "tool_quat",
}  # fmt: skip
# envs/manipulation/panda.py: where the tool is in the flange's frame, turned by an eighth about z;
TOOL_AT, TOOL_TURN = (0.0, 0.0, 0.1), (np.cos(np.pi / 8), 0.0, 0.0, -np.sin(np.pi / 8))
# and N m s/rad that its joints have besides kd.  A Franka's own controller takes friction away.
DAMPING = np.array([40.0, 40.0, 40.0, 40.0, 2.0, 2.0, 2.0])
# rad that targets stay within: what both a Panda (FER) and an FR3 can, less a margin.
LOW = np.array([-2.7501, -1.7628, -2.8973, -3.0481, -2.8101, 0.54092, -2.8973]) + 0.05
HIGH = np.array([2.7501, 1.7628, 2.8973, -0.1458, 2.8101, 3.7525, 2.8973]) - 0.05
# Size and version; seq, time; q, dq, tau; flange; width, its speed, told; success; errors; mode,
# broke, hand.
READ = struct.Struct("<HQd7d7d7d7d3ddQBBB")
# Size and version; seq, flags; targets, stiffness, damping; width, force.
SET = struct.Struct("<HQB7d7d7d2d")
READ_1, SET_1 = (READ.size << 4) + 1, (SET.size << 4) + 1
DAMP, CLEAR = 1, 2
IDLE, MOVE = 1, 2  # modes of libfranka's, in which it is well
MOST_FORCE = 70.0  # N, that the hand keeps up
NEAR = 0.003  # m, of its width: less is where it was told to be


class Read(NamedTuple):
    """What was read of the robot."""

    seq: int
    time: float  # s, the robot's
    q: Any  # [7] rad
    dq: Any  # [7] rad/s
    tau: Any  # [7] N m
    flange: Any  # [7] x y z, m, and w x y z, in the frame of the arm's base
    width: float  # m between the fingertips
    speed: float  # m/s of that
    told: float  # m, where it is wanted to be
    success: float  # share of the last 100 commands that came in time
    errors: int  # a bit for each of libfranka's, by the alphabet
    mode: int  # libfranka's RobotMode
    broke: bool  # its motion ended by itself
    hand: bool  # the hand answers


class Set(NamedTuple):
    """What is to be set."""

    seq: int
    damp: bool
    clear: bool  # an operator says that its errors are to be forgotten
    targets: Any  # [7] rad
    stiffness: Any  # [7] N m/rad
    damping: Any  # [7] N m s/rad
    width: float  # m
    force: float  # N, that the hand may close with


def pack_read(read: Read) -> bytes:
    return READ.pack(
        READ_1, read.seq, read.time, *read.q, *read.dq, *read.tau, *read.flange, read.width,
        read.speed, read.told, read.success, read.errors, read.mode, read.broke, read.hand,
    )  # fmt: skip


def unpack_read(datagram: bytes) -> Read | None:
    """None of what is none of ours."""
    if len(datagram) != READ.size:
        return None
    head, seq, time, *numbers, success, errors, mode, broke, hand = READ.unpack(datagram)
    if head != READ_1:
        return None
    q, dq, tau, flange, (width, speed, told) = np.split(np.array(numbers), (7, 14, 21, 28))
    flags = bool(broke), bool(hand)
    return Read(
        seq, time, q, dq, tau, flange, width, speed, told, success, errors, mode, *flags
    )  # fmt: skip


def unpack_set(datagram: bytes) -> Set:
    _, seq, flags, *numbers = SET.unpack(datagram)
    targets, stiffness, damping, (width, force) = np.split(np.array(numbers), (7, 14, 21))
    damp, clear = (bool(flags & flag) for flag in (DAMP, CLEAR))
    return Set(seq, damp, clear, targets, stiffness, damping, width, force)


class Codec:
    """Readings and commands of a spec, in the structs of a Franka."""

    name = "franka"

    def __init__(self, spec: Spec) -> None:
        self.spec, self.others = spec, foreign(spec)
        self.size = READ.size + 4 * sum(sensor.size for sensor in self.others)

    def state(self, datagram: bytes) -> State | None:
        read = unpack_read(datagram[: READ.size])
        if read is None or len(datagram) != self.size:
            return None
        of = dict(zip(("tool_pos", "tool_quat"), tool(read.flange), strict=True))
        of |= {f"{name}_pos": x for name, x in zip(ARM, read.q, strict=True)}
        of |= {f"{name}_vel": x for name, x in zip(ARM, read.dq, strict=True)}
        # Policies know no hand that stands beside where it was told to be.
        stands = abs(read.width - read.told) < NEAR
        width, speed = (read.told, 0.0) if stands else (read.width, read.speed)
        of |= {f"{name}_pos": width / 2 for name in FINGERS}
        of |= {f"{name}_vel": speed / 2 for name in FINGERS}
        at = READ.size
        for sensor in self.others:
            of[sensor.name] = np.frombuffer(datagram, "<f4", sensor.size, at)
            at += 4 * sensor.size
        readings = {s.name: np.atleast_1d(of[s.name]).astype("<f4") for s in self.spec.sensors}
        failed = read.broke or not read.hand or read.errors != 0 or read.mode not in (IDLE, MOVE)
        return State(read.seq, read.time, readings, reset=False, failed=failed)

    def command(self, command: Command) -> bytes:
        flags, finger = DAMP * command.damp | CLEAR * command.clear, self.spec.actuators[-1]
        # As hard as its motor could have pulled on what is as wide as the hand opens.
        force = min(finger.kp * (finger.high - finger.low), finger.torque, MOST_FORCE)
        return SET.pack(
            SET_1, command.seq, flags, *np.clip(command.targets[:7], LOW, HIGH), *command.kp[:7],
            *(command.kd[:7] + DAMPING), 2 * command.targets[7], force,
        )  # fmt: skip


def foreign(spec: Spec) -> list[Sensor]:
    """What an arm does not measure of itself."""
    return [sensor for sensor in spec.sensors if sensor.name not in SENSORS]


def check(spec: Spec, told: bool) -> None:
    """Raise ValueError unless a Franka arm with its hand moves what `spec` names, and measures it,
    or is `told` of it."""
    motors = [motor.name for motor in spec.actuators]
    if motors != [*ARM, FINGERS[0]]:
        raise ValueError(
            f"{spec.name} moves {', '.join(motors)}; a Franka arm has {', '.join(ARM)}, and its "
            f"hand {FINGERS[0]}."
        )
    others = [sensor.name for sensor in foreign(spec)]
    if others and not told:
        raise ValueError(
            f"{spec.name} reads {', '.join(others)}, which no Franka arm measures of itself: have "
            "a program of yours say it, and name with --sensors where (docs/franka.md)."
        )
    if told and not others:
        raise ValueError(f"--sensors: a Franka arm measures itself all that {spec.name} reads.")


def tool(flange: Any) -> tuple[np.ndarray, np.ndarray]:
    """Position [3], m, and quaternion [4] of the point between the fingertips."""
    w, x, y, z = flange[3:]
    turned = np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip
    a, _, _, d = TOOL_TURN
    turn = np.array([w * a - z * d, x * a + y * d, y * a - x * d, z * a + w * d])
    return flange[:3] + turned @ TOOL_AT, turn
