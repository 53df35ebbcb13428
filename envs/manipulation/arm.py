"""Robot arms from facts: frames, masses, inertias, limits, gains and primitive colliders, no mesh.

An arm is a chain of links on a table whose top is at height 0, a hand at its end and fingers in
that.  Frames: x ahead, y left, z up.  What an arm's parts touch is the table and things on it, and
never one another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import mujoco
import numpy as np

from envs.shapes import UPRIGHT, Collider, Quat, Vec3, form

THING, ROBOT = 1, 2  # collision bits: what is on the table, the table included, and the arm


class Joint(NamedTuple):
    """A joint, what turns or slides it, and its limits."""

    name: str
    low: float  # rad, or m where it slides
    high: float
    force: float  # N m or N, at most
    speed: float  # rad/s or m/s, at most
    kp: float  # of the motor's own loop
    kd: float
    damping: float
    armature: float  # kg m^2 or kg, the rotor's inertia as the joint feels it
    home: float
    frictionloss: float = 0.0
    axis: Vec3 = (0.0, 0.0, 1.0)
    kind: Literal["hinge", "slide"] = "hinge"
    acceleration: float = 0.0  # rad/s^2, at most; 0: no limit
    torque_rate: float = 0.0  # N m/s, likewise


class Surface(NamedTuple):
    """How a part touches; the defaults are MuJoCo's."""

    friction: Vec3 = (1.0, 0.005, 0.0001)  # sliding, twisting m, rolling m
    condim: int = 3
    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float] = (0.9, 0.95, 0.001)
    priority: int = 0  # of two that touch, the higher one's numbers count


class Link(NamedTuple):
    """A body of the chain, in the frame of the one before, and the joint that carries it."""

    name: str
    at: Vec3  # m
    turn: Quat = UPRIGHT
    mass: float = 0.0  # kg
    com: Vec3 = (0.0, 0.0, 0.0)  # m
    inertia: tuple[float, ...] = ()  # kg m^2 about com, along the link's axes: xx yy zz xy xz yz
    joint: Joint | None = None
    shape: tuple[Collider, ...] = ()
    surface: Surface = Surface()


class Eye(NamedTuple):
    """A camera in the hand: where it sits, and what points right and up in its picture."""

    at: Vec3
    right: Vec3
    up: Vec3
    fovy: float  # degrees


@dataclass(frozen=True)
class Arm:
    """Facts of a robot."""

    name: str
    base: Link
    links: tuple[Link, ...]
    hand: Link
    fingers: tuple[Link, ...]  # the first is driven; others follow it
    tool_at: Vec3  # m, in the hand: between the fingertips
    tool_turn: Quat  # whose z points out of the hand, and whose y is the way the fingers close
    opened: float  # of the fingers' joint: wide open
    shut: float  # closed
    eye: Eye
    reach: float  # m from the first joint's middle, at most
    holds_itself: bool = True  # its own controller bears the links' weight

    @cached_property
    def joints(self) -> tuple[Joint, ...]:
        """Of the chain."""
        return tuple(link.joint for link in self.links if link.joint)

    @property
    def motors(self) -> tuple[Joint, ...]:
        """All that is driven: the chain's joints, then the first finger's."""
        return (*self.joints, *(link.joint for link in self.fingers[:1] if link.joint))

    @cached_property
    def moving(self) -> tuple[str, ...]:
        """Names of all joints."""
        return tuple(x.joint.name for x in (*self.links, *self.fingers) if x.joint)

    @cached_property
    def home(self) -> np.ndarray:
        """Motor positions of its resting stance, the hand open."""
        return np.array([joint.home for joint in self.motors])

    @cached_property
    def limits(self) -> np.ndarray:
        """Ranges [motors, 2] of the motors' joints."""
        return np.array([(joint.low, joint.high) for joint in self.motors])

    def everything(self, motors: np.ndarray) -> np.ndarray:
        """Positions of all joints, whose motors stand so: other fingers as the first."""
        return np.concatenate([motors, [motors[-1]] * (len(self.fingers) - 1)])

    def spec(self) -> mujoco.MjSpec:
        """The arm in an empty world: bodies, motors as position servos, sensors."""
        spec = mujoco.MjSpec()
        spec.modelname = self.name
        spec.compiler.degree = False
        parent = spec.worldbody
        for link in (self.base, *self.links, self.hand):
            parent = self._add(spec, parent, link)
        parent.add_site(name="tool", pos=self.tool_at, quat=self.tool_turn, size=(0.003,) * 3)
        camera = parent.add_camera(name="wrist", pos=self.eye.at, fovy=self.eye.fovy)
        camera.alt.xyaxes = (*self.eye.right, *self.eye.up)
        camera.alt.type = mujoco.mjtOrientation.mjORIENTATION_XYAXES
        for link in self.fingers:
            self._add(spec, parent, link)
        for joint in self.motors:
            servo = spec.add_actuator(
                name=joint.name, target=joint.name, trntype=mujoco.mjtTrn.mjTRN_JOINT,
                ctrlrange=(joint.low, joint.high), ctrllimited=True,
                forcerange=(-joint.force, joint.force), forcelimited=True,
            )  # fmt: skip
            servo.set_to_position(kp=joint.kp, kv=joint.kd)
        first, *others = [link.joint.name for link in self.fingers if link.joint]
        for other in others:
            tie = spec.add_equality(
                type=mujoco.mjtEq.mjEQ_JOINT, name1=first, name2=other,
                objtype=mujoco.mjtObj.mjOBJ_JOINT, solref=(0.005, 1),
            )  # fmt: skip
            tie.data[:2], tie.solimp[:3] = (0, 1), (0.95, 0.99, 0.001)
        self._add_sensors(spec)
        return spec

    def _add(self, spec: mujoco.MjSpec, parent: mujoco.MjsBody, link: Link) -> mujoco.MjsBody:
        body = parent.add_body(
            name=link.name, pos=link.at, quat=link.turn, gravcomp=float(self.holds_itself)
        )
        if link.mass:
            body.mass, body.ipos, body.fullinertia = link.mass, link.com, link.inertia
            body.explicitinertial = True
        if joint := link.joint:
            kind = mujoco.mjtJoint
            body.add_joint(
                name=joint.name, axis=joint.axis, range=(joint.low, joint.high), limited=True,
                type=kind.mjJNT_SLIDE if joint.kind == "slide" else kind.mjJNT_HINGE,
                damping=joint.damping, armature=joint.armature, frictionloss=joint.frictionloss,
            )  # fmt: skip
        for i, part in enumerate(link.shape, 1):
            geom = body.add_geom(name=f"{link.name}_{i}", contype=ROBOT, conaffinity=THING, mass=0)
            form(geom, part)
            set_surface(geom, link.surface)
        return body

    def _add_sensors(self, spec: mujoco.MjSpec) -> None:
        kinds, objects = mujoco.mjtSensor, mujoco.mjtObj
        for joint in self.moving:
            of = {"objtype": objects.mjOBJ_JOINT, "objname": joint}
            spec.add_sensor(name=f"{joint}_pos", type=kinds.mjSENS_JOINTPOS, **of)
            spec.add_sensor(name=f"{joint}_vel", type=kinds.mjSENS_JOINTVEL, **of)
        add_pose_sensors(spec, "tool", objects.mjOBJ_SITE)


def add_pose_sensors(spec: mujoco.MjSpec, name: str, kind: mujoco.mjtObj) -> None:
    """Sensors NAME_pos (m) and NAME_quat (wxyz) of where it is in the world."""
    of = {"objtype": kind, "objname": name}
    spec.add_sensor(name=f"{name}_pos", type=mujoco.mjtSensor.mjSENS_FRAMEPOS, **of)
    spec.add_sensor(name=f"{name}_quat", type=mujoco.mjtSensor.mjSENS_FRAMEQUAT, **of)


def set_surface(geom: mujoco.MjsGeom, surface: Surface) -> None:
    """Give `geom` a surface."""
    geom.friction, geom.condim, geom.priority = surface.friction, surface.condim, surface.priority
    geom.solref, geom.solimp[:3] = surface.solref, surface.solimp


def quat_of(*wxyz: float) -> Quat:
    """The unit quaternion along these numbers."""
    w, x, y, z = np.array(wxyz) / np.linalg.norm(wxyz)
    return (float(w), float(x), float(y), float(z))


def sensor_names(joints: Sequence[str], what: Literal["pos", "vel"]) -> tuple[str, ...]:
    """Of the joints' sensors."""
    return tuple(f"{joint}_{what}" for joint in joints)
