"""What a simulated robot writes of its wire, made up: nothing in it is wrong unless planted."""

import copy
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl.bridge.referee import Verdict, judge

Scene = tuple[int, list["Frame"]]  # ticks in a period, and each tick of a file
CODE, PERIOD, A = "00112233445566ff", 0.02, 4
SPEED, BEND, SOFT = 4.0, 100.0, 1.0  # rad/s, rad/s^2, s
STEP, LIMIT = 0.9 * SPEED * PERIOD, 0.8 * 50.0  # rad in a period, N m
RELEASED = (3.0, 3.5)  # s
RESET = 5.5  # s
PLANT = 2.5  # s: nothing moves then


@dataclass
class Frame:
    """One tick before it is packed."""

    time: float
    target: np.ndarray
    kp: np.ndarray
    kd: np.ndarray
    joint: np.ndarray
    velocity: np.ndarray
    damped: bool = False
    silent: bool = False
    heard: bool = True  # a state was sent
    reset: bool = False
    quaternion: list[float] = field(default_factory=lambda: [1.0, 0.0, 0.0, 0.0])
    noise: list[bytes] = field(default_factory=list)
    extra: list[bytes] = field(default_factory=list)  # commands before the frame's own
    sequence: int = 0
    truth: dict[str, Any] = field(default_factory=dict)  # whatever its sensors say


def pack(kind: int, flags: int, sequence: int, numbers: Any, code: str = CODE) -> bytes:
    body = struct.pack("<4sBBH8sQd", b"rrlb", 2, kind, flags, bytes.fromhex(code), sequence, 0.5)
    body += np.asarray(numbers, "<f4").tobytes()
    return body + struct.pack("<I", zlib.crc32(body))


def header(window: int, **change: Any) -> dict[str, Any]:
    motor = {"low": -1.0, "high": 1.0, "rest": 0.0, "kp": 100.0, "kd": 2.0, "torque": 50.0}
    motor |= {"speed": SPEED, "torque_rate": 0.0}
    motors = [
        motor
        | {"name": f"m{i}", "acceleration": BEND * (i % 2)}
        | {"position": f"q{i}", "velocity": f"v{i}"}
        for i in range(A)
    ]
    sensors = [{"name": "orientation", "size": 4}, {"name": "gyro", "size": 3}]
    sensors += [{"name": f"{key}{i}", "size": 1} for i in range(A) for key in "qv"]
    spec = {"control_dt": PERIOD, "max_tilt": 60.0, "sensors": sensors, "command": ["x", "y"]}
    spec |= {"hash": CODE, "actuators": motors}
    limits = {"speed": 0.9, "torque": 0.8, "acceleration": 0.5, "damping": 1.5}
    limits |= {"state_age": 0.1, "max_tilt": 50.0, "beyond": 0.1}
    top = {"spec": spec, "limits": limits, "rate": window / PERIOD, "released": [list(RELEASED)]}
    return top | {"expect": []} | change


def command(frame: Frame) -> bytes:
    numbers = np.concatenate([frame.target, frame.kp, frame.kd, [0.3, 0.4]])
    return pack(2, 2 * frame.damped + 32768, 7, numbers)


def state(frame: Frame, sequence: int | None = None) -> bytes:
    joints = np.stack([frame.joint, frame.velocity], 1).ravel()
    numbers = [*frame.quaternion, 0, 0, 0, *joints, 36.6]
    return pack(1, 0, frame.sequence if sequence is None else sequence, numbers)


def lines(top: dict[str, Any], frames: list[Frame]) -> list[str]:
    rows = [json.dumps(top)]
    for t, frame in enumerate(frames):
        sent = [*([state(frame)] if frame.heard else []), *frame.noise]
        got = [*frame.extra, *([] if frame.silent else [command(frame)])]
        row = {"t": t, "time": frame.time, "qpos": [], "qvel": [], "reset": frame.reset}
        row |= {"sent": [data.hex() for data in sent], "got": [data.hex() for data in got]}
        rows.append(json.dumps(row | frame.truth))
    return rows


def course(now: float) -> float:
    """Where the motors are told to be: still, a sinusoid from 1.2 to 2.2 s, still."""
    phase = np.clip(now - 1.2, 0.0, 1.0)
    return 0.1 + 0.2 * np.sin(np.pi * phase) ** 2


def clean(window: int) -> list[Frame]:
    """Soft start, sinusoid, hold, damped from 2.8 s, released at 3.2 s, silent, reset at 5.5 s."""
    rate, frames, loose = window / PERIOD, [], 0.0
    joint = np.full(A, 0.1)
    for t in range(round(7.0 * rate)):
        now = t / rate
        reset = t == round(RESET * rate)
        damped, silent = 2.8 <= now < 3.2, 4.8 <= now < 4.9
        loose = now if damped or silent or reset else loose
        share = min(1.0, (now - loose) / SOFT)
        target = np.full(A, course(now - RESET if now >= RESET else now))
        frame = Frame(
            now,
            target,
            np.full(A, 100.0 * share),
            np.full(A, 2.0 * share),
            joint,
            np.zeros(A),
            damped,
            silent,
            reset=reset,
            sequence=t % round(RESET * rate),
        )
        if damped:
            frame.kp, frame.kd = np.zeros(A), np.full(A, 1.5)
        frames.append(frame)
        joint = target
    return frames


def run(
    scene: tuple[int, list[Frame]], plant: Callable[[list[Frame], int], None], **change: Any
) -> Verdict:
    """The verdict after the plant changed a copy of the frames, given the tick of PLANT."""
    window, frames = scene[0], copy.deepcopy(scene[1])
    plant(frames, round(PLANT * window / PERIOD))
    return judge(lines(header(window, **change), frames))


def shift(frames: list[Frame], start: int, motor: int, by: float) -> None:
    """A jump of a motor's target that stays, up to the damped command; the joint follows."""
    for frame in frames[
        start : start + 1 + next(i for i, frame in enumerate(frames[start:]) if frame.damped)
    ]:
        frame.joint = frame.joint + np.eye(A)[motor] * by * (frame is not frames[start])
        frame.target = frame.target + np.eye(A)[motor] * by


def only(verdict: Verdict, rule: str, caught: bool = True) -> None:
    assert set(verdict.violations) == ({rule} if caught else set()), verdict.first
