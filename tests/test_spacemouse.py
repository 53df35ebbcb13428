"""A SpaceMouse: its reports byte by byte, what the kernel says of it, and how it is unplugged."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge import spacemouse, states
from rl.bridge.acting import REST_S
from rl.bridge.keys import LITTLE
from rl.bridge.source import By
from rl.bridge.spacemouse import FULL, MOST, NOTHING, SILENT_S, Seen, SpaceMouse, after, found
from rl.bridge.states import ARMED, INTERVENE
from tests.hands import HAND, Clock, Driven, Mouse, now, terminal
from tests.rig import go2

MOVED, TURNED = 1, 2
# How the descriptor of a SpaceMouse Enterprise begins (256f:c633, as usbhid-dump has it), and that
# of a mouse.
CAP = bytes.fromhex("05010908a101a100850116a2fe265e01")
POINTER = bytes.fromhex("05010902a1010901a100050919012905")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def mouse(tmp_path: Path) -> Mouse:
    return Mouse(tmp_path / "hidraw0")


@pytest.fixture
def driven(clock: Clock, mouse: Mouse) -> Iterator[tuple[Driven, Any, Mouse]]:
    """A robot whose human has keys, and a SpaceMouse beside them."""
    with terminal(HAND, SpaceMouse(mouse.path)) as (keys, press):
        yield Driven(keys, clock), press, mouse


def pushes(robot: Driven, mouse: Mouse, *axes: int) -> Any:
    """What is done while a cap is held so, and says so all the time; in two reports."""
    for _ in range(4):
        mouse.say(MOVED, *axes[:3])
        mouse.say(TURNED, *axes[3:])
        word = robot.live()
    return word.action


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


NOISE = st.one_of(
    st.binary(max_size=40),
    st.tuples(st.sampled_from([1, 2, 3]), st.binary(max_size=20)).map(
        lambda x: bytes([x[0]]) + x[1]
    ),
)


@given(looks=st.lists(st.lists(NOISE, max_size=6), max_size=6))
def test_no_noise_asks_for_what_is_no_action(
    looks: list[list[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """And where nothing is held, no hand is on it."""
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        other = Mouse(tmp_path_factory.mktemp("mouse") / "hidraw0")
        with terminal(HAND, SpaceMouse(other.path)) as (keys, _):
            robot = Driven(keys, clock)
            for reports in looks:
                for report in filter(None, reports):  # none is empty, on a wire
                    os.write(other.end, report)
                word = robot.live()
                assert keys.beside is not None
                held = keys.beside.seen != NOTHING or any(x[:1] == b"\3" for x in reports)
                assert held or not word.deadman
            robot.live(SILENT_S + 0.1)
            other.press(0)
            robot.live()
            assert not robot.live().deadman
        other.out()


def test_a_touch_takes_it_over_and_each_axis_goes_its_way(driven: Any) -> None:
    robot, _, mouse = driven
    robot.live(1)
    assert robot.state == ARMED
    assert not pushes(robot, mouse, 20, -20, 20, -20, 20, -20)[:4].any()  # a hand rests on it
    assert robot.state == ARMED
    np.testing.assert_array_equal(pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0), [1, 0, 0, 0, 0])
    assert robot.state == INTERVENE
    for axes, action in (
        ((0, FULL, 0, 0, 0, 0), (-1, 0, 0, 0, 0)),  # to the user: back
        ((FULL, 0, 0, 0, 0, 0), (0, -1, 0, 0, 0)),  # right
        ((0, 0, -FULL, 0, 0, 0), (0, 0, 1, 0, 0)),  # up
        ((0, 0, 0, 0, 0, FULL), (0, 0, 0, -1, 0)),  # clockwise
        ((0, 0, 0, FULL, FULL, 0), (0, 0, 0, 0, 0)),  # tilted, which no action is
        ((32767, -32768, 0, 0, 0, -700), (1, -1, 0, 1, 0)),
    ):
        np.testing.assert_array_equal(pushes(robot, mouse, *axes), action)
    np.testing.assert_allclose(pushes(robot, mouse, 0, -192, 0, 0, 0, 0)[0], 0.5, atol=0.01)
    pushes(robot, mouse, *[0] * 6)
    robot.live(REST_S)
    assert robot.state == ARMED
    assert robot.events == [states.TAKE, states.GIVE]


def test_buttons_shut_and_open_and_take_it_over(driven: Any) -> None:
    robot, _, mouse = driven
    for buttons, grip in ((1, -1), (2, 1)):
        mouse.press(buttons)
        mouse.press(0)  # within one look
        robot.does(0, 0, 0, 0, grip)
        robot.does(0, 0, 0, 0, grip)
    assert robot.events == [states.TAKE]


def test_what_says_nothing_any_more_is_let_go(driven: Any) -> None:
    """A wireless one may be out of reach."""
    robot, _, mouse = driven
    pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0)
    robot.live(SILENT_S - 0.1)
    assert robot.live().deadman
    robot.live(0.1)
    assert not robot.live().deadman
    robot.live(REST_S)
    assert robot.state == ARMED


def test_what_came_before_others_were_forgotten_is_no_news(driven: Any) -> None:
    robot, _, mouse = driven
    for _ in range(MOST):
        mouse.say(MOVED, 0, -FULL, 0)
    assert not robot.live().deadman
    mouse.say(MOVED, 0, -FULL, 0)
    assert robot.live().deadman


def test_one_that_is_gone_pushes_nothing_and_is_gone_on_with(driven: Any, capsys: Any) -> None:
    robot, press, mouse = driven
    pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0)
    mouse.press(2)
    assert robot.live().deadman
    mouse.out()
    for _ in range(3):
        word = robot.live()
        assert (word.deadman, word.action[0]) == (False, 0)
    robot.live(REST_S)
    assert robot.state == ARMED
    assert capsys.readouterr().out.count("The SpaceMouse is gone: nothing is pushed until") == 1
    press(" ")
    assert robot.live().event == states.STOP  # keys are there
    robot.state = ARMED
    mouse.back()
    robot.live(0.5)
    assert capsys.readouterr().out.count("hidraw0 is there") == 1
    assert robot.state == ARMED
    np.testing.assert_array_equal(pushes(robot, mouse, 0, -FULL, 0, 0, 0, 0)[0], 1)
    assert robot.state == INTERVENE


def test_keys_act_beside_it(driven: Any) -> None:
    robot, press, mouse = driven
    press("t")
    robot.live()
    press("i")
    robot.does(0, 0, LITTLE, 0, 0)
    robot.live(2)
    assert robot.state == INTERVENE  # it was taken by a key, and stays
    mouse.press(1)
    robot.does(0, 0, 0, 0, -1)


def test_a_joint_of_an_ordinary_robot_is_jogged(clock: Clock, mouse: Mouse) -> None:
    with terminal(go2(), SpaceMouse(mouse.path)) as (keys, press):
        press("n")
        mouse.say(MOVED, 0, -FULL, 0)
        word = keys.word(now(INTERVENE))
        motor = go2().actuators[1]
        np.testing.assert_allclose(word.jog, np.eye(12)[1] * (motor.high - motor.low) / 10)
        assert (word.deadman, word.event) == (True, "")
        mouse.say(MOVED, 0, 0, 0)
        let = keys.word(now(INTERVENE))
        assert (let.deadman, let.jog.any()) == (False, np.False_)


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
