"""A Franka end to end: this bridge, libfranka, and franky-sim at the other end of its wire.

Where both are installed (docs/franka.md): franky-control and franky-sim.
"""

import lzma
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl import artefact
from rl.bridge import states, wire
from rl.bridge.checks import Reason
from rl.bridge.drivers.franka_codec import Codec, tool, unpack_read, unpack_set
from rl.bridge.log import flight, replay
from rl.bridge.messages import Status
from rl.bridge.pilot import AGAIN_S, Pilot, Word
from rl.bridge.wire import Link

TICKS = 84  # of the flight among the fixtures

pytest.importorskip("franky")
pytest.importorskip("franky_sim")
pytestmark = pytest.mark.slow

POLICIES = Path(__file__).parents[1] / "benchmarks" / "policies"
PATH = POLICIES / "panda-reach" / "artefact-0.zip"
PUSH = POLICIES / "panda-push-t" / "artefact-0.zip"
ADDRESS = "127.0.7.7"  # of this machine alone
LASTS_S = 90.0  # whatever holds it up
GOAL = 0.5, 0.2, 0.3
LEADS = {states.PASSIVE: states.STAND, states.READY: states.ARM}


class Lab:
    """The arm, its bridge and its policy as processes; a pilot here."""

    def __init__(self, folder: Path, *more: str, path: Path = PATH, angles: Any = ()) -> None:
        """Flags of the bridge, besides; and where the joints of the arm are at first."""
        self.log, self.spec, desk = folder / "a.mcap", artefact.read(path).spec, wire.free_address()
        self.arm = self._begin("tests.fci", ADDRESS, *map(str, angles), stdout=subprocess.PIPE)
        assert self.arm.stdout.readline() == b"ready\n"
        flags = f"--robot=franka:{ADDRESS}", f"--desk={desk}", f"--log={self.log}", *more
        self.bridge = self._begin("rl.bridge.robotd", str(path), *flags)
        policy = f"--desk={desk}", "--runtime=numpy"
        self.policy = self._begin("rl.bridge.policyd", str(path), *policy)
        self.pilot = Pilot(self.spec, Link(("127.0.0.1", 0), wire.address(desk)))

    def _begin(self, module: str, *words: str, **more: Any) -> Any:
        return subprocess.Popen([sys.executable, "-m", module, *words], **more)

    def lives(self, story: "Story") -> int:
        """The status that the bridge exits with."""
        self.pilot.meet(60.0)
        self.pilot.live(story)
        self.pilot.bye()
        return self.bridge.wait(30)

    def flight(self) -> flight.Flight:
        return flight.read(self.log)

    def end(self) -> None:
        for process in (self.bridge, self.policy, self.arm):
            if process.poll() is None:
                process.kill()
            process.wait()
        self.pilot.link.close()
        self.arm.stdout.close()


class Story:
    """Has the arm stand, arms it, and does things in the states that they are for, in turn."""

    def __init__(self, *acts: Any, asked: Any = GOAL) -> None:
        """Each a state, for how many s, and what is done or said then."""
        self.acts, self.asked = [*acts], np.array(asked)
        self.tried = self.since = -np.inf
        self.state = ""

    def word(self, status: Status) -> Word:
        if status.state != self.state:
            self.state, self.since = status.state, status.time
        if not self.acts or status.time > LASTS_S:
            return Word(leaves=True)
        state, seconds, act = self.acts[0]
        if status.state == state and status.time - self.since >= seconds:
            self.acts, self.since = self.acts[1:], status.time
            if isinstance(act, str):
                return Word(act, self.asked)
            act()
        elif status.time - self.tried > AGAIN_S:
            self.tried = status.time
            return Word(LEADS.get(status.state, ""), self.asked)
        return Word(command=self.asked)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.end()


def rows(found: flight.Flight) -> list[tuple[str, Any, Any]]:
    """Of each tick: state, what was read last, what was set."""
    made, read = [], None
    for row in found.rows:
        heard = [x.datagram for x in row.heard if x.source == "robot"]
        read = unpack_read(heard[-1]) if heard else read
        made.append((row.state, read, unpack_set(row.told) if row.told else None))
    return made


def test_it_stands_reaches_and_stops(lab: Lab) -> None:
    assert lab.lives(Story((states.ARMED, 4.0, states.STOP), (states.FAULT, 1.0, ""))) == 1
    found = lab.flight()
    codec, lived = Codec(lab.spec), rows(found)
    armed = [read for state, read, _ in lived if state == states.ARMED]
    np.testing.assert_allclose(tool(armed[-1].flange)[0], GOAL, atol=0.02)
    assert all(read.mode == 2 for read in armed[1:])
    last = lived[-1][1]
    assert last.mode == 1
    assert np.abs(last.dq).max() < 0.02
    told = replay.replay(found, codec, artefact.deploy(artefact.read(PATH), "numpy"))
    assert (told.different, told.off) == (0, 0.0)
    assert told.asked > 60


def test_it_is_held_when_its_policy_is_killed(lab: Lab) -> None:
    kill = lambda: lab.policy.kill()  # noqa: E731
    assert lab.lives(Story((states.ARMED, 1.5, kill), (states.HOLD, 1.0, ""))) == 1
    held = [(read, told) for state, read, told in rows(lab.flight()) if state == states.HOLD]
    assert np.abs(held[-1][0].dq).max() < 0.02
    assert np.abs(held[-1][0].q - held[-1][1].targets).max() < 0.02


def test_it_may_be_relaxed_and_stand_again_at_once(lab: Lab) -> None:
    story = Story((states.ARMED, 0.6, states.RELAX), (states.ARMED, 1.0, ""))
    assert lab.lives(story) == 0
    lived = rows(lab.flight())
    assert not any(read.broke for _, read, _ in lived)
    assert [state for state, _, _ in lived].count(states.PASSIVE) > 10


def test_it_is_given_up_when_it_is_gone(lab: Lab) -> None:
    assert lab.lives(Story((states.ARMED, 1.0, lab.arm.kill), (states.FAULT, 60.0, ""))) == 1
    last = lab.flight().rows[-1]
    assert last.state in (states.HOLD, states.FAULT)
    assert last.mask & Reason.STATE


def test_a_reflex_is_a_fault_until_an_operator_clears_it(lab: Lab) -> None:
    push = lambda: lab.arm.send_signal(signal.SIGUSR1)  # noqa: E731
    story = Story(
        (states.ARMED, 1.0, push), (states.FAULT, 1.0, states.CLEAR),
        (states.FAULT, 0.5, states.CLEAR), (states.ARMED, 1.0, ""),
    )  # fmt: skip
    assert lab.lives(story) == 0
    lived = rows(lab.flight())
    cleared = next(i for i, (_, _, told) in enumerate(lived) if told and told.clear)
    fault = [(read, told) for state, read, told in lived[:cleared] if state == states.FAULT]
    assert len(fault) > 50
    assert all(read.mode == 4 and read.broke and told.damp for read, told in fault[1:])
    assert bin(fault[-1][0].errors).count("1") == 1
    assert [x for x, _, _ in lived[cleared:] if x == states.ARMED]


def test_it_pushes_what_another_program_sees(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "--sensors=127.0.0.1:9881", path=PUSH)
    assert lab.lives(Story((states.ARMED, 18.0, ""), asked=(0.52, 0.0, 1.0, 0.0))) == 0
    lab.end()
    found, codec = lab.flight(), Codec(lab.spec)
    heard = [x.datagram for row in found.rows for x in row.heard if x.source == "robot"]
    tees = [state.readings for state in map(codec.state, heard) if state]
    off = [np.linalg.norm(tee["tee_pos"][:2] - [0.52, 0.0]) for tee in tees]
    askew = [np.degrees(np.arctan2(*tee["tee_ahead"][1::-1])) for tee in tees]
    assert off[0] == pytest.approx(0.03, abs=0.001)
    assert askew[0] == pytest.approx(34.4, abs=0.5)
    assert any(x < 0.015 and abs(y) < 8 for x, y in zip(off, askew, strict=True))
    assert replay.replay(found, codec).different == 0


def record(path: Path) -> None:
    """The flight among the fixtures: stands at its rest at once, is armed, pushed and damped."""
    with tempfile.TemporaryDirectory() as folder:
        rest = [motor.rest for motor in artefact.read(PATH).spec.actuators[:7]]
        lab = Lab(Path(folder), "--limits.stand-s=0", "--limits.blend-s=0.05", angles=rest)
        push = lambda: lab.arm.send_signal(signal.SIGUSR1)  # noqa: E731
        lab.lives(Story((states.ARMED, 0.15, push), (states.FAULT, 0.1, states.CLEAR)))
        found = lab.flight()
        lab.end()
        log = flight.Log(Path(folder) / "b.mcap", found.about.text())
        for row in found.rows[:TICKS]:
            log.add(flight.pack(row))
        log.close()
        path.write_bytes(lzma.compress((Path(folder) / "b.mcap").read_bytes()))


if __name__ == "__main__":
    record(Path(sys.argv[1]))
