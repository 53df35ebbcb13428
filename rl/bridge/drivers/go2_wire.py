"""What a Unitree Go2 says and hears, byte by byte: LowState and LowCmd as its makers' C has them.

Layout, numbers and checksum are those of unitree_sdk2 (include/unitree/idl/go2, example/go2).  Over
DDS the same fields go as CDR, which lays out no struct: it has less padding, in one place.
"""

import zlib
from collections.abc import Sequence

import numpy as np

LEGS, JOINTS = ("FR", "FL", "RR", "RL"), ("hip", "thigh", "calf")
MOTORS = tuple(f"{leg}_{joint}" for leg in LEGS for joint in JOINTS)  # in their order
LOW_LEVEL, SERVO = 0xFF, 1  # who commands: motors one by one; a motor's mode
HEAD = 0xFE, 0xEF
POS_STOP, VEL_STOP = 2.146e9, 16000.0  # a target and a speed that are none
HZ, TICK_MS = 500, 2  # states a second, and how far apart their ticks are


def _struct(*fields: tuple[object, ...]) -> np.dtype:
    return np.dtype(list(fields), align=True)


IMU = _struct(
    ("quaternion", "<f4", 4), ("gyroscope", "<f4", 3), ("accelerometer", "<f4", 3),
    ("rpy", "<f4", 3), ("temperature", "u1"),
)  # fmt: skip
MOTOR_STATE = _struct(
    ("mode", "u1"), ("q", "<f4"), ("dq", "<f4"), ("ddq", "<f4"), ("tau_est", "<f4"),
    ("q_raw", "<f4"), ("dq_raw", "<f4"), ("ddq_raw", "<f4"), ("temperature", "u1"),
    ("lost", "<u4"), ("reserve", "<u4", 2),
)  # fmt: skip
BMS_STATE = _struct(
    ("version_high", "u1"), ("version_low", "u1"), ("status", "u1"), ("soc", "u1"),
    ("current", "<i4"), ("cycle", "<u2"), ("bq_ntc", "u1", 2), ("mcu_ntc", "u1", 2),
    ("cell_vol", "<u2", 15),
)  # fmt: skip
MOTOR_CMD = _struct(
    ("mode", "u1"), ("q", "<f4"), ("dq", "<f4"), ("tau", "<f4"), ("kp", "<f4"), ("kd", "<f4"),
    ("reserve", "<u4", 3),
)  # fmt: skip
BMS_CMD = _struct(("off", "u1"), ("reserve", "u1", 3))
_FRONT = (
    ("head", "u1", 2), ("level_flag", "u1"), ("frame_reserve", "u1"), ("sn", "<u4", 2),
    ("version", "<u4", 2), ("bandwidth", "<u2"),
)  # fmt: skip
LOW_STATE = _struct(
    *_FRONT, ("imu_state", IMU), ("motor_state", MOTOR_STATE, 20), ("bms_state", BMS_STATE),
    ("foot_force", "<i2", 4), ("foot_force_est", "<i2", 4), ("tick", "<u4"),
    ("wireless_remote", "u1", 40), ("bit_flag", "u1"), ("adc_reel", "<f4"),
    ("temperature_ntc1", "u1"), ("temperature_ntc2", "u1"), ("power_v", "<f4"),
    ("power_a", "<f4"), ("fan_frequency", "<u2", 4), ("reserve", "<u4"), ("crc", "<u4"),
)  # fmt: skip
LOW_CMD = _struct(
    *_FRONT, ("motor_cmd", MOTOR_CMD, 20), ("bms_cmd", BMS_CMD), ("wireless_remote", "u1", 40),
    ("led", "u1", 12), ("fan", "u1", 2), ("gpio", "u1"), ("reserve", "<u4"), ("crc", "<u4"),
)  # fmt: skip
STATE_SIZE, COMMAND_SIZE = LOW_STATE.itemsize, LOW_CMD.itemsize  # 1180 and 812 bytes

CDR = b"\x00\x01\x00\x00"  # what CDR begins with, little-endian
# Where the first motor's mode is, in bytes: a struct of C begins at a multiple of 4, and in CDR it
# follows what is before it at once.
MODE_AT, CDR_MODE_AT = {STATE_SIZE: 80, COMMAND_SIZE: 24}, {STATE_SIZE: 77, COMMAND_SIZE: 22}

_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def crc(body: bytes) -> int:
    """Of whole words: polynomial 0x04C11DB7 from the highest bit on, as the makers' loop has it.

    It is zlib's of the same bits in the other direction, and not inverted at the end.
    """
    bits = np.frombuffer(body, "<u4").byteswap().tobytes().translate(_REVERSED)
    backwards = (zlib.crc32(bits) ^ 0xFFFFFFFF).to_bytes(4, "little")
    return int.from_bytes(backwards.translate(_REVERSED), "big")


def signed(body: bytes) -> bytes:
    """`body`, which lacks its last word, with its checksum."""
    return body + crc(body).to_bytes(4, "little")


def is_whole(datagram: bytes) -> bool:
    """Its checksum is right, or was never filled in: a 0."""
    told = int.from_bytes(datagram[-4:], "little")
    return told in (0, crc(datagram[:-4]))


def words(dtype: np.dtype, path: str, rows: Sequence[int] = (0,), size: int = 1) -> np.ndarray:
    """Indices among the 4-byte words of a message of `size` numbers, of each of `rows`.

    `path` is a field, or one of a field: imu_state.gyroscope, motor_state.q.
    """
    offset, each, parent = 0, dtype, dtype
    for name in path.split("."):
        kind, at = (each.fields or {})[name][:2]  # type: ignore[index]
        offset, each, parent = offset + at, kind.base, each
    begins = (offset + parent.itemsize * np.array(rows)) // 4
    return (begins[:, None] + np.arange(size)).ravel()


def to_cdr(datagram: bytes) -> bytes:
    """What DDS sends of a LowState or a LowCmd."""
    at = MODE_AT[len(datagram)]
    body = bytearray(datagram[:at] + datagram[at + 4 :])
    body[CDR_MODE_AT[len(datagram)]] = datagram[at]
    return CDR + body


def from_cdr(message: bytes) -> bytes:
    """The LowState or LowCmd of what came over DDS; empty if it is neither."""
    body = message[len(CDR) :]
    size = len(body) + 4
    if size not in MODE_AT or message[:2] != CDR[:2]:
        return b""
    at, before = MODE_AT[size], CDR_MODE_AT[size]
    found = bytearray(body[:at] + bytes([body[before], 0, 0, 0]) + body[at:])
    found[before] = 0
    return bytes(found)
