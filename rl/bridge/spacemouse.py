"""A SpaceMouse: a cap that is pushed and turned six ways, read as Linux's hidraw has it.

Its reports are as others have published them of a SpaceNavigator, a SpaceMouse Wireless and an
Enterprise; axes and signs are those of the HID usage tables (x right, y to the user, z down), as
owners of both kinds confirm.  Not tried here, for want of a device: that it goes on reporting while
its cap is held still (if not, it counts as let go); which buttons of one with many are the first
two; which of a receiver's interfaces, where several are multi-axis, has the cap.
"""

import fcntl
import os
import stat
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rl.bridge.acting import GRIP, ONE
from rl.bridge.hand import share_of
from rl.bridge.pilot import AGAIN_S

PLACE = Path("/sys/class/hidraw")
VENDORS = 0x256F, 0x046D  # 3Dconnexion, and Logitech, whose it was
MULTI_AXIS = bytes((0x05, 0x01, 0x09, 0x08))  # how its collection begins, and no mouse's
INFO, FACTS = 0x80084803, struct.Struct("<IHH")  # HIDIOCGRAWINFO: bus, vendor, product
MOVED, TURNED, PRESSED = 1, 2, 3  # reports; newer devices tell all six axes in the first
FULL = 350  # of an axis at its end, about
MOST = 64  # reports that the kernel keeps; it forgets those that come after
SILENT_S = 0.5  # s without a report after which a cap counts as let go: it may be out of reach
RULE = (
    'KERNEL=="hidraw*", KERNELS=="*:{:04X}:{:04X}.*", MODE="0666" in a file '
    "/etc/udev/rules.d/70-spacemouse.rules, and plug it in anew"
)


class Seen(NamedTuple):
    """How its cap and buttons are."""

    axes: tuple[int, ...] = (0,) * 6  # right, to the user, down, and turns about these
    buttons: int = 0  # a bit each


NOTHING = Seen()


def after(seen: Seen, report: bytes) -> Seen:
    """How it is after a report, which may be one of other things."""
    kind, body = report[:1], report[1:]
    if kind == bytes((PRESSED,)) and body:
        return seen._replace(buttons=int.from_bytes(body[:4], "little"))
    if kind == bytes((MOVED,)) and len(body) >= 12:
        return seen._replace(axes=struct.unpack("<6h", body[:12]))
    if kind in (bytes((MOVED,)), bytes((TURNED,))) and len(body) >= 6:
        three, at = struct.unpack("<3h", body[:6]), 3 * (kind[0] == TURNED)
        return seen._replace(axes=seen.axes[:at] + three + seen.axes[at + 3 :])
    return seen


def found(place: Path = PLACE) -> list[Path]:
    """The devices that are one."""
    devices = []
    for about in sorted(place.glob("hidraw*")):
        try:
            descriptor = (about / "device" / "report_descriptor").read_bytes()
        except OSError:  # it has just gone
            continue
        if _ids(about)[0] in VENDORS and MULTI_AXIS in descriptor:
            devices.append(Path("/dev", about.name))
    return devices


class SpaceMouse:
    """What its cap pushes.  Unplugged, nothing is pushed until it is back."""

    help = """mouse    its cap moves what learns, which a touch takes in hand and letting go gives
         back; or, ahead and back, a joint that is chosen; its buttons shut, and open"""

    def __init__(self, path: Path | None = None, place: Path = PLACE) -> None:
        """The first that is found at a `place` of the kernel's, where no `path` is named.
        ValueError of one that is not there, or may not be read."""
        self.named, self.place = path, place
        self.file, self.path, self.tried = -1, path, -float("inf")
        self.seen, self.heard = NOTHING, -float("inf")  # and when
        if why := self._open():
            raise ValueError(why)

    def close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file, self.seen = -1, NOTHING

    def pushed(self, note: Callable[[str], None]) -> dict[str, float]:
        """How far, -1 to 1, what is pushed; what is a news is noted."""
        pressed = self._read(note)
        if time.monotonic() - self.heard > SILENT_S:
            self.seen = self.seen._replace(axes=NOTHING.axes)
        right, back, down, *_, clockwise = (share_of(axis, FULL) for axis in self.seen.axes)
        grip = 1.0 if pressed & 2 else -1.0 if pressed & 1 else 0.0
        told = {"x": -back, "y": -right, "z": -down, "yaw": -clockwise, GRIP: grip, ONE: -back}
        return {name: share for name, share in told.items() if share}

    def _read(self, note: Callable[[str], None]) -> int:
        """What buttons are down, or were since the last look."""
        if self.file < 0 and time.monotonic() - self.tried > AGAIN_S and not self._open():
            note(f"The SpaceMouse {self.path} is there.")
        pressed, count = self.seen.buttons, 0
        while self.file >= 0 and count < MOST:
            try:
                report = os.read(self.file, 64)
            except BlockingIOError:
                return pressed
            except OSError:  # it was unplugged
                report = b""
            if not report:
                self.close()
                note("The SpaceMouse is gone: nothing is pushed until it is back.")
                return 0
            self.seen, self.heard = after(self.seen, report), time.monotonic()
            pressed, count = pressed | self.seen.buttons, count + 1
        if count:  # later ones were forgotten
            self.seen = NOTHING
        return self.seen.buttons

    def _open(self) -> str:
        """Why it cannot be; "" if it is open."""
        self.tried = time.monotonic()
        at = self.named or next(iter(found(self.place)), None)
        if at is None:
            return "There is no SpaceMouse: plug one in, or name its device, /dev/hidrawN."
        try:
            file = os.open(at, os.O_RDONLY | os.O_NONBLOCK)
        except PermissionError:
            rule = RULE.format(*_ids(self.place / at.name))
            return f"{at} may not be read by you: put {rule}."
        except OSError:
            return f"There is no SpaceMouse at {at}: plug it in, or name another."
        if not _tells(file):
            os.close(file)
            return f"{at} is no SpaceMouse: Linux has them at /dev/hidraw0, hidraw1, ..."
        self.file, self.path, self.seen = file, at, NOTHING
        return ""


def _ids(about: Path) -> tuple[int, int]:
    """Vendor and product of a device that the kernel says something about; zeros of no such."""
    try:
        lines = (about / "device" / "uevent").read_text().splitlines()
        told = next(line for line in lines if line.startswith("HID_ID=")).split(":")
        return int(told[1], 16), int(told[2], 16)
    except (OSError, StopIteration, ValueError, IndexError):
        return 0, 0


def _tells(file: int) -> bool:
    """Whether it is one of theirs, or a pipe that somebody writes its reports to."""
    if stat.S_ISFIFO(os.fstat(file).st_mode):
        return True
    try:
        _, vendor, _ = FACTS.unpack(fcntl.ioctl(file, INFO, bytes(FACTS.size)))
    except OSError:
        return False
    return vendor in VENDORS
