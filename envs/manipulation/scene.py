"""What stands on an arm's table, and how it looks."""

import mujoco
import numpy as np

from envs.manipulation.arm import THING, Surface, add_pose_sensors, set_surface
from envs.shapes import Collider, Vec3, form

SKY, TABLE, EDGE = (0.62, 0.68, 0.74, 1), (0.5, 0.47, 0.43), (0.46, 0.43, 0.39)  # colours
ARM = (0.88, 0.89, 0.91, 1)
HOLD = 1e4  # N, N s/m and their like about an axis, of what is fixed


def put_thing(
    parent: mujoco.MjsBody, name: str, shape: Collider | None, surface: Surface,
    rgba: tuple[float, ...] = (), mass: float = 0.0,
) -> mujoco.MjsGeom:  # fmt: skip
    """Give a body a part that touches; no `shape` is an endless plane."""
    geom = parent.add_geom(name=name, contype=THING, conaffinity=THING, mass=mass)
    if shape is None:
        geom.type, geom.size = mujoco.mjtGeom.mjGEOM_PLANE, (0, 0, 0.01)
        geom.material = "table"
    else:
        form(geom, shape)
    if rgba:
        geom.rgba = rgba
    set_surface(geom, surface)
    return geom


def put_loose(spec: mujoco.MjSpec, name: str, at: Vec3) -> mujoco.MjsBody:
    """A body that lies free, with sensors of its pose and velocity."""
    body = spec.worldbody.add_body(name=name, pos=at)
    body.add_freejoint(name=name)
    add_pose_sensors(spec, name, mujoco.mjtObj.mjOBJ_XBODY)
    body.add_site(name=name, size=(0.001,) * 3, rgba=(0, 0, 0, 0))
    kinds, of = mujoco.mjtSensor, {"objtype": mujoco.mjtObj.mjOBJ_SITE, "objname": name}
    spec.add_sensor(name=f"{name}_linvel", type=kinds.mjSENS_FRAMELINVEL, **of)
    spec.add_sensor(name=f"{name}_gyro", type=kinds.mjSENS_GYRO, **of)
    return body


def put_fixed(spec: mujoco.MjSpec, name: str) -> mujoco.MjsBody:
    """A body fixed where an episode puts it: its joints are x, y, m, and yaw, rad.

    Nothing here is strong enough to move them.
    """
    body = spec.worldbody.add_body(name=name)
    kinds = mujoco.mjtJoint
    for axis, kind, along in (
        ("x", kinds.mjJNT_SLIDE, (1, 0, 0)), ("y", kinds.mjJNT_SLIDE, (0, 1, 0)),
        ("yaw", kinds.mjJNT_HINGE, (0, 0, 1)),
    ):  # fmt: skip
        body.add_joint(
            name=f"{name}_{axis}", type=kind, axis=along, frictionloss=HOLD, damping=HOLD,
            armature=1.0,
        )  # fmt: skip
    add_pose_sensors(spec, name, mujoco.mjtObj.mjOBJ_XBODY)
    return body


def add_looks(spec: mujoco.MjSpec, reach: float) -> None:
    """Of an arm alone, which reaches so far, m: its colour, a sky, a light, and a camera that looks
    at it from before it."""
    for geom in spec.geoms:
        geom.rgba = ARM
    spec.visual.rgba.haze = SKY
    texture = mujoco.mjtTexture
    spec.add_texture(
        name="sky", type=texture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=SKY[:3], rgb2=(0.15, 0.2, 0.25), width=256, height=256,
    )  # fmt: skip
    spec.add_texture(
        name="table", type=texture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=TABLE, rgb2=EDGE, width=256, height=256,
    )  # fmt: skip
    roles = [""] * mujoco.mjtTextureRole.mjNTEXROLE
    roles[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "table"
    spec.add_material(name="table", textures=roles, texrepeat=(5, 5), texuniform=True)
    light = spec.worldbody.add_light(pos=(0.5, -0.5, 2), dir=(0, 0.25, -1))
    light.type = mujoco.mjtLightType.mjLIGHT_DIRECTIONAL
    at, to = reach * np.array([(1.52, 0.64, 0.7), (0.47, 0.0, 0.29)])
    put_camera(spec, "front", at, to, fovy=46)


def put_camera(spec: mujoco.MjSpec, name: str, at: np.ndarray, to: np.ndarray, fovy: float) -> None:
    """A camera that stands `at` a place and looks `to` another."""
    ahead = to - at
    right = np.cross(ahead, (0, 0, 1))
    camera = spec.worldbody.add_camera(name=name, pos=at, fovy=fovy)
    camera.alt.xyaxes = (*right, *np.cross(right, ahead))
    camera.alt.type = mujoco.mjtOrientation.mjORIENTATION_XYAXES
