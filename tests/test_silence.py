"""A robot whose policy answers too late now and then, in real time."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl import artefact
from rl.bridge import wire
from rl.bridge.sim import sim as program
from rl.bridge.sim.channel import Network
from rl.bridge.sim.simd import STARVED, Simulator
from rl.bridge.sim.simulator import Robot
from rl.bridge.wire import Command

FIXTURE = Path(__file__).parent / "fixtures" / f"artefact-{artefact.SCHEMA}.zip"


class Link:
    """Whose other side is never heard."""

    def send(self, message: Any) -> None: ...

    def send_raw(self, datagram: bytes) -> None: ...

    def receive_raw(self, timeout: float) -> None: ...


def answering(robot: Robot, silent: range) -> Simulator:
    """A simulator whose policy asks for rest, and for nothing in these steps."""
    made: Any = Simulator(robot, Link(), realtime=True, ticks=1)
    rest = np.array([a.rest for a in robot.spec.actuators])
    kp, kd = (np.array([getattr(a, k) for a in robot.spec.actuators]) for k in ("kp", "kd"))
    asked = np.zeros(len(robot.spec.command))

    def answer(now: float, until: float) -> Command | None:
        if made.seq - 1 in silent:
            return None
        made.answered = made.seq
        return Command(made.seq, rest, kp, kd, damp=False, asked=asked)

    made._answer = answer
    return made


@pytest.mark.parametrize(
    ("silent", "end", "starved"),
    [
        (range(0), "done", 0),
        (range(4, 6), "done", 0),  # 0.1 s: it holds
        (range(4, 9), "done", 3),  # damped, and then not
        (range(14, 20), "starved", 4),  # to the end
    ],
)
def test_silence_is_counted(silent: range, end: str, starved: int) -> None:
    robot = Robot(artefact.read(FIXTURE), hz=200)
    assert robot.spec.control_dt == 0.05
    made = answering(robot, silent)
    assert made.episode(0, *robot.home(), seconds=1.0) == end
    assert made.starved == starved
    np.testing.assert_array_equal(np.flatnonzero(made.log.rows["damped"]), [*silent][2:])


def test_a_robot_that_starved_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def starves(self: Simulator, *_: object) -> str:
        self.starved, self.behind = 4, 1.25
        return "starved"

    for name, fake in (("meet", lambda *_: None), ("bye", lambda *_, **__: None),
                       ("strangers", lambda *_: 12)):  # fmt: skip
        monkeypatch.setattr(Simulator, name, fake)
    monkeypatch.setattr(program, "Link", lambda *_: Link())
    monkeypatch.setattr(Simulator, "episode", starves)
    with pytest.raises(SystemExit) as ended:
        program.sim(program.Sim(FIXTURE, address="127.0.0.1:0"))
    assert ended.value.code == STARVED
    said = "".join(capsys.readouterr())
    assert "starved  4 ticks" in said
    assert "ignored  12 frames of strangers" in said
    assert "behind   1.2 s of the clock" in said
    assert "damped at the end, since no answer came" in said


class Prompt(Link):
    """Whose other side answers every state at once."""

    def __init__(self, robot: Robot) -> None:
        self.spec, self.answers = robot.spec, list[bytes]()

    def send_raw(self, datagram: bytes) -> None:
        state = wire.decode(datagram)
        assert state
        rest, kp, kd = (np.array([getattr(a, k) for a in self.spec.actuators])
                        for k in ("rest", "kp", "kd"))  # fmt: skip
        command = Command(state.seq, rest, kp, kd, False, np.zeros(len(self.spec.command)))
        self.answers.append(wire.encode(wire.command_message(self.spec, command, state.time)))

    def receive_raw(self, timeout: float) -> Any:
        if self.answers:
            return self.answers.pop(0), ("127.0.0.1", 1)
        time.sleep(timeout)
        return None

    def drain(self) -> list[bytes]:
        return []


@pytest.mark.parametrize(("delay", "ticks"), [(0.0, 0), (0.008, 0), (0.03, 1)])
def test_what_is_answered_comes_when_the_network_has_it(delay: float, ticks: int) -> None:
    """Each way takes so long: an answer to a state is heeded within its tick if there is time."""
    robot = Robot(artefact.read(FIXTURE), hz=200)
    made: Any = Simulator(robot, Prompt(robot), realtime=True, ticks=1)
    made.through(Network(delay=delay), Network(delay=delay), 0)
    live, behind = made._live, list[int]()

    def lived(now: float) -> None:
        live(now)
        behind.append(made.seq - robot.told.seq)

    made._live = lived
    assert made.episode(0, *robot.home(), seconds=1.0) == "done"
    assert np.median(behind[3:]) == ticks
