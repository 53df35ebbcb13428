"""What went over a simulated robot's wire, tick by tick, as its referee reads it.

Of the bridge nothing is used here, nor of the robot: datagrams are taken apart by what is written
of them.
"""

import json
import math
import struct
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

HEAD = struct.Struct("<4sBBH8sQd")
MAGIC, VERSION, STATE, COMMAND, DAMPED = b"rrlb", 2, 1, 2, 2


class Log(NamedTuple):
    """The ticks, with the newest state of the episode; a command is damped or else active."""

    time: np.ndarray  # [T] s
    reset: np.ndarray  # [T]
    received: np.ndarray  # [T] s, when the newest state came
    readings: dict[str, np.ndarray]  # [T, size] of each sensor, and "" for nan [T, 1]
    joints: np.ndarray  # [T, A] rad, as they truly are, whatever sensors say; nan where not told
    lean: np.ndarray  # [T] degrees, likewise
    damped: np.ndarray  # [T]
    active: np.ndarray  # [T]
    numbers: np.ndarray  # [T, 3, A]: targets in rad, kp in N m / rad, kd in N m s / rad
    odd: np.ndarray  # [T, 3], how many: garbled, datagrams too many, numbers not finite


def _decode(data: bytes, kind: int, code: bytes, count: int) -> tuple[int, int, np.ndarray] | None:
    """Flags, sequence number and count numbers of a datagram; None if it is not such a one."""
    if len(data) != HEAD.size + 4 * count + 4:
        return None
    magic, version, its_kind, flags, its_code, sequence, _ = HEAD.unpack_from(data)
    known = (magic, version, its_kind, its_code) == (MAGIC, VERSION, kind, code)
    if not known or zlib.crc32(data[:-4]) != int.from_bytes(data[-4:], "little"):
        return None
    return flags, sequence, np.frombuffer(data, "<f4", count, HEAD.size).astype(float)


def log_of(spec: dict[str, Any], lines: Iterable[str]) -> Log:
    """The ticks of a file's lines after its first; ValueError of a line that is none."""
    motors, code = len(spec["actuators"]), bytes.fromhex(spec["hash"])
    sizes = [sensor["size"] for sensor in spec["sensors"]]
    size, count, rows = sum(sizes) + 1, 3 * motors + len(spec["command"]), []
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
            now, reset = float(row["time"]), bool(row["reset"]) or number == 0
            sent, got = ([bytes.fromhex(data) for data in row[key]] for key in ("sent", "got"))
            joints = [float(x) for x in row.get("joints", [math.nan] * motors)]
            lean = float(row.get("lean", math.nan))
            if row["t"] != number or len(joints) != motors:
                raise ValueError(f"tick {row['t']} in place of {number}, {len(joints)} joints")
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number + 2} is no tick: {error}") from error
        if reset:
            sequence, received, readings = -1, -math.inf, np.full(size, np.nan)
        for state in filter(None, (_decode(data, STATE, code, size) for data in sent)):
            if state[1] > sequence and np.isfinite(state[2][:-1]).all():
                (_, sequence, readings), received = state, now
                readings[-1] = np.nan  # the heat's place serves motors without sensors
        commands = list(filter(None, (_decode(data, COMMAND, code, count) for data in got)))
        flags, _, numbers = commands[-1] if commands else (0, 0, np.full(count, np.nan))
        infinite = count - int(np.isfinite(numbers).sum())
        odd = len(got) - len(commands), len(got) - 1, infinite if commands else 0
        numbers = np.where(infinite, np.nan, numbers[: 3 * motors]).reshape(3, motors)
        kind = bool(flags & DAMPED and not infinite), not (flags & DAMPED or infinite)
        rows.append((now, reset, received, readings, joints, lean, *kind, numbers, odd))
    if not rows:
        raise ValueError("it has no tick")
    time, reset, received, readings, *rest = map(np.array, zip(*rows, strict=True))
    names = [*(sensor["name"] for sensor in spec["sensors"]), ""]
    parts = dict(zip(names, np.split(readings, np.cumsum(sizes), axis=1), strict=True))
    return Log(time, reset, received, parts, *rest)
