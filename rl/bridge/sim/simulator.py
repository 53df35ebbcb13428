"""A simulated robot: the artefact's model on plain MuJoCo, and a log of what became of it.

It knows nothing of the policy.  Its motors hold the last command they were given at every step of
physics.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import mujoco
import numpy as np

from rl.artefact import Artefact
from rl.bridge.sim.body import Body, Hardware
from rl.bridge.wire import Command
from rl.spec import Spec

DAMPING = 2.0  # N m s/rad
MOST_HZ = 100_000
HUNG_M, HELD = 0.5, 1e5  # m above the ground; kg and kg m^2 that hold it there


@dataclass
class Log:
    """What happened, a row per control step."""

    rows: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, **row: Any) -> None:
        for name, value in row.items():
            self.rows.setdefault(name, []).append(np.array(value))

    def write(self, path: Path) -> None:
        count = min(map(len, self.rows.values()), default=0)  # a row may have been cut short
        columns: dict[str, Any] = {name: np.array(x[:count]) for name, x in self.rows.items()}
        np.savez_compressed(path, **columns)


class Robot:
    """The model as a robot: readings out, commands in."""

    def __init__(
        self, found: Artefact, hz: float, hardware: Hardware = Hardware(), seed: int = 0
    ) -> None:
        """One of a kind of `hardware`, with `hz` steps of physics a second."""
        self.spec = spec = found.spec
        self.model = model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
        self.substeps = round(spec.control_dt * hz) if 0 < hz <= MOST_HZ else 0
        if self.substeps < 1 or abs(self.substeps / hz - spec.control_dt) > 1e-9:
            raise ValueError(
                f"--hz is {hz:g}: it needs a multiple of {1 / spec.control_dt:g}, and {MOST_HZ:g} "
                "at most."
            )
        model.opt.timestep = 1 / hz
        self.least_upright = np.cos(np.radians(spec.max_tilt))
        spec.require(*_ordered(model, spec), "The model")
        self.data = mujoco.MjData(model)
        self.servos = [model.actuator(a.name).id for a in spec.actuators]
        self.columns = [_columns(model, sensor.name) for sensor in spec.sensors]
        self.body = Body(hardware, spec, model, np.random.default_rng((seed, 0xB0D1)))
        self.plain = hardware == Hardware()  # and is as its model, but for a fault

    def reset(self, qpos: np.ndarray, qvel: np.ndarray) -> None:
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        mujoco.mj_forward(self.model, self.data)
        self.body.reset(self.data.qpos)
        rest = np.array([a.rest for a in self.spec.actuators])
        gains = [np.array([getattr(a, k) for a in self.spec.actuators]) for k in ("kp", "kd")]
        self.command(Command(0, rest, *gains, damp=False, asked=np.zeros(len(self.spec.command))))

    def home(self) -> tuple[np.ndarray, np.ndarray]:
        """Where it stands at rest: a pose and no speed."""
        if self.model.nkey:  # of its things, too
            return self.model.key_qpos[0].copy(), np.zeros(self.model.nv)
        qpos = self.model.qpos0.copy()
        for actuator, servo in zip(self.spec.actuators, self.servos, strict=True):
            joint = self.model.joint(self.model.actuator_trnid[servo, 0])
            qpos[joint.qposadr[0]] = actuator.rest
        return qpos, np.zeros(self.model.nv)

    def hang(self) -> None:
        """Be held up by a free base, which moves no more; nothing changes for an arm."""
        model = self.model
        if model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE:
            model.qpos0[2] += HUNG_M
            model.dof_armature[:6], model.opt.iterations = HELD, max(model.opt.iterations, 10)
            model.body_gravcomp[1] = 1.0

    def command(self, command: Command) -> None:
        """What the motors do from now on."""
        self.told = command
        kp = np.zeros_like(command.kp) if command.damp else command.kp
        self.data.ctrl[self.servos] = command.targets
        self.model.actuator_gainprm[self.servos, 0] = kp
        self.model.actuator_biasprm[self.servos, 1] = -kp
        self.model.actuator_biasprm[self.servos, 2] = -command.kd

    @property
    def asked(self) -> np.ndarray:
        """Of its bridge [C]."""
        return self.told.asked

    @property
    def damped(self) -> bool:
        return self.told.damp

    def damp(self, damping: float = DAMPING) -> None:
        off = np.zeros(len(self.servos))
        self.command(Command(0, off, off, off + damping, damp=True, asked=self.asked))

    def step(self, substeps: int) -> None:
        if self.plain:
            mujoco.mj_step(self.model, self.data, substeps)
        else:
            for _ in range(substeps):
                self.body.act(self.model, self.data, self.told)
                mujoco.mj_step(self.model, self.data)
                self.body.feel(self.data)
        self.touch = self._contacts()  # of the last step: what follows has no forces yet
        # Sensors of the state that is, not of the one that was a substep ago.
        mujoco.mj_step1(self.model, self.data)

    def readings(self) -> dict[str, np.ndarray]:
        sensed = self.data.sensordata
        readings = {
            sensor.name: sensed[columns].astype(np.float32)
            for sensor, columns in zip(self.spec.sensors, self.columns, strict=True)
        }
        return readings if self.plain else self.body.read(readings)

    @property
    def fallen(self) -> bool:
        """Its first body has turned over, which is no part of what it does."""
        return bool(self.data.xmat[1].reshape(3, 3)[2, 2] < min(0, self.least_upright))

    def facts(self) -> dict[str, Any]:
        """A row of the log: what the last step led to, and what led to it."""
        data = self.data
        return {
            "qpos": data.qpos, "qvel": data.qvel, "targets": self.told.targets,
            "torque": data.actuator_force[self.servos], "command": self.asked,
            "contact": self.touch, "time": data.time, "damped": self.damped,
        }  # fmt: skip

    def truth(self) -> dict[str, Any]:
        """How its joints are [A], whatever it says of them: rad or m, a second, N m or N; and by
        how many degrees its first body leans."""
        at, speeds = self.data.qpos[self.body.qpos], self.data.qvel[self.body.dofs]
        forces = self.data.actuator_force[self.servos]
        lean = float(np.degrees(np.arccos(np.clip(self.data.xmat[1, 8], -1, 1))))
        return {"joints": at.tolist(), "speeds": speeds.tolist(), "forces": forces.tolist(),
                "lean": lean}  # fmt: skip

    def _contacts(self) -> np.ndarray:
        """Force [ngeom] on each geom, the ground's too, along its contacts' normals, N."""
        force, out = np.zeros(6), np.zeros(self.model.ngeom)
        for i in range(self.data.ncon):
            mujoco.mj_contactForce(self.model, self.data, i, force)
            out[self.data.contact[i].geom] += force[0]
        return out


def ticks_of(robot: Robot, rate: float | None, realtime: bool) -> int:
    """Ticks of a wire of `rate` Hz in a step of the policy.

    None: of each of physics in real time, but one of lock step, and of joints whose acceleration is
    limited: on a faster wire these go more smoothly than their policy has learned.
    """
    if rate is None:
        gentle = any(motor.acceleration for motor in robot.spec.actuators)
        return robot.substeps if realtime and not gentle else 1
    dt = robot.spec.control_dt
    ticks = round(dt * rate) if 0 < rate <= robot.substeps / dt else 0
    if not ticks or robot.substeps % ticks or abs(ticks / rate - dt) > 1e-9:
        raise ValueError(
            f"--rate is {rate:g}: it needs a multiple of {1 / dt:g} that divides --hz, "
            f"{robot.substeps / dt:g}."
        )
    return ticks


def _ordered(model: mujoco.MjModel, spec: Spec) -> tuple[list[str], list[str]]:
    """The model's own names: of the sensors that the spec has, in its order, and of actuators."""
    sensors = {model.sensor(i).name for i in range(model.nsensor)}
    return (
        [s.name for s in spec.sensors if s.name in sensors],
        [model.actuator(i).name for i in range(model.nu)],
    )


def _columns(model: mujoco.MjModel, name: str) -> slice:
    sensor = model.sensor(name)
    return slice(sensor.adr[0], sensor.adr[0] + sensor.dim[0])
