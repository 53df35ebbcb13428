"""Draws a robot as it is measured, in a process of its own: OpenGL may be missing, or fall.

python -m rl.bridge.page.painter ARTEFACT reads numbers of all sensors from its standard input,
float32, and writes a JPEG for each, after its length.
"""

import io
import os
import struct
import sys
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco import mjtEq, mjtGeom, mjtJoint, mjtTrn
from PIL import Image

from rl import artefact
from rl.bridge import wire
from rl.spec import Spec

SIZE = struct.Struct("<I")
WIDTH, HEIGHT = 640, 400
FLOOR = 10.0  # m, half a side: a plane at least as large is a floor


class Body:
    """A model in the pose that is measured."""

    def __init__(self, model: mujoco.MjModel, spec: Spec) -> None:
        self.model, self.data = model, mujoco.MjData(model)
        self.first = model.key_qpos[0] if model.nkey else model.qpos0
        motors = [(a, model.actuator(a.name)) for a in spec.actuators]
        driven = {a.position: model.joint(int(m.trnid[0])) for a, m in motors
                  if m.trntype[0] == mjtTrn.mjTRN_JOINT and a.position}  # fmt: skip
        self.joints = {name: int(joint.qposadr[0]) for name, joint in driven.items()}
        self.pairs = self._pairs(set(self.joints.values()))
        roots = {model.body_rootid[joint.bodyid[0]] for joint in driven.values()}
        free = [model.joint(int(i)) for i in np.flatnonzero(model.jnt_type == mjtJoint.mjJNT_FREE)]
        self.things = {j.name: int(j.qposadr[0]) for j in free if j.bodyid[0] not in roots}
        self.base = next((int(j.qposadr[0]) for j in free if j.bodyid[0] in roots), None)
        self.geoms = np.flatnonzero(np.isin(model.body_rootid[model.geom_bodyid], [*roots]))

    def pose(self, readings: dict[str, np.ndarray]) -> mujoco.MjData:
        """Joints as measured, and things; a base that is free turned as its IMU says, its lowest
        point at a height of 0.  What nobody measures stays as the model has it."""
        data, qpos, base = self.data, self.data.qpos, self.base
        qpos[:] = self.first
        for name, at in self.joints.items():
            qpos[at] = readings[name][0]
        for follows, leads, offset, slope in self.pairs:
            qpos[follows] = offset + slope * qpos[leads]
        for name, at in self.things.items():
            qpos[at : at + 3] = readings.get(f"{name}_pos", qpos[at : at + 3])
            qpos[at + 3 : at + 7] = readings.get(f"{name}_quat", qpos[at + 3 : at + 7])
        if base is not None:
            qpos[base : base + 3] = 0
            qpos[base + 3 : base + 7] = readings.get("orientation", qpos[base + 3 : base + 7])
            mujoco.mj_kinematics(self.model, data)
            qpos[base + 2] = -min(self.lowest(geom) for geom in self.geoms)
        mujoco.mj_forward(self.model, data)
        return data

    def lowest(self, geom: Any) -> float:
        """The height of its lowest point, m."""
        down, size = self.data.geom_xmat[geom].reshape(3, 3)[2], self.model.geom_size[geom]
        match self.model.geom_type[geom]:
            case mjtGeom.mjGEOM_SPHERE:
                reach = size[0]
            case mjtGeom.mjGEOM_CAPSULE:
                reach = size[0] + abs(down[2]) * size[1]
            case mjtGeom.mjGEOM_CYLINDER:
                reach = np.hypot(*down[:2]) * size[0] + abs(down[2]) * size[1]
            case mjtGeom.mjGEOM_ELLIPSOID:
                reach = np.linalg.norm(down * size)
            case mjtGeom.mjGEOM_BOX:
                reach = np.abs(down) @ size
            case _:  # of a mesh the box around it
                centre, half = np.split(self.model.geom_aabb[geom], 2)
                reach = np.abs(down) @ half - down @ centre
        return float(self.data.geom_xpos[geom, 2] - reach)

    def _pairs(self, measured: set[int]) -> list[tuple[int, int, float, float]]:
        """Joints that go with a measured one, as the other finger of a gripper: where they and it
        are in qpos, an offset and a slope."""
        found, model = [], self.model
        for eq in np.flatnonzero(model.eq_type == mjtEq.mjEQ_JOINT):
            one, other = (int(model.jnt_qposadr[x[eq]]) for x in (model.eq_obj1id, model.eq_obj2id))
            offset, slope = map(float, model.eq_data[eq, :2])
            if other in measured:
                found.append((one, other, offset, slope))
            elif one in measured and slope:
                found.append((other, one, -offset / slope, 1 / slope))
        return found


def prepare(model: mujoco.MjModel) -> None:
    """Draw its large floors without an edge, and all in a hurry."""
    view = model.vis.global_
    view.offwidth, view.offheight = max(view.offwidth, WIDTH), max(view.offheight, HEIGHT)
    model.vis.quality.offsamples = 0  # on a CPU they are half of the time
    large = (model.geom_type == mjtGeom.mjGEOM_PLANE) & (model.geom_size[:, :2].min(1) >= FLOOR)
    model.geom_size[large, :2] = 0
    model.vis.map.haze = 0  # a bright line where an endless floor meets the sky


def main(path: Path) -> None:
    os.nice(10)  # after whatever serves the robot
    found = artefact.read(path)
    spec, model = found.spec, mujoco.MjModel.from_binary_path("m.mjb", {"m.mjb": found.model})
    prepare(model)
    body = Body(model, spec)
    renderer, length = mujoco.Renderer(model, HEIGHT, WIDTH), 4 * sum(s.size for s in spec.sensors)
    while len(row := sys.stdin.buffer.read(length)) == length:
        data = body.pose(wire.by_name(spec, np.frombuffer(row, "<f4")))
        renderer.update_scene(data, 0 if model.ncam else -1)
        file = io.BytesIO()
        Image.fromarray(renderer.render()).save(file, "jpeg", quality=85)
        sys.stdout.buffer.write(SIZE.pack(file.tell()) + file.getvalue())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
