"""The artefact's model as joints alone feel it: what is not driven stands still, nothing touches.

A robot with a free base is one on a stand: its base is where the IMU says it is turned to, with so
much inertia that legs do not move it.
"""

import copy
from dataclasses import dataclass

import mujoco
import numpy as np

from rl.artefact import Artefact
from rl.bridge.identify.tracks import Track
from rl.spec import Spec

HEAVY = 1e6  # kg, kg m^2 of what stands still
STEADY = 0.15  # rad/s of a base that stands still
ITERATIONS, TOLERANCE = 100, 1e-12  # of the solver, for derivatives by differences
DRIVEN = [int(mujoco.mjtJoint.mjJNT_HINGE), int(mujoco.mjtJoint.mjJNT_SLIDE)]


@dataclass(frozen=True)
class Bench:
    """J joints have a sensor of their position and of their speed; A of them have motors."""

    spec: Spec
    model: mujoco.MjModel
    base: int  # the joint of a free base, -1 of none
    payload: int  # the body that carries: of the tool, or the first
    positions: list[str]  # sensors [J]
    speeds: list[str]
    qpos: np.ndarray  # [J] addresses
    dofs: np.ndarray
    motors: np.ndarray  # [A] which of J each moves
    servos: np.ndarray  # [A]
    iterations: int  # of the solver, as the model has it

    def starts(self, track: Track, ticks: np.ndarray, first: np.ndarray) -> np.ndarray:
        """States [S, nq + nv + 1] of the physics at these ticks, time 0."""
        model = self.model
        qpos = np.tile(first, (len(ticks), 1))
        qvel = np.zeros((len(ticks), model.nv))
        qpos[:, self.qpos] = column(track, self.positions)[ticks]
        qvel[:, self.dofs] = column(track, self.speeds)[ticks]
        if self.base >= 0 and "orientation" in track.readings:
            at = model.jnt_qposadr[self.base]
            for row, quat in zip(qpos, track.readings["orientation"][ticks], strict=True):
                row[at + 3 : at + 7] = self.turned(quat)
        return np.concatenate([np.zeros((len(ticks), 1)), qpos, qvel], 1)

    def turned(self, quat: np.ndarray) -> np.ndarray:
        """The base's quaternion, where its IMU's is `quat`."""
        mount, back = np.zeros(4), np.zeros(4)
        sensor = self.model.sensor("orientation")
        if sensor.objtype[0] == mujoco.mjtObj.mjOBJ_SITE:
            mujoco.mju_negQuat(back, self.model.site_quat[sensor.objid[0]])
        else:
            back[0] = 1
        mujoco.mju_mulQuat(mount, np.asarray(quat, float), back)
        return mount / np.linalg.norm(mount)

    def steady(self, track: Track) -> np.ndarray:
        """[T] whether a free base stands still; all of an arm's."""
        if self.base < 0:
            return np.ones(len(track.targets), bool)
        turns = np.nan_to_num(np.abs(track.readings["gyro"]).max(1))
        return turns < STEADY


def column(track: Track, names: list[str]) -> np.ndarray:
    return np.concatenate([track.readings[name] for name in names], 1)


def bench(found: Artefact) -> Bench:
    """Of an artefact; ValueError if its policy does not read where all joints are."""
    model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    spec, sensed = found.spec, {s.name for s in found.spec.sensors}
    of: dict[int, list[str]] = {}
    for kind in (mujoco.mjtSensor.mjSENS_JOINTPOS, mujoco.mjtSensor.mjSENS_JOINTVEL):
        for i in range(model.nsensor):
            if int(model.sensor_type[i]) == int(kind) and (name := model.sensor(i).name) in sensed:
                of.setdefault(int(model.sensor_objid[i]), []).append(name)
    driven = [j for j in range(model.njnt) if int(model.jnt_type[j]) in DRIVEN]
    servos = np.array([model.actuator(a.name).id for a in spec.actuators])
    moved = [int(j) for j in model.actuator_trnid[servos, 0]]
    joints = [j for j in driven if len(of.get(j, [])) == 2]
    if lacking := [model.joint(j).name for j in moved if j not in joints]:
        raise ValueError(
            f"This policy does not read the position and speed of {lacking[0]}: its logs do not "
            "say how joints follow."
        )
    free = np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE)
    base = int(free[0]) if len(free) and model.jnt_bodyid[free[0]] == 1 else -1
    if base >= 0 and not {"gyro", "orientation"} <= sensed:
        raise ValueError("This policy reads no gyro and no orientation of its base.")
    iterations = int(model.opt.iterations)
    _still(model, [d for d in range(model.nv) if model.dof_jntid[d] not in joints])
    sites = [model.site(i).name for i in range(model.nsite)]
    payload = int(model.site("tool").bodyid[0]) if "tool" in sites else 1
    return Bench(
        spec, model, base, payload, [of[j][0] for j in joints], [of[j][1] for j in joints],
        model.jnt_qposadr[joints], model.jnt_dofadr[joints],
        np.array([joints.index(j) for j in moved]), servos, iterations,
    )  # fmt: skip


def _still(model: mujoco.MjModel, dofs: list[int]) -> None:
    model.dof_armature[dofs] = HEAVY
    model.dof_frictionloss[dofs] = 0
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    model.opt.iterations, model.opt.tolerance = ITERATIONS, TOLERANCE


def differing(
    bench: Bench, friction: np.ndarray, damping: np.ndarray, stiffness: np.ndarray, payload: float
) -> mujoco.MjModel:
    """The bench's model with other joints [A]: N m or N of friction, and factors; and kg more."""
    model, motors = copy.copy(bench.model), bench.spec.actuators
    kp = stiffness * [a.kp for a in motors]
    model.actuator_gainprm[bench.servos, 0] = kp
    model.actuator_biasprm[bench.servos, 1] = -kp
    model.actuator_biasprm[bench.servos, 2] = -damping * [a.kd for a in motors]
    dofs = bench.dofs[bench.motors]
    model.dof_damping[dofs] *= damping
    model.dof_frictionloss[dofs] = friction
    if payload:
        model.body_mass[bench.payload] += payload
        mujoco.mj_setConst(model, mujoco.MjData(model))
        model.stat.meaninertia = bench.model.stat.meaninertia  # not of what is heavy
    return model
