"""How a robot is not its model: its encoders, gears, motors, load and clock, drawn from a seed."""

from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from rl.spec import Spec

KNEE = 0.7  # share of a motor's top speed up to which it has all of its torque
AMBIENT, COOLS_S = 30.0, 60.0  # degrees C; s in which a motor loses most of its heat
DERATES = 80.0, 100.0  # degrees C, between which a motor's torque goes to nothing
FILTER_HZ = 60.0  # of speeds that are differences of a coarse encoder's
STUCK = 1e3  # N m or N, of friction in a joint that does not move


@dataclass(frozen=True)
class Hardware:
    """The most by which a robot of a kind is off its model."""

    quantum: float = 0.0  # rad or m, of an encoder
    bias: float = 0.0  # rad or m, of an encoder's zero
    backlash: float = 0.0  # rad or m, between a motor, which has the encoder, and its joint
    weak: float = 0.0  # share of its gains and torque that a motor lacks
    top: float = 1e3  # times its joint's speed, at which a motor has no torque left
    heats: float = 0.0  # degrees C a second, of a motor at its most torque
    gyro: float = 0.0  # rad/s, standard deviation
    crooked: float = 0.0  # rad, by which the IMU is not as it should be mounted
    payload: float = 0.0  # kg
    drift: float = 0.0  # share by which its clock goes wrong


# Of vendors' sheets where they say it, of our own guess where they do not (bias, weak, backlash).
KINDS = {
    "model": Hardware(),
    "new": Hardware(1e-4, 0.01, 0.003, 0.05, 1.2, 0.5, 0.01, 0.005, 0.2, 2e-5),
    "worn": Hardware(1.5e-3, 0.03, 0.015, 0.15, 1.0, 2.0, 0.05, 0.02, 1.0, 1e-4),
}


class Body:
    """One robot of a kind: what of it is live may be changed by a fault."""

    def __init__(
        self, hardware: Hardware, spec: Spec, model: mujoco.MjModel, rng: np.random.Generator
    ) -> None:
        motors, count = spec.actuators, len(spec.actuators)
        self.hardware, self.spec, self.rng, self.dt = hardware, spec, rng, model.opt.timestep
        self.servos = [model.actuator(a.name).id for a in motors]
        joints = model.actuator_trnid[self.servos, 0]
        self.qpos, self.dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
        self.torque = np.array([a.torque for a in motors])
        self.top = hardware.top * np.array([a.speed for a in motors])
        self.bias = rng.uniform(-1, 1, count) * hardware.bias
        self.share = 1 - rng.uniform(0, 1, count) * hardware.weak  # of gains and torque
        self.drift = rng.uniform(-1, 1) * hardware.drift
        self.turn = _turn(rng.normal(size=3), rng.uniform(0, 1) * hardware.crooked)
        self.friction = model.dof_frictionloss[self.dofs].copy()
        _load(model, rng.uniform(0, 1) * hardware.payload)
        self.strength = np.ones(count)  # live
        self.stuck = np.zeros(count, bool)
        self.heats = np.full(count, AMBIENT)
        self.reset(np.zeros(model.nq))

    def reset(self, qpos: np.ndarray) -> None:
        """A new episode, in which motors are as warm as they were."""
        self.motor = qpos[self.qpos].copy()
        self.seen = self._encoded()
        self.speeds = np.zeros(len(self.torque))

    def act(self, model: mujoco.MjModel, data: mujoco.MjData, told: Any) -> None:
        """Before a step of physics: what motors can do of what they were told, a Command."""
        at, speeds = data.qpos[self.qpos], data.qvel[self.dofs]
        # MuJoCo's servo knows the joint; a motor knows what its encoder says.
        data.ctrl[self.servos] = told.targets + at - self.seen
        kp = np.zeros(len(at)) if told.damp else told.kp * self.share
        model.actuator_gainprm[self.servos, 0] = kp
        model.actuator_biasprm[self.servos, 1] = -kp
        model.actuator_biasprm[self.servos, 2] = -told.kd * self.share
        model.dof_frictionloss[self.dofs] = np.where(self.stuck, STUCK, self.friction)
        most = self.torque * self.share * self.strength * self._cool
        fades = (1 - KNEE) * self.top
        for column, sign in enumerate((-1, 1)):  # to brake, it has all of it
            left = np.clip((self.top - sign * speeds) / fades, 0, 1)
            model.actuator_forcerange[self.servos, column] = sign * most * left

    def feel(self, data: mujoco.MjData) -> None:
        """After a step: where encoders are, and how warm its torque has made motors."""
        at, half = data.qpos[self.qpos], self.hardware.backlash / 2
        self.motor = np.clip(self.motor, at - half, at + half)
        before, self.seen = self.seen, self._encoded()
        rate = (self.seen - before) / self.dt
        self.speeds += min(2 * np.pi * FILTER_HZ * self.dt, 1.0) * (rate - self.speeds)
        load = (data.actuator_force[self.servos] / self.torque) ** 2
        loss = (self.heats - AMBIENT) / COOLS_S
        self.heats += self.dt * (self.hardware.heats * load - loss)

    @property
    def heat(self) -> float:
        """degrees C of the hottest motor, 0 where they never warm up."""
        return float(self.heats.max()) if self.hardware.heats else 0.0

    def read(self, readings: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the robot says of what is."""
        said, coarse = dict(readings), self.hardware.quantum > 0
        for i, motor in enumerate(self.spec.actuators):
            if motor.position:
                said[motor.position] = self.seen[i : i + 1].astype(np.float32)
            if motor.velocity and coarse:
                said[motor.velocity] = self.speeds[i : i + 1].astype(np.float32)
        if "gyro" in said:
            noise = self.rng.normal(0, 1, 3) * self.hardware.gyro
            said["gyro"] = (_rotated(readings["gyro"], self.turn) + noise).astype(np.float32)
        if "orientation" in said:
            tilted = np.zeros(4)
            mujoco.mju_mulQuat(tilted, readings["orientation"].astype(float), self.turn)
            said["orientation"] = tilted.astype(np.float32)
        return said

    def _encoded(self) -> np.ndarray:
        quantum, off = self.hardware.quantum, self.motor + self.bias
        return np.round(off / quantum) * quantum if quantum else off

    @property
    def _cool(self) -> np.ndarray:
        """Share of their torque that hot motors have left."""
        low, high = DERATES
        return np.clip((high - self.heats) / (high - low), 0, 1)


def _turn(axis: np.ndarray, angle: float) -> np.ndarray:
    turn = np.zeros(4)
    mujoco.mju_axisAngle2Quat(turn, axis / np.linalg.norm(axis), angle)
    return turn


def _rotated(vector: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """A vector as seen in a frame that was turned so."""
    back, found = np.zeros(4), np.zeros(3)
    mujoco.mju_negQuat(back, turn)
    mujoco.mju_rotVecQuat(found, vector.astype(float), back)
    return found


def _load(model: mujoco.MjModel, mass: float) -> None:
    """Put a mass on what carries: the hand of an arm, the trunk of a walker."""
    sites = [model.site(i).name for i in range(model.nsite)]
    body = int(model.site("tool").bodyid[0]) if "tool" in sites else 1
    model.body_mass[body] += mass
    if mass:
        mujoco.mj_setConst(model, mujoco.MjData(model))
