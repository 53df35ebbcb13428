"""What the tasks of quadrupeds share: the model, what is read from it, how actions reach motors."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from envs.locomotion import looks, quadruped
from envs.locomotion.go1 import GO1
from envs.locomotion.go2 import GO2
from envs.locomotion.quadruped import (
    ANGLES,
    FOOT_AT,
    FOOT_VELOCITY,
    JOINTS,
    LEGS,
    SPEEDS,
    Quadruped,
)
from envs.locomotion.terrain import AROUND, Plane, Terrain
from envs.randomise import Ranges
from envs.task import TaskSpec
from rl.types import Array, Readings

ROBOTS = {"go1": GO1, "go2": GO2}
Robot = Literal["go1", "go2"]

Channel = tuple[str, str, float, float]  # of a command: name, unit, least, most

CONTROL_DT = 0.02  # s
HORIZON = 1000  # control steps
FRICTION = 0.6  # of the ground
# What a robot may measure besides its joints and `gyro`, and what none does.
IMU = ("orientation", "up", "velocity", "linvel", "angvel", "upright", "position", "accelerometer")
FIELDS = ("actuator_force",)


class Memory(NamedTuple):
    """What the robot carries."""

    action: Array  # [12] the last
    before: Array  # [12] the one before
    history: Any  # [H - 1, F] earlier frames, newest first; () where there are none


class Feet(NamedTuple):
    """Where the feet are; all [4], but `velocity` [4, 3] m/s in the world."""

    height: Array  # m, of their middle above the ground
    contact: Array  # bool
    velocity: Array


@dataclass(frozen=True, eq=False)
class Legged:
    """A quadruped on its ground."""

    robot: Quadruped
    terrain: Terrain
    touching: Literal["feet", "all"] = "feet"  # what the ground holds up
    timestep: float = 0.004  # s, of physics

    def __post_init__(self) -> None:
        steps = CONTROL_DT / self.timestep if self.timestep > 0 else 0
        if steps < 1 or abs(steps - round(steps)) > 1e-6:
            raise ValueError(
                f"timestep is {self.timestep} s; {CONTROL_DT} s of control takes whole steps of it."
            )

    @cached_property
    def model(self) -> mujoco.MjModel:
        return self.dressed(None)

    def dressed(self, meshes: Path | None) -> mujoco.MjModel:
        """The model as it looks with `meshes`: it moves as it does without."""
        spec = self.robot.spec()
        bits = quadruped.FEET | (quadruped.BODY if self.touching == "all" else 0)
        looks.add(spec)
        if meshes:
            looks.dress(spec, meshes)
        self.terrain.put(spec, bits, FRICTION)
        model = spec.compile()
        model.opt.timestep = self.timestep
        # Playground's line search ends after 5 trials, where MJX's has converged and MuJoCo's has
        # not yet: with 50 the two agree.
        model.opt.iterations, model.opt.ls_iterations = self.terrain.iterations, 50
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_EULERDAMP)
        return model

    @cached_property
    def pose(self) -> np.ndarray:
        """Joint angles [12] at which actions of 0 hold the robot, rad."""
        return self.robot.pose()

    @cached_property
    def mass(self) -> float:
        """kg."""
        return float(self.robot.mass)

    def spec(self, measured: bool, command: tuple[Channel, ...] = (), **other: Any) -> TaskSpec:
        """What a task reads and writes; if not `measured`, its policy is told its velocity too."""
        low, high = self.model.actuator_ctrlrange.T.tolist()
        public = ("orientation",) if measured else ("up", "velocity")
        secret = (*(name for name in IMU if name not in public), *FOOT_AT, *FOOT_VELOCITY)
        facts: dict[str, Any] = {
            "actuators": JOINTS,
            "low": tuple(low),
            "high": tuple(high),
            "substeps": round(CONTROL_DT / self.timestep),
            "control_dt": CONTROL_DT,
            "horizon": HORIZON,
            "sensors": (*ANGLES, *SPEEDS, "gyro", *public, *secret),
            "fields": FIELDS,
            "privileged": (*secret, *FIELDS),
            "command": command,
            "speeds": tuple(motor.speed for _ in LEGS for motor in self.robot.motors),
            "max_tilt": 60.0,
        }
        return TaskSpec(**(facts | other))

    def noise(self, level: float, measured: bool) -> dict[str, float]:
        """Half-ranges of the readings' noise, `level` times MuJoCo Playground's."""
        if not 0 <= level < np.inf:
            raise ValueError(f"noise is {level:g}; it is a factor of Playground's, from 0 on.")
        sizes = {"*_pos": 0.03, "*_vel": 1.5, "gyro": 0.2}
        # A quaternion turns a vector by twice what it is off.
        sizes |= {"orientation": 0.025} if measured else {"up": 0.05, "velocity": 0.1}
        return {name: level * size for name, size in sizes.items()} if level else {}

    def frame(self, readings: Readings, action: Array, measured: bool) -> Array:
        """What a policy is told at a time [42], or of its velocity as well [45]."""
        angles, speeds = self.joints(readings)
        known = () if measured else (readings["velocity"],)
        down = gravity(readings) if measured else -readings["up"]
        return jnp.concatenate([*known, readings["gyro"], down, angles, speeds, action])

    def truths(self, raw: Readings) -> Array:
        """What a critic is told besides [51]: all of it, as it is."""
        angles, speeds = self.joints(raw)
        imu = raw["gyro"], raw["accelerometer"], -raw["up"], raw["velocity"], raw["angvel"]
        return jnp.concatenate([*imu, angles, speeds, raw["actuator_force"]])

    def around(self, raw: Readings) -> Array:
        """How high the ground about it is [18], from its base, m; [0] on a plane."""
        if isinstance(self.terrain, Plane):
            return jnp.zeros(0)
        at = raw["position"][:2] + AROUND @ seen_from_above(raw)
        return self.terrain.height(at) - raw["position"][2]

    def joints(self, readings: Readings) -> tuple[Array, Array]:
        """Angles [12] off `pose`, rad, and speeds [12], rad/s."""
        return gather(readings, ANGLES) - self.pose, gather(readings, SPEEDS)

    def beyond(self, angles: Array, limits: np.ndarray) -> Array:
        """How far joints [12], as `joints` gives them, leave `limits` [12, 2], rad."""
        low, high = limits.T - self.pose
        return jnp.sum(jnp.maximum(low - angles, 0) + jnp.maximum(angles - high, 0))

    def soft_limits(self, share: float) -> np.ndarray:
        """This share of the joints' ranges [12, 2], about their middle, rad."""
        ranges = self.robot.limits()
        middle, half = ranges.mean(1), share * np.ptp(ranges, 1) / 2
        return np.stack([middle - half, middle + half], 1)

    def check(self, action_scale: float, ranges: Ranges) -> None:
        """Raise ValueError for what no such robot can do or be."""
        if not 0 < action_scale < np.inf:
            raise ValueError(f"action_scale is {action_scale}; it takes a number above 0, rad.")
        ranges.check(self.model, "trunk")

    def lowest(self, raw: Readings, legs: tuple[str, ...]) -> Array:
        """Height [n] of the lowest point of each collider of `legs`, but the feet, m."""
        model, kinds = self.model, mujoco.mjtGeom
        names = [model.geom(i).name for i in range(model.ngeom)]
        ids = [i for i, name in enumerate(names) if name.startswith(tuple(f"{x}_" for x in legs))]
        size, kind = model.geom_size[ids], model.geom_type[ids]
        down = raw["geom_xmat"].reshape(-1, 3, 3)[np.array(ids), 2]  # the vertical in its frame
        box = jnp.sum(jnp.abs(down) * size, -1)
        rod = size[:, 1] * jnp.abs(down[:, 2])
        disc = size[:, 0] * jnp.sqrt(jnp.maximum(1 - down[:, 2] ** 2, 0))
        reach = jnp.select(
            [kind == kinds.mjGEOM_BOX, kind == kinds.mjGEOM_CYLINDER, kind == kinds.mjGEOM_CAPSULE],
            [box, rod + disc, rod + size[:, 0]],
            size[:, 0],
        )
        return raw["geom_xpos"].reshape(-1, 3)[np.array(ids), 2] - reach

    def ground_below(self, at: Array) -> Array:
        """The highest ground [] under a robot that stands at `at` [2], however turned, m."""
        reach = np.hypot(*self.robot.hip_at[:2]) + abs(self.robot.thigh_at[1])
        turns = np.linspace(0, 2 * np.pi, 16, endpoint=False)
        ring = reach * np.stack([np.cos(turns), np.sin(turns)], -1)
        return jnp.max(self.terrain.height(at + jnp.array([(0.0, 0.0), *ring])))

    def feet(self, raw: Readings) -> Feet:
        at = jnp.stack([raw[name] for name in FOOT_AT])
        height = at[:, 2] - self.terrain.height(at[:, :2])
        velocity = jnp.stack([raw[name] for name in FOOT_VELOCITY])
        return Feet(height, height <= self.robot.foot.radius, velocity)


def gather(readings: Readings, names: tuple[str, ...]) -> Array:
    """Readings of one number each, [len(names)]."""
    return jnp.concatenate([readings[name] for name in names], axis=-1)


def seen_from_above(readings: Readings) -> Array:
    """Unit vectors [2, 2] of what is ahead of the robot and to its left, along the ground."""
    w, x, y, z = readings["orientation"]
    ahead = jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y + w * z)])
    x, y = ahead / jnp.maximum(jnp.linalg.norm(ahead), 1e-6)
    return jnp.stack([jnp.stack([x, y]), jnp.stack([-y, x])])


def gravity(readings: Readings) -> Array:
    """Unit vector [3] of gravity in the IMU's frame, of its `orientation` (w, x, y, z)."""
    quat = readings["orientation"]
    w, x, y, z = jnp.moveaxis(quat / jnp.linalg.norm(quat, axis=-1, keepdims=True), -1, 0)
    return -jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)


def turned(yaw: Array) -> Array:
    """Quaternion [4] of a turn about the vertical, rad."""
    return jnp.stack([jnp.cos(yaw / 2), jnp.zeros(()), jnp.zeros(()), jnp.sin(yaw / 2)])


def blank_memory(frames: int, size: int) -> Memory:
    """The memory of a robot that has not acted."""
    rest = jnp.zeros(len(JOINTS))
    return Memory(rest, rest, jnp.zeros((frames - 1, size)) if frames > 1 else ())


def within(action: Array) -> Array:
    return jnp.clip(action, -1, 1)
