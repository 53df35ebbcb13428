"""A robot that is not its model, flown in one process: the truth that `identify` is to find.

It shares no line with what fits: motors are wrapped here, commands wait in a queue, and a walker's
trunk is held up by springs.
"""

from collections import deque
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from rl import artefact
from rl.artefact import Artefact
from rl.bridge import messages, states, wire
from rl.bridge.core import Core, Setup
from rl.bridge.drivers.udp import Codec
from rl.bridge.identify.excite import Jogs
from rl.bridge.identify.tracks import Track, tracks
from rl.bridge.limits import Limits
from rl.bridge.log.flight import About, Flight, Heard, Row
from rl.bridge.messages import Operator
from rl.bridge.pilot import Word
from rl.bridge.sim.simulator import Robot
from rl.bridge.wire import Command, State
from rl.spec import Spec

POLICIES = Path(__file__).parent.parent / "benchmarks" / "policies"
GO2, PANDA = "go2-joystick-flat", "panda-reach"
RATES = {GO2: 250, PANDA: 100}  # Hz, of the wire
BEGINS_S = 1.2  # s until jogs begin
HZ = 1000  # steps of physics a second, where the fit has 500
SPRING, TWIST = 5e5, 2e4  # N/m and N m/rad that hold a trunk up, with dampers to go with them


@cache
def policy(name: str) -> Artefact:
    return artefact.read(POLICIES / name / "artefact-0.zip")


@dataclass(frozen=True)
class Truth:
    delay: int  # ticks of physics, from a command's arrival to the motors
    friction: np.ndarray  # [A] N m more than the model's
    damping: np.ndarray  # [A] x kd and the joint's own
    stiffness: np.ndarray  # [A] x kp
    payload: float = 0.0  # kg, in the hand
    noise: tuple[float, float] = (2e-4, 1e-2)  # rad of encoders, rad/s of speeds


def drawn(name: str, seed: int) -> Truth:
    rng, motors = np.random.default_rng(seed), policy(name).spec.actuators
    most = np.array([0.01 * a.torque for a in motors])
    count = len(motors)
    return Truth(
        int(rng.integers(2, 20)), rng.uniform(0, 1, count) * most, rng.uniform(0.7, 1.6, count),
        rng.uniform(0.8, 1.2, count), rng.uniform(0.2, 1.5) if name == PANDA else 0.0,
    )  # fmt: skip


class Planted:
    """The artefact's model with this truth in it."""

    def __init__(self, found: Artefact, truth: Truth, seed: int) -> None:
        self.robot, self.truth = Robot(found, HZ), truth
        self.held = found.spec.max_tilt < 180
        self.rng = np.random.default_rng((seed, 7))
        model = self.robot.model
        dofs = model.jnt_dofadr[model.actuator_trnid[self.robot.servos, 0]]
        model.dof_frictionloss[dofs] += truth.friction
        model.dof_damping[dofs] *= truth.damping
        model.opt.iterations, model.opt.tolerance = 100, 1e-12  # nature has no shortcuts
        sites = [model.site(i).name for i in range(model.nsite)]
        if truth.payload:
            hand = model.site("tool").bodyid[0] if "tool" in sites else 1
            model.body_mass[hand] += truth.payload
        mujoco.mj_setConst(model, mujoco.MjData(model))
        qpos, qvel = self.robot.home()
        if self.held:
            qpos[2] += 1.0
        self.home = qpos.copy()
        self.robot.reset(qpos, qvel)
        self.robot.damp()
        off, asked = np.zeros(len(found.spec.actuators)), np.zeros(len(found.spec.command))
        self.newest = Command(0, off, off, off + 2.0, damp=True, asked=asked)
        self.late = deque([self.newest] * truth.delay)

    def step(self, told: Command | None, substeps: int) -> None:
        if told is not None:
            gains = {"kp": told.kp * self.truth.stiffness, "kd": told.kd * self.truth.damping}
            self.newest = told._replace(**gains)
        for _ in range(substeps):
            self.late.append(self.newest)
            self.robot.command(self.late.popleft())
            if self.held:
                self._hold()
            self.robot.step(1)

    def _hold(self) -> None:
        data, model = self.robot.data, self.robot.model
        off, turn = data.qpos[:3] - self.home[:3], np.zeros(3)
        mujoco.mju_subQuat(turn, data.qpos[3:7], self.home[3:7])
        mass, inertia = model.body_mass.sum(), 0.1
        data.xfrc_applied[1, :3] = -SPRING * off - 0.5 * np.sqrt(SPRING * mass) * data.qvel[:3]
        data.xfrc_applied[1, 3:] = -TWIST * turn - 0.5 * np.sqrt(TWIST * inertia) * data.qvel[3:6]

    def readings(self) -> dict[str, np.ndarray]:
        said = self.robot.readings()
        for name in said:
            size = self.truth.noise[0] if name.endswith("_pos") else 0.0
            size = self.truth.noise[1] if name.endswith(("_vel", "gyro")) else size
            said[name] = (said[name] + self.rng.normal(0, size, said[name].shape)).astype("<f4")
        return said


def flight(
    name: str, truth: Truth, source: Any, seconds: float, *, rate: float, seed: int = 0
) -> Flight:
    """What a bridge's log says of it, driven by a pilot's `source` of words."""
    spec = policy(name).spec
    ticks = round(spec.control_dt * rate)
    body = Planted(policy(name), truth, seed)
    setup = Setup(spec, Limits(stand_s=0.5, blend_s=0.1), ticks)
    core, rows, number = Core(setup, Codec(spec)), [], 0
    core.hear("policy", wire.encode(wire.hello(spec)))
    for k in range(round(seconds * rate)):
        state = State(k, k * core.dt, body.readings(), False)
        heard = [Heard("robot", False, wire.encode(wire.state_message(spec, state)))]
        core.begin(k * core.dt, 0.0)
        core.hear(*_plain(heard[0]))
        if core.tells(k):
            word = source.word(core.status(k))
            number += bool(word.event)
            told = wire.encode(messages.operator_message(spec, _said(word, k, number, spec), 0.0))
            heard.append(Heard("operator", False, told))
            core.hear(*_plain(heard[1]))
        core.sense()
        told = core.act()
        rows.append(Row(k, k * core.dt, 0.0, float("nan"), tuple(heard), told.datagram, told.state,
                        int(told.mask), told.stages))  # fmt: skip
        body.step(told.command, round(HZ / rate))
    first = Heard("policy", False, wire.encode(wire.hello(spec)))
    rows[0] = rows[0]._replace(heard=(first, *rows[0].heard))
    return Flight(About(setup, "udp", 0.0), rows, True)


def _said(word: Word, seq: int, number: int, spec: Spec) -> Operator:
    event = states.ASKED.index(word.event) if word.event else -1
    jog = np.zeros(len(spec.actuators)) if word.jog is None else word.jog
    return Operator(seq, event, number, word.deadman, np.zeros(len(spec.command)), jog)


def _plain(heard: Heard) -> tuple[str, bytes]:
    return heard.source, heard.datagram


@cache
def jogged(name: str, seed: int, seconds: float) -> Flight:
    """With a truth of this seed in it."""
    jogs = Jogs(policy(name).spec, seconds, 0.3, seed)
    return flight(name, drawn(name, seed), jogs, BEGINS_S + seconds, rate=RATES[name], seed=seed)


def stretches(log: Flight) -> list[Track]:
    return tracks(log, Codec(log.about.setup.spec))
