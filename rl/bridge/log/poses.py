"""Where a robot's bodies are by what it measured: the artefact's model, and MuJoCo's kinematics."""

from collections.abc import Mapping
from typing import NamedTuple

import mujoco
import numpy as np

from rl.artefact import Artefact

SENSOR, OBJECT = mujoco.mjtSensor, mujoco.mjtObj
FREE = mujoco.mjtJoint.mjJNT_FREE
Readings = Mapping[str, np.ndarray]


class Pose(NamedTuple):
    position: np.ndarray  # [nbody, 3] m
    quat: np.ndarray  # [nbody, 4] w x y z


class Body:
    """The model, put into the pose of what was measured.

    A thing that stands free is where its sensors say.  Of one whose turn alone is measured, as a
    walker's, nobody knows where it is: it stands on the ground, at the origin.  One of which
    nothing is measured is not `known`.
    """

    def __init__(self, found: Artefact) -> None:
        self.model = model = mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
        self.data = mujoco.MjData(model)
        if model.nkey:
            self.data.qpos[:] = model.key_qpos[0]
        self.angles = {  # where in qpos a joint's reading belongs
            s.name: int(model.jnt_qposadr[model.sensor(s.name).objid[0]])
            for s in found.spec.sensors if model.sensor(s.name).type[0] == SENSOR.mjSENS_JOINTPOS
        }  # fmt: skip
        self.free = {model.jnt_bodyid[j]: model.jnt_qposadr[j]
                     for j in range(model.njnt) if model.jnt_type[j] == FREE}  # fmt: skip
        self.frames = [x for s in found.spec.sensors if (x := self._frame(s.name))]
        measured = {body for _, _, body, _ in self.frames}
        self.grounded = [b for b in self.free if (b, "pos") not in self._kinds()]
        self.known = np.array([
            self._root(i) not in self.free or self._root(i) in measured
            for i in range(model.nbody)
        ])  # fmt: skip

    def pose(self, readings: Readings) -> Pose:
        data = self.data
        for name, at in self.angles.items():
            data.qpos[at] = readings[name][0]
        for name, kind, body, site in self.frames:
            self._put(kind, self.free[body], site, np.asarray(readings[name], float))
        for body in self.grounded:
            data.qpos[self.free[body] : self.free[body] + 3] = 0
        mujoco.mj_kinematics(self.model, data)
        position = data.xpos.copy()
        for body in self.grounded:
            mine = np.array([self._root(i) == body for i in range(self.model.nbody)])
            position[mine, 2] -= self._lowest(mine)
        return Pose(position, data.xquat.copy())

    def _root(self, body: int) -> int:
        return int(self.model.body_rootid[body])

    def _kinds(self) -> set[tuple[int, str]]:
        return {(body, kind) for _, kind, body, _ in self.frames}

    def _frame(self, name: str) -> tuple[str, str, int, int] | None:
        """Of a sensor that tells of a free body where or how it is: its name, "pos" or "quat",
        the body, and the site it is of or -1."""
        model, sensor = self.model, self.model.sensor(name)
        kind = {int(SENSOR.mjSENS_FRAMEPOS): "pos", int(SENSOR.mjSENS_FRAMEQUAT): "quat"}.get(
            int(sensor.type[0])
        )
        if kind is None or sensor.refid[0] >= 0:
            return None
        of, number = sensor.objtype[0], int(sensor.objid[0])
        if of == OBJECT.mjOBJ_SITE and kind == "quat":
            body, site = int(model.site_bodyid[number]), number
        elif of == OBJECT.mjOBJ_XBODY:
            body, site = number, -1
        else:
            return None
        return (name, kind, body, site) if body in self.free else None

    def _put(self, kind: str, at: int, site: int, value: np.ndarray) -> None:
        """A free body to where its sensor, at a site of it, says that it is."""
        if kind == "pos":
            self.data.qpos[at : at + 3] = value
            return
        if site >= 0:
            back, seen = np.zeros(4), value.copy()
            mujoco.mju_negQuat(back, self.model.site_quat[site])
            mujoco.mju_mulQuat(value, seen, back)
        self.data.qpos[at + 3 : at + 7] = value  # which kinematics makes a unit one

    def _lowest(self, mine: np.ndarray) -> float:
        """m, of the boxes around the geoms of bodies [nbody] bool."""
        which = np.flatnonzero(mine[self.model.geom_bodyid])
        centre, half = np.split(self.model.geom_aabb[which], 2, axis=1)
        down = self.data.geom_xmat[which].reshape(-1, 3, 3)[:, 2]
        low = self.data.geom_xpos[which, 2] + (down * centre - np.abs(down) * half).sum(1)
        return float(low.min(initial=np.inf)) if len(which) else 0.0
