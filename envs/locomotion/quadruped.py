"""Quadrupeds from facts: masses, inertias, limits, gains and primitive colliders, no mesh.

A robot is told by its trunk and its front left leg; the other legs are its mirror images, front to
back and left to right.  Frames: x forward, y left, z up; at joint angles of 0 a leg hangs straight
down.  Legs and joints come in the order of the robots' own motors.
"""

from dataclasses import dataclass
from typing import NamedTuple

import mujoco
import numpy as np

from envs.shapes import Ball, Collider, Vec3, form

LEGS = ("FR", "FL", "RR", "RL")
LINKS = ("hip", "thigh", "calf")  # each turned by the joint of its name: abduction, flexion, knee
FEET, BODY = 1, 2  # collision bits: what is to meet the feet, what the rest of the robot
AXES = ((1, 0, 0), (0, 1, 0), (0, 1, 0))
JOINTS = tuple(f"{leg}_{link}" for leg in LEGS for link in LINKS)
ANGLES, SPEEDS = (tuple(f"{joint}_{what}" for joint in JOINTS) for what in ("pos", "vel"))
FOOT_AT, FOOT_VELOCITY = (tuple(f"{leg}_foot_{what}" for leg in LEGS) for what in ("pos", "linvel"))


class Inertial(NamedTuple):
    """Mass of a link, in the link's frame."""

    mass: float  # kg
    com: Vec3  # m
    principal: Vec3  # kg m^2, about the centre of mass
    axes: tuple[float, float, float, float]  # of the principal moments, as a quaternion wxyz
    handed: bool = True  # the right one is the left one's mirror image; else the same part


class Motor(NamedTuple):
    """A joint and what turns it.  Limits are of the joint."""

    front: tuple[float, float]  # rad
    rear: tuple[float, float]  # rad
    torque: float  # N m, at most
    speed: float  # rad/s, at most
    armature: float  # kg m^2, the rotor's inertia as the joint feels it
    frictionloss: float  # N m
    home: float  # rad, the left leg's; abduction has the other sign on the right


@dataclass(frozen=True)
class Quadruped:
    """Facts of a robot; links are those of its front left leg."""

    name: str
    trunk: Inertial
    hip: Inertial
    thigh: Inertial
    calf: Inertial  # and foot
    hip_at: Vec3  # m, in the trunk
    thigh_at: Vec3  # m, in the hip
    calf_at: Vec3  # m, in the thigh
    foot: Ball  # in the calf
    imu_at: Vec3  # m, in the trunk
    motors: tuple[Motor, Motor, Motor]  # of JOINTS
    kp: float  # N m/rad, of the motors' own loop
    kd: float  # N m s/rad, likewise: its torque is limited with kp's
    damping: float  # N m s/rad, of the joints
    height: float  # m, of the trunk where an episode begins: not just where it comes to stand
    trunk_shape: tuple[Collider, ...]
    hip_shape: tuple[Collider, ...]
    thigh_shape: tuple[Collider, ...]
    calf_shape: tuple[Collider, ...]

    @property
    def mass(self) -> float:
        """kg."""
        return self.trunk.mass + 4 * (self.hip.mass + self.thigh.mass + self.calf.mass)

    def pose(self) -> np.ndarray:
        """Joint angles [12] of standing, rad."""
        hip, thigh, calf = (motor.home for motor in self.motors)
        return np.array([q for leg in LEGS for q in (side(leg)[1] * hip, thigh, calf)])

    def limits(self) -> np.ndarray:
        """Joint ranges [12, 2], rad."""
        return np.array([m.front if leg[0] == "F" else m.rear for leg in LEGS for m in self.motors])

    def torques(self) -> np.ndarray:
        """Most torque of each joint [12], N m."""
        return np.array([m.torque for _ in LEGS for m in self.motors])

    def spec(self) -> mujoco.MjSpec:
        """The robot standing in an empty world: bodies, motors as position servos, sensors."""
        spec = mujoco.MjSpec()
        spec.modelname = self.name
        spec.compiler.degree = False
        trunk = spec.worldbody.add_body(name="trunk", pos=(0, 0, self.height))
        trunk.add_freejoint(name="root")
        put_inertia(trunk, self.trunk, np.ones(3))
        put_shape(trunk, "trunk", self.trunk_shape, np.ones(3))
        trunk.add_site(name="imu", pos=self.imu_at)
        for leg in LEGS:
            self._add_leg(spec, trunk, leg)
        add_sensors(spec)
        return spec

    def _add_leg(self, spec: mujoco.MjSpec, trunk: mujoco.MjsBody, leg: str) -> None:
        parent, corner = trunk, side(leg)
        right = np.array([1, corner[1], 1])  # what hangs from the hip points forward on all legs
        links = (
            (self.hip, self.hip_at, self.hip_shape, corner),
            (self.thigh, self.thigh_at, self.thigh_shape, right),
            (self.calf, self.calf_at, self.calf_shape, right),
        )
        for joint, axis, motor, (inertial, at, shape, flip) in zip(
            LINKS, AXES, self.motors, links, strict=True
        ):
            name = f"{leg}_{joint}"
            body = parent.add_body(name=name, pos=np.multiply(at, flip))
            put_inertia(body, inertial, flip if inertial.handed else np.ones(3))
            put_shape(body, name, shape, flip)
            low, high = motor.front if leg[0] == "F" else motor.rear
            body.add_joint(
                name=name, axis=axis, range=(low, high), limited=True, damping=self.damping,
                armature=motor.armature, frictionloss=motor.frictionloss,
            )  # fmt: skip
            servo = spec.add_actuator(
                name=name, target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT,
                ctrlrange=(low, high), ctrllimited=True,
                forcerange=(-motor.torque, motor.torque), forcelimited=True,
            )  # fmt: skip
            servo.set_to_position(kp=self.kp, kv=self.kd)
            parent = body
        radius, at = self.foot
        parent.add_geom(
            name=leg, type=mujoco.mjtGeom.mjGEOM_SPHERE, size=(radius, 0, 0), pos=at,
            contype=0, conaffinity=FEET, condim=3, solimp=(0.9, 0.95, 0.023, 0.5, 2), mass=0,
        )  # fmt: skip
        parent.add_site(name=leg, pos=at)


def add_sensors(spec: mujoco.MjSpec) -> None:
    """What a robot measures: joints and IMU.  And what a simulator knows: the IMU in the world."""
    kinds, objects = mujoco.mjtSensor, mujoco.mjtObj
    for joint, angle, speed in zip(JOINTS, ANGLES, SPEEDS, strict=True):
        of = {"objtype": objects.mjOBJ_JOINT, "objname": joint}
        spec.add_sensor(name=angle, type=kinds.mjSENS_JOINTPOS, **of)
        spec.add_sensor(name=speed, type=kinds.mjSENS_JOINTVEL, **of)
    # Of the IMU, which is not in the trunk's middle.  In its own frame: gyro, accelerometer and
    # velocity.  In the world's: orientation (w x y z), position, linvel, angvel, and upright, where
    # its z axis points.
    of = {"objtype": objects.mjOBJ_SITE, "objname": "imu"}
    for name, kind in {
        "gyro": kinds.mjSENS_GYRO, "accelerometer": kinds.mjSENS_ACCELEROMETER,
        "orientation": kinds.mjSENS_FRAMEQUAT, "velocity": kinds.mjSENS_VELOCIMETER,
        "position": kinds.mjSENS_FRAMEPOS, "upright": kinds.mjSENS_FRAMEZAXIS,
        "linvel": kinds.mjSENS_FRAMELINVEL, "angvel": kinds.mjSENS_FRAMEANGVEL,
    }.items():  # fmt: skip
        spec.add_sensor(name=name, type=kind, **of)
    spec.add_sensor(  # the world's up, as the IMU sees it
        name="up", type=kinds.mjSENS_FRAMEZAXIS, objtype=objects.mjOBJ_XBODY, objname="world",
        reftype=objects.mjOBJ_SITE, refname="imu",
    )  # fmt: skip
    for leg, at, velocity in zip(LEGS, FOOT_AT, FOOT_VELOCITY, strict=True):
        of = {"objtype": objects.mjOBJ_SITE, "objname": leg}
        spec.add_sensor(name=at, type=kinds.mjSENS_FRAMEPOS, **of)
        spec.add_sensor(name=velocity, type=kinds.mjSENS_FRAMELINVEL, **of)


def side(leg: str) -> np.ndarray:
    """Signs [3] that turn the front left leg into `leg`."""
    return np.array([1.0 if leg[0] == "F" else -1.0, 1.0 if leg[1] == "L" else -1.0, 1.0])


def put_inertia(body: mujoco.MjsBody, inertial: Inertial, flip: np.ndarray) -> None:
    """Give `body` the mass of a link mirrored by the signs `flip`."""
    axes = np.zeros(9)
    mujoco.mju_quat2Mat(axes, np.array(inertial.axes) / np.linalg.norm(inertial.axes))
    axes = flip[:, None] * axes.reshape(3, 3)
    full = axes @ np.diag(inertial.principal) @ axes.T
    body.mass, body.ipos = inertial.mass, flip * inertial.com
    body.fullinertia = full[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
    body.explicitinertial = True


def put_shape(
    body: mujoco.MjsBody, name: str, shape: tuple[Collider, ...], flip: np.ndarray
) -> None:
    """Give `body` colliders mirrored by `flip`; they meet what asks for BODY."""
    for i, part in enumerate(shape, 1):
        geom = body.add_geom(name=f"{name}_{i}", contype=0, conaffinity=BODY, condim=3, mass=0)
        form(geom, part, flip)
