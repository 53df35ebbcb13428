"""Who drives a robot from a process of its own, and dies or freezes: the robot is held in time, and
another takes over."""

import json
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rl import artefact
from rl.bridge import launch, messages, states, wire
from rl.bridge.desk import WATCHER
from rl.bridge.limits import Limits
from rl.bridge.log import flight
from rl.bridge.messages import Status
from rl.bridge.pilot import Pilot
from rl.bridge.referee import judge
from rl.bridge.sim.sim import header
from rl.bridge.source import By
from rl.bridge.states import ARMED, HOLD
from rl.bridge.wire import Link
from tests.test_bridge import bridge, ended
from tests.test_lockstep import PATH

RATE, TICKS = 100.0, 2  # of the wire a second; beyond the limit of age
ARM = PATH.parent.parent / "panda-reach" / PATH.name  # which is held anywhere
SPEC = artefact.read(ARM).spec
BRAKES_S = max(a.speed / a.acceleration for a in SPEC.actuators if a.acceleration)
GOAL = 0.5, 0.0, 0.3


class Watcher:
    """Hears how a robot is."""

    def __init__(self, desk: str) -> None:
        self.link = Link(("127.0.0.1", 0), wire.address(desk))

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def until(self, state: str, after: float = 0.0) -> Status:
        """How it is when it is in a state, in which it has been for some s."""
        greeting = wire.hello(SPEC)._replace(flags=WATCHER)
        since, greeted, began = None, 0.0, time.monotonic()
        while (now := time.monotonic()) < began + 90:
            if now > greeted + 1:
                self.link.send(greeting)
                greeted = now
            got = self.link.receive(0.1)
            if got and (status := messages.status_of(SPEC, got[0])):
                since = None if status.state != state else status.time if since is None else since
                if since is not None and status.time >= since + after:
                    return status
        raise AssertionError(f"it was never {state}")


def daemon(desk: str, robot: str, *words: Any) -> list[subprocess.Popen[str]]:
    """A bridge that waits for who drives it, and its policy."""
    start = [sys.executable, "-m"]
    return [
        subprocess.Popen([*start, "rl.bridge.robotd", str(ARM), "--robot", robot, "--desk", desk,
                          "--stays", *map(str, words)], text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.STDOUT),
        subprocess.Popen([*start, "rl.bridge.policyd", str(ARM), "--desk", desk, "--runtime",
                          "numpy"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT),
    ]  # fmt: skip


@contextmanager
def killed(*processes: subprocess.Popen[str]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def teleop(desk: str, *words: object) -> subprocess.Popen[str]:
    return bridge("teleop", desk, ARM, *words)


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
def test_a_robot_whose_teleop_goes_is_held_in_time_and_another_takes_over(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """In lock step, by the referee, from the last word of who went."""
    robot, desk = wire.free_address(), wire.free_address()
    truth, log, script = (tmp_path / name for name in ("truth.jsonl", "f.mcap", "c.csv"))
    goals = "0.4,-0.2,0.2", "0.6,0.2,0.3"  # it is always on its way
    script.write_text("\n".join(f"{0.5 * t},{goals[t % 2]}" for t in range(200)))
    sim = bridge("sim", ARM, "--address", robot, "--no-episodes", "--rate", RATE, "--wait", 99,
                 "--truth", truth)  # fmt: skip
    made = daemon(desk, robot, "--pilot-patience", 0.5, "--log", log)
    first = teleop(desk, "--script", script, "--seconds", 1e6)
    with killed(sim, *made, first), Watcher(desk) as watcher:
        went = watcher.until(ARMED, after=1.5).time
        first.send_signal(sent)
        watcher.until(HOLD)
        second = teleop(desk, "--command", *GOAL, "--seconds", 0.5)
        with killed(second):
            watcher.until(ARMED)
            code, told = ended(second)
            assert code == 0, told
        assert made[0].wait(30) == 0
    rows = flight.read(log).rows
    words = [row.now for row in rows for heard in row.heard if heard.source == "operator"]
    last = max(now for now in words if now <= went + 0.1)
    held = next(row.now for row in rows if row.now > last and row.state == HOLD)
    assert went - SPEC.control_dt - 1e-6 <= last <= held  # its last answer
    assert held - last <= Limits().operator_age + TICKS / RATE + 1e-6
    after = [row for row in rows if row.now > held and row.state != HOLD]
    assert ARMED in {row.state for row in after}  # the second drove it
    within = Limits().operator_age + TICKS / RATE
    expect = {"name": "held", "from": last, "within": within + BRAKES_S,
              "be": "safe", "until": after[0].now - 1 / RATE}  # fmt: skip
    assert judged(truth, expect) == {}
    early = judged(truth, expect | {"within": 0.05})  # which it could not know by then
    assert early.keys() == {"expect: held"}


def judged(truth: Path, expect: dict[str, Any]) -> dict[str, int]:
    """What a referee finds wrong."""
    top = header(SPEC, RATE, [expect], released=[[0.0, expect["from"]]])
    return judge([json.dumps(top), *truth.read_text().splitlines()[1:]]).violations


def test_one_at_a_time_drives_it() -> None:
    robot, desk = wire.free_address(), wire.free_address()
    sim = bridge("sim", ARM, "--address", robot, "--no-episodes", "--wait", 99)
    made = daemon(desk, robot, "--pilot-patience", 0.5)
    first = teleop(desk, "--command", *GOAL, "--seconds", 1e6)
    with killed(sim, *made, first), Watcher(desk) as watcher:
        watcher.until(ARMED)
        code, told = ended(teleop(desk, "--command", *GOAL))
        assert code == 1
        assert told == "error: Somebody else drives this robot: one at a time.\n"
        first.send_signal(signal.SIGINT)  # who leaves so leaves the bridge to others
        assert ended(first)[0] == 130
        watcher.until(HOLD)
        made[0].terminate()
        code, told = ended(made[0])
        assert (code, "held at the end: no word of its operator for too long" in told) == (1, True)


def test_run_waits_for_a_teleop_and_says_how_to_call_it() -> None:
    desk = wire.free_address()
    everywhere = desk.replace("127.0.0.1", "0.0.0.0")
    run = bridge("run", PATH, "--robot", "sim-go2", "--desk", everywhere, "--runtime", "numpy",
                 "--limits.late", 9, "--limits.missed", 1, "--limits.plan-age", 50)  # fmt: skip
    with killed(run):
        assert run.stdout is not None
        lines = [run.stdout.readline() for _ in range(3)]
        (line,) = (x for x in lines if x.startswith("teleop"))
        _, _, _, *words = line.split()[1:]
        assert words == ["teleop", everywhere.replace("0.0.0.0", platform.node()), str(PATH)]
        code, told = ended(bridge("teleop", desk, PATH, "--command", 0, 0, 0, "--seconds", 0.5))
        assert code == 0, told
        code, told = ended(run)
        assert "stopped" in told
        assert code == 0, told


def test_a_teleop_that_makes_no_sense_says_so() -> None:
    desk = wire.free_address()
    link = Link(wire.address(desk))
    pilot = Pilot(SPEC, Link(("127.0.0.1", 0), wire.address(desk)))
    with pytest.raises(ValueError, match=rf"No bridge answered at {desk} within 0\.1 s: start one"):
        pilot.meet(0.1)
    link.close()
    pilot.link.close()
    with pytest.raises(ValueError, match="one of them"):
        By(command=GOAL, keys=True).source(SPEC, terminal=False)
    assert By(command=()).said
    assert not By().said
    with pytest.raises(ValueError, match="--gamepad takes one device"):
        By(gamepad=(PATH, PATH)).source(SPEC, terminal=False)
    with pytest.raises(ValueError, match="--desk: who comes there drives it"):
        launch.run(launch.Run(PATH, by=By(keys=True), desk=desk))
    with pytest.raises(ValueError, match="--seconds is -1; it takes a time above 0 s"):
        By(seconds=-1).source(SPEC, terminal=False)


def test_without_a_terminal_there_are_no_keys() -> None:
    code, told = ended(
        subprocess.Popen([sys.executable, "-c", "from rl.bridge.keys import Keys\n"
                          "from tests.rig import go2\nKeys(go2()).__enter__()"], text=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    )  # fmt: skip
    assert code == 1
    assert "ValueError: There is no terminal whose keys could drive it." in told
    assert states.STAND in states.ASKED
