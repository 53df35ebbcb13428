"""A policy and a robot as two processes: they meet, live through episodes, and lose each other."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import psutil
import pytest

import envs
from agents.ppo import PPO
from experiments.deploy import Deployer, artefact_of
from rl import artefact
from rl.bridge import wire
from rl.bridge.sim.simd import Simulator
from rl.bridge.sim.simulator import Robot

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artefact of a Go2 that stands where it is, and shifts a little as it feels."""
    env, agent = envs.make("go2-joystick-flat"), PPO((8, 8), (2,))
    state = jax.jit(jax.vmap(jax.vmap(env.reset)))(jax.random.split(jax.random.key(0), (1, 4)))
    obs = jax.tree.map(lambda x: x[0, 0], state.obs)
    params = agent.deploy(agent.init(jax.random.key(1), obs, jnp.zeros(12)))
    out = tmp_path_factory.mktemp("artefact")
    log: Any = SimpleNamespace(
        out=out, manifest={"seeds": [0]}, attempt=lambda name, write: write()
    )
    worlds: Any = SimpleNamespace(state=state)
    deployer = Deployer(env, agent.policy(False, 12), "go2")
    deployer.write(log, jax.tree.map(lambda x: x[None], params), worlds)
    return artefact_of(out, 0)


@pytest.fixture
def address() -> str:
    return wire.free_address()


NUMPY = "--runtime", "numpy"  # which has nothing to compile


def bridge(*words: object, root: Path = ROOT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "rl.bridge", *map(str, words)], cwd=root, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False,
        env=os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(root)},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status and all it said."""
    out, err = process.communicate(timeout=120)
    return process.returncode, out + (err or "")


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_they_live_through_their_episodes(
    path: Path, address: str, runtime: str, tmp_path: Path
) -> None:
    starts, script, log = (tmp_path / name for name in ("s.npz", "c.csv", "log.npz"))
    robot = Robot(artefact.read(path), 500)
    qpos, qvel = robot.home()
    np.savez(starts, qpos=np.stack([qpos, qpos]), qvel=np.stack([qvel, qvel + 0.1]))
    script.write_text("0,0,0,0\n1,0.5,0,0\n3,1.5,-0.8,0.1\n")
    sim = bridge("sim", path, "--address", address, "--seconds", 2, "--starts", starts,
                 "--log", log)  # fmt: skip
    run = bridge("run", path, "--robot", address, "--script", script, "--runtime", runtime)
    code, said = ended(run)
    assert code == 0, said
    assert "done     200 ticks" in said
    assert ended(sim)[0] == 0
    found = np.load(log)
    assert found["episode"].tolist() == [0] * 100 + [1] * 100
    asked = found["command"]
    np.testing.assert_allclose(
        asked[[0, 49, 50, 149]], np.array([[0, 0, 0]] * 2 + [[0.5, 0, 0]] * 2)
    )
    np.testing.assert_allclose(asked[150:], np.tile([1.5, -0.8, 0.1], (50, 1)), rtol=1e-6)
    assert np.abs(found["targets"] - qpos[7:]).max() < 0.2
    assert found["qpos"][:, 2].min() > 0.2


def test_in_lock_step_targets_are_those_of_the_same_readings(path: Path, address: str) -> None:
    """The exported policy, driven by hand on what the robot sends, wants what it was sent."""
    found = artefact.read(path)
    run = bridge("run", path, "--robot", address, "--command", "0.3", "0", "0.1")
    host, port = address.split(":")
    link = wire.Link((host, int(port)))
    here, robot = artefact.deploy(found), Robot(found, 500)
    simulator = Simulator(robot, link, realtime=False, ticks=1)
    try:
        simulator.meet(60.0)
        robot.reset(*robot.home())
        simulator.silent = 0.0
        for t in range(50):
            simulator.seq = t + 1
            state = wire.State(t + 1, 0.02 * t, robot.readings(), reset=t == 0, waits=True)
            simulator.link.send(wire.state_message(found.spec, state))
            command = simulator._answer(0.02 * t, time.monotonic() + 60)
            want = here.step(state.readings, np.array([0.3, 0, 0.1], np.float32))
            np.testing.assert_allclose(command.targets, want, atol=1e-6)
            robot.command(command)
            robot.step(robot.substeps)
        simulator.bye(lost=False)
        assert ended(run)[0] == 0
    finally:
        run.kill()
        for one in (link, simulator.link, simulator.clock):
            one.close()


def child(process: subprocess.Popen[str] | psutil.Process, name: str) -> psutil.Process:
    """That which is called so, when the process has begun it."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for one in psutil.Process(process.pid).children():
            if f"rl.bridge.{name}" in one.cmdline():
                return one
        time.sleep(0.01)
    raise AssertionError(f"no {name}")


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("who", ["policyd", "run"])
def test_a_robot_whose_policy_or_pilot_is_gone_is_held(
    path: Path, address: str, who: str, sent: signal.Signals, tmp_path: Path
) -> None:
    """And not damped, as this one stands still."""
    log = tmp_path / "log.npz"
    sim = bridge("sim", path, "--address", address, "--seconds", 4, "--pace", "real",
                 "--log", log)  # fmt: skip
    run = bridge("run", path, "--robot", address, "--limits.late", "9", *NUMPY)
    assert "running" in run.stdout.readline()
    time.sleep(1.5)
    one = psutil.Process(run.pid) if who == "run" else child(run, who)
    one.send_signal(sent)
    code, said = ended(sim)
    if sent == signal.SIGSTOP:
        one.send_signal(signal.SIGCONT)
    _, why = ended(run)
    assert (code, "episodes 1 done" in said) == (0, True), said
    assert "The robot was held at the end: no " in why
    targets = np.load(log)["targets"]
    np.testing.assert_array_equal(targets[-60:], targets[[-1] * 60])
    assert np.abs(np.diff(targets[:50], axis=0)).max() > 0


@pytest.mark.long
def test_a_robot_that_loses_its_bridge_holds_and_is_damped(
    path: Path, address: str, tmp_path: Path
) -> None:
    log = tmp_path / "log.npz"
    sim = bridge("sim", path, "--address", address, "--seconds", 60, "--pace", "real",
                 "--log", log)  # fmt: skip
    run = bridge("run", path, "--robot", address, *NUMPY)
    assert "running" in run.stdout.readline()
    time.sleep(1.5)
    child(run, "robotd").kill()
    began = time.monotonic()
    _, why = ended(run)
    assert "error: The bridge was killed" in why
    assert time.monotonic() - began < 5  # and not after some silence
    code, said = ended(sim)
    assert code == 1
    assert "error: The bridge fell silent; its robot was held, then damped." in said
    found = np.load(log)
    silent, targets = found["silent"], found["targets"]
    gone = int(np.flatnonzero(silent < 0.02)[-1]) + 1  # in whose step nothing was heard
    held = gone + int((silent[gone:] <= 0.1).sum())
    assert held - gone in (3, 4, 5)
    np.testing.assert_array_equal(targets[gone:held], targets[[gone] * (held - gone)])
    assert silent[-1] > 1


def test_a_damped_robot_lies_on_the_ground(path: Path) -> None:
    """Though in training its feet alone touch that."""
    robot = Robot(artefact.read(path), 500)
    robot.reset(*robot.home())
    robot.damp()
    robot.step(2000)
    assert 0.05 < robot.data.qpos[2] < 0.15
    assert np.abs(robot.data.qvel).max() < 0.1


@pytest.mark.long
def test_a_policy_that_loses_its_robot_ends_and_says_so(path: Path, address: str) -> None:
    sim = bridge("sim", path, "--address", address, "--seconds", 60, "--pace", "real")
    run = bridge("run", path, "--robot", address, *NUMPY)
    assert "running" in run.stdout.readline()
    time.sleep(1.0)
    sim.kill()
    ended(sim)
    code, said = ended(run)
    assert code == 1
    assert "lost" in said
    assert "error: The robot fell silent." in said


def test_a_robot_whose_bridge_says_goodbye_is_left_and_not_lost(path: Path, address: str) -> None:
    sim = bridge("sim", path, "--address", address, "--seconds", 60, "--pace", "real")
    run = bridge("run", path, "--robot", address, *NUMPY)
    assert "running" in run.stdout.readline()
    time.sleep(1.0)
    run.send_signal(signal.SIGTERM)
    assert ended(run)[0]
    code, said = ended(sim)
    assert code == 0, said
    assert "episodes 1 left" in said
    assert "starved" not in said


def test_a_robot_that_is_ended_leaves_its_log(path: Path, address: str, tmp_path: Path) -> None:
    log = tmp_path / "log.npz"
    sim = bridge("sim", path, "--address", address, "--seconds", 999, "--log", log)
    run = bridge("run", path, "--robot", address, *NUMPY)
    assert "running" in run.stdout.readline()
    time.sleep(1.0)
    # That of a terminal that was closed, but under nohup, which is to outlive it.
    mine = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    sim.terminate()
    run.send_signal(sent := signal.SIGHUP if mine else signal.SIGTERM)
    codes = [ended(run)[0], ended(sim)[0]]
    assert [*codes, len(np.load(log)["time"]) > 1] == [128 + sent, 143, True]


def test_it_runs_with_nothing_of_training_on_the_disk(
    path: Path, address: str, tmp_path: Path
) -> None:
    for file in [*(ROOT / "rl").glob("*.py"), *(ROOT / "rl" / "bridge").rglob("*.py")]:
        (copy := tmp_path / file.relative_to(ROOT)).parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(file.read_text())
    sim = bridge("sim", path, "--address", address, "--seconds", 1, root=tmp_path)
    run = bridge("run", path, "--robot", address, root=tmp_path)
    for process in (run, sim):
        code, said = ended(process)
        assert code == 0, said
