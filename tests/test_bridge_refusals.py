"""A robot and a policy that are not for each other are told of it in words, and nothing moves."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from benchmarks.process import ROOT
from rl import artefact
from rl.bridge import robotd, robots, wire
from rl.bridge.clock import LockStep
from rl.bridge.desk import WATCHER
from rl.bridge.drivers.udp import Udp
from rl.bridge.sim import simd
from tests.test_bridge import bridge, ended
from tests.test_lockstep import PATH


def swapped(found: artefact.Artefact, what: str) -> artefact.Artefact:
    """The same artefact of a robot whose joints stand in another order, or are named otherwise."""
    spec = found.spec
    sensors, motors = list(spec.sensors), list(spec.actuators)
    if what == "order":
        motors[0], motors[3] = motors[3], motors[0]
    elif what == "sensor":
        sensors[5] = replace(sensors[5], name="elbow")
    elif what == "gain":
        motors[2] = replace(motors[2], kp=99.0)
    made = replace(spec, sensors=tuple(sensors), actuators=tuple(motors))
    return replace(found, spec=made)


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("order", "The bridge has 'FL_hip' as its actuator 0, and not 'FR_hip'"),
        ("gain", "The bridge is of another spec: of its actuators the kp of FR_calf is 99.0"),
    ],
)
def test_another_robots_policy_is_refused(what: str, why: str, tmp_path: Path) -> None:
    other, address = tmp_path / "other.zip", wire.free_address()
    swapped(artefact.read(PATH), what).write(other)
    sim = bridge("sim", PATH, "--address", address)
    run = bridge("run", other, "--robot", address)
    code, said = ended(sim)
    assert ended(run)[0] == 1
    assert code == 1
    assert said.strip().splitlines()[-1].startswith("error: ")
    assert why in said


def test_an_artefact_of_another_model_is_no_robot(tmp_path: Path) -> None:
    swapped(artefact.read(PATH), "sensor").write(other := tmp_path / "other.zip")
    code, said = ended(bridge("sim", other))
    assert (code, said.startswith("error: The model has no sensor 'elbow', which")) == (1, True)


def seen(first: subprocess.Popen[str], desk: str) -> None:
    """Wait until a process answers at a desk."""
    link = wire.Link(("127.0.0.1", 0), wire.address(desk))
    hello = wire.encode(wire.hello(artefact.read(PATH).spec)._replace(flags=WATCHER))
    for _ in range(600):
        link.send_raw(hello)
        if link.receive(0.1):
            break
    else:
        first.kill()
        raise AssertionError(ended(first)[1])
    link.close()


def daemon(robot: str, desk: str, path: Path = PATH) -> subprocess.Popen[str]:
    words = "-m", "rl.bridge.robotd", str(path), "--robot", robot, "--desk", desk
    return subprocess.Popen(
        [sys.executable, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def policyd(desk: str, path: Path, runtime: str = "numpy") -> subprocess.Popen[str]:
    words = "-m", "rl.bridge.policyd", str(path), "--desk", desk, "--runtime", runtime
    return subprocess.Popen(
        [sys.executable, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_second_bridge_on_a_robot_is_refused_and_comes_when_the_first_was_killed() -> None:
    robot, desks = wire.free_address(), [wire.free_address() for _ in range(2)]
    first = daemon(robot, desks[0])
    seen(first, desks[0])
    code, said = ended(bridge("run", PATH, "--robot", robot.replace("127.0.0.1", "localhost")))
    assert code == 1
    assert said.startswith(f"error: Process {first.pid} is the bridge of the robot at {robot} ")
    first.kill()
    ended(first)
    second = daemon(robot, desks[1])
    seen(second, desks[1])
    second.kill()
    ended(second)


def test_a_robot_that_has_a_bridge_refuses_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another machine, say: before it has begun, and while it acts; and forgets none for it."""
    monkeypatch.setattr(simd, "PATIENCE", 3.0)
    found, address = artefact.read(PATH), wire.address(wire.free_address())
    made = simd.Simulator(simd.Robot(found, 500.0), wire.Link(address), False, 1)
    ends: list[str] = []

    def lived() -> None:
        made.meet(30.0)
        ends.append(made.episode(0, *made.robot.home(), 1.0))

    thread = threading.Thread(target=lived)
    thread.start()
    first, second = (Udp(found.spec, address) for _ in range(2))
    first.meet()
    with pytest.raises(ValueError, match="Another bridge drives this robot: one at"):
        second.meet()
    clock = LockStep(found.spec, address, 30.0)
    assert clock.wait() is not None
    with pytest.raises(ValueError, match="Another bridge drives this robot: one at"):
        second.meet()
    clock.done()
    assert clock.wait() is not None
    assert len(first.receive()) == 2  # states, which nobody else is sent
    thread.join()
    assert ends == ["lost"]
    assert second.receive() == []
    for link in (first.link, second.link, clock.link, made.link, made.clock, made.door):
        link.close()


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_a_policy_off_its_golden_vectors_is_refused(runtime: str, tmp_path: Path) -> None:
    """And run ends, for it has no policy."""
    found, other = artefact.read(PATH), tmp_path / "other.zip"
    targets = found.golden.targets + 1e-4 * (np.arange(12) == 3)
    replace(found, golden=replace(found.golden, targets=targets.astype("f4"))).write(other)
    code, said = ended(bridge("run", other, "--robot", "sim", "--runtime", runtime))
    assert code == 1
    assert f"error: With {runtime} the policy is 0.0001 off its golden targets at tick 0" in said


def test_a_policy_of_another_file_is_refused(tmp_path: Path) -> None:
    """Though its spec is the same; the one that there is goes on to be it."""
    found, other = artefact.read(PATH), tmp_path / "other.zip"
    targets = found.golden.targets + np.float32(1e-6)
    replace(found, golden=replace(found.golden, targets=targets)).write(other)
    desk = wire.free_address()
    first = daemon(wire.free_address(), desk)
    good, bad = policyd(desk, PATH), policyd(desk, other)
    try:
        assert good.stdout is not None
        assert good.stdout.readline() == "running  go2-joystick-flat with numpy\n"
        why = "error: The bridge is of another artefact: start it and the policy with one file.\n"
        assert ended(bad) == (1, why)
        assert good.poll() is None
    finally:
        for process in (good, first):
            process.kill()
            ended(process)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"control_dt": 0.025}, "The bridge is of another spec: its control_dt is 0.02, and not"),
        ({"name": "go1"}, "The bridge is named go2-joystick-flat, and not go1"),
    ],
)
def test_a_policy_of_another_spec_is_refused(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    found, other, desk = artefact.read(PATH), tmp_path / "other.zip", wire.free_address()
    replace(found, spec=replace(found.spec, **change)).write(other)
    first = daemon(wire.free_address(), desk)
    seen(first, desk)
    code, said = ended(policyd(desk, other))
    first.kill()
    ended(first)
    assert (code, said.startswith("error: ")) == (1, True)
    assert why in said


def test_a_robot_of_a_rate_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = SimpleNamespace(meet=lambda: None, close=lambda: None, rate=510.0)
    nobody = cast(Any, None)
    monkeypatch.setattr(robots, "driver", lambda *_: fast)
    with pytest.raises(ValueError, match=r"speaks 510 times a second, and its .* asked 50 times"):
        robotd.begun(robotd.Args(PATH), artefact.read(PATH), nobody)


@pytest.mark.parametrize(("words", "why"), [
    (("run", PATH, "--robot", "sim", "--log", "nowhere/a.mcap"), "cannot be written"),
    (("run", PATH, "--robot", "sim", "--log", "a.txt"), "will be an .mcap file"),
    (("run", PATH, "--robot", "sim", "--keys"), "no terminal whose keys"),
    (("run", PATH, "--robot", "sim-panda"), "one for go2-joystick-flat: say sim-go2, or sim"),
    (("excite", PATH, "--robot", "sim", "--log", "a.mcap", "--seconds", "nan"), "a time above 0"),
    (("convert", "--out", "a.npz"), "Name at least one log"),
    (("convert", "a.mcap", "--out", "a.csv"), "no .npz or .rrd file, nor a folder"),
    (("report", "a.mcap", "--out", "nowhere/a.html"), "there is no folder for it"),
    (("sim", PATH, "--seed", "-1"), "a number from 0 on"),
    (("sim", PATH, "--truth", "nowhere/a"), "cannot be written"),
    (("sim", PATH, "--faults", PATH), "no plan of faults"),
])  # fmt: skip
def test_what_cannot_be_is_said_before_anything_begins(
    words: tuple[Any, ...], why: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "rl.bridge", *map(str, words)]
    ran = subprocess.run(command, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, env=os.environ | {"PYTHONPATH": str(ROOT)})  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ")
    assert why in ran.stderr
    assert "running" not in ran.stdout
    assert not list(tmp_path.iterdir())
