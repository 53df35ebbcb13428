"""A SpaceMouse's reports, byte by byte; and how it is found, and refused, by what a kernel says."""

from pathlib import Path
from typing import Any

import pytest

from rl.bridge import spacemouse
from rl.bridge.source import By
from rl.bridge.spacemouse import NOTHING, Seen, SpaceMouse, after, found
from tests.hands import HAND

# How the descriptor of a SpaceMouse Enterprise begins (256f:c633, as usbhid-dump has it), and that
# of a mouse.
CAP = bytes.fromhex("05010908a101a100850116a2fe265e01")
POINTER = bytes.fromhex("05010902a1010901a100050919012905")


@pytest.mark.parametrize(
    ("report", "seen"),
    [
        ("01 000000000000", NOTHING),
        ("01 5e01a2fe0100", Seen((350, -350, 1, 0, 0, 0))),
        ("02 0000e2ff0000", Seen((0, 0, 0, 0, -30, 0))),  # a SpaceNavigator's, as it was recorded
        ("01 0100020003000400050006ff", Seen((1, 2, 3, 4, 5, -250))),  # of newer ones
        ("01 0100020003000400050006ff00", Seen((1, 2, 3, 4, 5, -250))),
        ("03 0100", Seen(buttons=1)),
        ("03 03", Seen(buttons=3)),
        ("03 00000080ff", Seen(buttons=1 << 31)),
        ("", NOTHING), ("01", NOTHING), ("03", NOTHING), ("01 5e01a2fe01", NOTHING),
        ("17 6401", NOTHING), ("02 5e01", NOTHING),
    ],
)  # fmt: skip
def test_reports_say_how_its_cap_and_buttons_are(report: str, seen: Seen) -> None:
    assert after(NOTHING, bytes.fromhex(report)) == seen


def test_a_report_changes_what_it_tells_alone() -> None:
    seen = Seen((1, 2, 3, 4, 5, 6), 2)
    assert after(seen, bytes.fromhex("01 070008000900")) == Seen((7, 8, 9, 4, 5, 6), 2)
    assert after(seen, bytes.fromhex("02 070008000900")) == Seen((1, 2, 3, 7, 8, 9), 2)
    assert after(seen, bytes.fromhex("03 0000")) == Seen((1, 2, 3, 4, 5, 6), 0)


def kernel(place: Path, name: str, vendor: int, product: int, descriptor: bytes) -> None:
    """What it says of a device."""
    about = place / name / "device"
    about.mkdir(parents=True)
    told = f"DRIVER=hid-generic\nHID_ID=0003:{vendor:08X}:{product:08X}\nHID_NAME=A thing\n"
    (about / "uevent").write_text(told)
    (about / "report_descriptor").write_bytes(descriptor)


def test_it_is_found_among_others(tmp_path: Path) -> None:
    kernel(tmp_path, "hidraw0", 0x046D, 0xC077, POINTER)
    kernel(tmp_path, "hidraw1", 0x256F, 0xC650, POINTER)  # theirs, and a mouse
    kernel(tmp_path, "hidraw2", 0x1234, 0xC633, CAP)
    (tmp_path / "hidraw3").mkdir()  # has just gone
    with pytest.raises(ValueError, match="There is no SpaceMouse: plug one in, or name its device"):
        SpaceMouse(place=tmp_path)
    kernel(tmp_path, "hidraw4", 0x256F, 0xC633, POINTER + CAP)  # a receiver
    kernel(tmp_path, "hidraw5", 0x046D, 0xC626, CAP)
    assert found(tmp_path) == [Path("/dev/hidraw4"), Path("/dev/hidraw5")]
    with pytest.raises(ValueError, match="There is no SpaceMouse at /dev/hidraw4: plug it in"):
        SpaceMouse(place=tmp_path)


def test_one_that_may_not_be_read_says_how_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel(tmp_path, "hidraw7", 0x256F, 0xC635, CAP)

    def refused(*_: Any) -> int:
        raise PermissionError

    monkeypatch.setattr(spacemouse.os, "open", refused)
    with pytest.raises(ValueError, match=r"/dev/hidraw7 may not be read by you: put KERNEL=="):
        SpaceMouse(place=tmp_path)
    with pytest.raises(
        ValueError, match=r'KERNELS=="\*:256F:C635\.\*", MODE="0666" in a file /etc'
    ):
        SpaceMouse(Path("/dev/hidraw7"), tmp_path)


def test_what_is_none_is_refused(tmp_path: Path) -> None:
    for other in ("/dev/null", __file__):
        with pytest.raises(ValueError, match=f"{other} is no SpaceMouse: Linux has them at"):
            SpaceMouse(Path(other))
    with pytest.raises(ValueError, match="no terminal whose keys"):  # nothing else could stop it
        By(spacemouse=()).source(HAND, terminal=False)
    with pytest.raises(ValueError, match="--gamepad or --spacemouse: one of them"):
        By(spacemouse=(), gamepad=()).source(HAND, terminal=False)
    assert By(spacemouse=()).said
