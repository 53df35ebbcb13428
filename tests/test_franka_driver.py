"""What a Franka's driver sets and when, by a stand-in of the few calls of franky that it makes."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl import artefact
from rl.bridge import wire
from rl.bridge.drivers import franka, franka_codec
from rl.bridge.drivers.franka_worker import Worker
from rl.bridge.wire import Command, Link
from tests.franka_standin import Errors, Hand, NetworkException, library

PATH = Path(__file__).parents[1] / "benchmarks" / "policies" / "panda-reach" / "artefact-0.zip"
SPEC = artefact.read(PATH).spec
REST = np.array([motor.rest for motor in SPEC.actuators])


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A driver that has met an arm."""
    monkeypatch.setitem(sys.modules, "franky", library())
    driver = franka.Franka(SPEC, "192.0.2.1", "")
    driver.meet()
    yield driver
    driver.worker.hand.word.release(9)
    driver.worker.close()


def told(driver: Any, **more: Any) -> bytes:
    gains = (np.array([getattr(motor, k) for motor in SPEC.actuators]) for k in ("kp", "kd"))
    facts = {"damp": False, "asked": np.zeros(3)} | more
    return driver.codec.command(Command(1, REST, *gains, **facts))


def read(driver: Any) -> franka_codec.Read:
    driver.robot.ms += 10
    (datagram,) = driver.receive()
    got = franka_codec.unpack_read(datagram)
    assert got is not None
    return got


def test_a_robot_must_be_punctual_and_one_of_this_machine_need_not(met: Any) -> None:
    assert met.robot.config == "enforce"
    other = franka.Franka(SPEC, "127.0.5.5", "")
    other.meet()
    assert other.robot.config == "ignore"
    other.worker.hand.word.release(9)
    other.worker.close()


def test_a_state_that_is_not_new_is_none(met: Any) -> None:
    assert [read(met).seq, read(met).seq] == [1, 2]
    assert met.receive() == []
    assert read(met).seq == 3


def test_it_is_tracked_once_and_stopped_once(met: Any) -> None:
    met.send(told(met, damp=True))
    assert met.robot.calls == []
    for _ in range(3):
        met.send(told(met))
    np.testing.assert_array_equal(met.tracker.target, REST[:7])
    np.testing.assert_array_equal(met.tracker.gains[1], [60, 60, 44, 44, 4, 4, 4])
    for _ in range(3):
        met.send(told(met, damp=True))
    assert met.robot.calls == ["track", "stop"]
    met.send(told(met))
    met.close()
    assert met.robot.calls == ["track", "stop", "track", "stop", "join"]


def test_what_broke_is_not_moved_before_it_is_cleared(met: Any) -> None:
    met.send(told(met))
    met.robot.ends, met.robot.errors = [ValueError("reflex!")], SimpleNamespace(
        joint_reflex=True, cartesian_reflex=False
    )  # fmt: skip
    met.robot.is_in_control = False
    found = read(met)
    assert (found.broke, found.errors) == (True, 0b10)
    met.send(told(met))
    met.send(told(met, damp=True))
    assert met.robot.calls == ["track"]
    assert read(met).broke
    met.send(told(met, damp=True, clear=True))
    met.worker.hand.speak(2)
    assert met.robot.calls == ["track", "recover"]
    met.robot.errors = Errors()
    assert not read(met).broke
    met.send(told(met))
    assert met.robot.calls == ["track", "recover", "track"]


def test_a_motion_that_ends_unasked_is_broken(met: Any) -> None:
    met.send(told(met))
    assert not read(met).broke
    met.robot.is_in_control = False
    assert read(met).broke


def test_one_that_may_not_move_now_is_broken(met: Any) -> None:
    met.franky.JointImpedanceTracker = lambda *_, **__: 1 / 0
    met.send(told(met))
    assert read(met).broke


@pytest.mark.parametrize("how", ["poll", "state"])
def test_a_network_that_is_gone_ends_it(met: Any, how: str) -> None:
    met.robot.ends, met.robot.lost = [NetworkException()] if how == "poll" else [], how == "state"
    assert met.receive() == []
    assert met.gone == "lost"


def test_what_it_does_not_measure_is_said_by_others(met: Any) -> None:
    found = artefact.read(PATH.parents[1] / "panda-pick-cube" / "artefact-0.zip").spec
    at = wire.free_address()
    driver = franka.Franka(found, "192.0.2.1", at)
    driver.meet()
    assert driver.receive() == []
    things = {"cube_pos": [0.5, 0.1, 0.02], "cube_quat": [1, 0, 0, 0], "cube_gyro": [0, 0, 0.5]}
    link = Link(("127.0.0.1", 0), wire.address(at))
    for said in (json.dumps(things), '{"cube_linvel": [NaN, 0, 0]}', "[1]", "{", '{"cube_pos": 1}'):
        link.send_raw(said.encode())
    assert driver.receive() == []  # not of all of them
    link.send_raw(b'{"cube_linvel": [0, 0.25, 0], "tool_pos": [9, 9, 9]}')
    (datagram,) = driver.receive()
    state = driver.codec.state(datagram)
    assert state is not None
    assert [*state.readings["cube_linvel"]] == [0, 0.25, 0]
    for name, numbers in things.items():
        np.testing.assert_array_equal(state.readings[name], np.array(numbers, "<f4"))
    assert state.readings["tool_pos"][0] < 1
    assert driver.codec.state(datagram[:-4]) is None
    assert met.codec.state(datagram) is None
    driver.side.when["cube_pos"] -= 1.0
    driver.robot.ms += 10
    assert driver.receive() == []  # of what is too old
    link.close()
    driver.worker.hand.word.release(9)
    driver.close()


def test_a_hand_closes_with_force_opens_without_and_is_told_once() -> None:
    hand = Hand()
    worker = Worker(SimpleNamespace(), hand)
    for wanted in (0.04, 0.0405, 0.01, 0.01, 0.06):
        worker.wanted, worker.force = wanted, 14.0
        hand.speak(2)
    hand.word.release(9)
    worker.close()
    assert [(call[0], call[1]) for call in hand.calls] == [("grasp", 0.01), ("move", 0.06)]
    assert hand.calls[0][3] == 14.0


def test_no_tick_waits_for_a_hand(met: Any) -> None:
    for _ in range(50):  # of which its worker waits for the first word
        met.send(told(met))
        assert read(met).width == 0.04
    assert met.worker.hand.looks == 1


def test_a_hand_that_does_not_answer_is_not_well(met: Any) -> None:
    assert read(met).hand
    met.worker.hand.width = "of no hand"
    met.worker.hand.word.release(9)
    met.worker.thread.join(10)
    assert not read(met).hand
