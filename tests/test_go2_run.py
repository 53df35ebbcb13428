"""A Go2 that is simulated in a process of its own, driven over UDP and over DDS, in real time."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl import artefact
from rl.bridge import robots, wire
from rl.bridge.drivers import go2
from rl.bridge.drivers import go2_wire as layout
from rl.bridge.drivers.go2_sim import Dog, UdpEnd
from rl.bridge.log import flight, replay
from rl.bridge.sim.simulator import Robot
from rl.bridge.wire import Command

WALKER = Path(__file__).parent.parent / "benchmarks/policies/go2-joystick-flat/artefact-0.zip"
SPEC = artefact.read(WALKER).spec
DOMAIN = 1 + os.getpid() % 90  # whose ports are below those that are handed out
# Of a machine that has other things to do.
PATIENT = [f"--limits.{x}" for x in (
    "late=10", "state-age=10", "plan-age=1000", "operator-age=10", "loss=1", "hold-s=10",
    "tracking-s=10", "max-tilt=180", "stand-s=0.5", "blend-s=0.1")]  # fmt: skip


@contextmanager
def simulated(where: str, *flags: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-m", "rl.bridge.drivers.go2_sim", WALKER, f"--wire={where}", *flags]
    process = subprocess.Popen(map(str, words), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        assert process.stdout.readline().startswith("speaking")
        yield process
    finally:
        process.terminate()
        process.communicate()


def run(*words: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rl.bridge", "run", WALKER, *words]
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=120, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def driven(where: str, log: Path) -> None:
    """It stands up, is armed, and its log is lived through again."""
    words = "--command", 0.5, 0, 0, "--seconds", 1, "--runtime", "numpy", "--log", log, *PATIENT
    with simulated(where):
        done = run("--robot", where, *words)
    assert done.returncode == 0, done.stderr
    found = flight.read(log)
    assert found.about.codec == "go2"
    assert {row.state for row in found.rows} >= {"passive", "ready", "armed"}
    sizes = {len(x.datagram) for row in found.rows for x in row.heard if x.source == "robot"}
    assert sizes == {layout.STATE_SIZE}
    again = replay.replay(found, robots.codec(found.about))
    assert (again.ticks, again.different) == (len(found.rows), 0)


@pytest.mark.long
def test_it_is_driven_over_udp(tmp_path: Path) -> None:
    driven(f"go2+udp:{wire.free_address()}", tmp_path / "log.mcap")


@pytest.mark.long
def test_it_is_driven_over_dds(tmp_path: Path) -> None:
    pytest.importorskip("cyclonedds")
    driven(f"go2:lo/{DOMAIN}", tmp_path / "log.mcap")


def test_over_dds_others_who_command_it_are_heard_and_we_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("cyclonedds")
    where, until = f"lo/{DOMAIN + 91}", time.monotonic() + 30
    others = (
        "import sys, time; from rl.bridge import robots; from rl.bridge.drivers import go2\n"
        "end = robots.dds(sys.argv[1])\n"
        "while True: end.send(go2.blank()); time.sleep(0.01)"
    )
    with simulated(f"go2:{where}"):
        robot: Any = robots.driver(SPEC, f"go2:{where}")
        robot.meet()
        ones = np.ones(len(SPEC.actuators))
        for _ in range(50):
            robot.send(robot.codec.command(Command(0, ones, ones, ones, False, np.zeros(3))))
            assert {len(x) for x in robot.receive()} <= {layout.STATE_SIZE}
            time.sleep(0.002)
        other = subprocess.Popen([sys.executable, "-c", others, where])
        try:
            while not robot.told and time.monotonic() < until:
                robot.receive()
                time.sleep(0.01)
            assert "Somebody else commands" in capsys.readouterr().err
            with pytest.raises(ValueError, match="Somebody else commands the motors of the Go2 at"):
                robot.meet()
        finally:
            other.kill()
            other.wait()
            robot.close()


class Answers:
    """A robot that says the same whenever it is called, and has said it before."""

    name = "home"

    def __init__(self, datagram: bytes) -> None:
        self.datagram, self.said = datagram, 3 * [datagram]

    def call(self) -> None:
        self.said.append(self.datagram)

    def receive(self) -> list[bytes]:
        said, self.said = self.said[:2], self.said[2:]
        return [x for x in said if x]

    def send(self, datagram: bytes) -> None: ...
    def close(self) -> None: ...


def test_who_says_nothing_or_what_cannot_be_read_is_not_met(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(go2, "PATIENCE_S", 0.2)
    monkeypatch.setattr(go2, "LISTEN_S", 0.1)
    whole = layout.signed(bytes(layout.STATE_SIZE - 4))
    torn = whole[:7] + b"\1" + whole[8:]
    for datagram, why in ((b"", "no state came"), (torn, "only states with a wrong checksum came"),
                          (go2.blank(), "Somebody else commands the motors")):  # fmt: skip
        with pytest.raises(ValueError, match=why):
            go2.Go2(SPEC, Answers(datagram)).meet()
    robot = go2.Go2(SPEC, Answers(whole))
    robot.meet()
    robot.transport.said = 5 * [whole]
    assert (robot.receive(), robot.receive()) == ([whole], [])  # what is old is left out
    assert not robot.told
    remote = np.zeros(1, layout.LOW_STATE)
    remote["wireless_remote"][0, 2:4] = 0x20, 0x02
    robot.transport = Answers(layout.signed(remote.tobytes()[:-4]))
    robot.receive()
    assert robot.told == "Its remote says stop."
    assert (robot.rate, robot.waits, robot.episodes, robot.codec.seq) == (500.0, False, False, 0)


def test_over_udp_it_speaks_to_who_spoke_last() -> None:
    end = UdpEnd(("127.0.0.1", 0))
    peers = [go2.Udp(("127.0.0.1", end.link.port)) for _ in range(2)]
    end.send(b"nobody hears this")
    for peer in peers:
        peer.call()
        assert end.link.receive_raw(1.0) == (b"", ("127.0.0.1", peer.link.port))
        peer.call()
        time.sleep(0.05)
        assert end.receive() == [b""]
        end.send(b"state")
        assert peer.link.receive_raw(1.0) == (b"state", ("127.0.0.1", end.link.port))
    assert peers[0].receive() == []
    for each in (end, *peers):
        each.close()


@pytest.mark.parametrize(
    ("robot", "why"),
    [
        ("go2:nowhere0", "There is no network interface 'nowhere0'; there are"),
        ("go2:lo/home", "'home' is no domain of DDS"),
        ("go2:lo/233", "'233' is no domain of DDS"),
        ("go2+udp:lo", "'lo' is no address"),
        ("go2+udp:127.0.0.1:9", "moves if it is told to: --command, --script, --keys"),
        ("go3:lo", "'lo' is no address|'go3:lo' is no address"),
    ],
)
def test_what_is_no_go2_is_refused_in_a_sentence(robot: str, why: str) -> None:
    done = run("--robot", robot)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert any(x in done.stderr for x in why.split("|")), done.stderr
    assert "Traceback" not in done.stderr


def test_motors_do_as_a_command_says_if_it_is_whole() -> None:
    dog = Dog(Robot(artefact.read(WALKER), layout.HZ))
    gains = lambda: dog.model.actuator_gainprm[dog.robot.servos, 0].tolist()  # noqa: E731
    command = np.frombuffer(go2.blank(), layout.LOW_CMD).copy()
    command["motor_cmd"]["kp"], command["motor_cmd"]["q"] = 20, 0.5
    assert not dog.obey(command.tobytes())  # its checksum is of the one before
    assert dog.obey(layout.signed(command.tobytes()[:-4]))
    assert gains() == [20] * 12
    command["motor_cmd"]["mode"][0, 3] = 0
    dog.obey(layout.signed(command.tobytes()[:-4]))
    assert sum(gains()) == 20 * 11
