"""What the tasks of arms share: a table, what is read, how actions reach motors, what is a success.

Actions are of two kinds.  "joints": each moves a motor's target from where it was, as in MuJoCo
Playground's tasks.  "ee" (the hand): x, y, z and yaw move the tool, which points down, from where
it was told to be, and `grip` is how far the hand is open; joints follow by inverse kinematics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from envs.manipulation import kinematics
from envs.manipulation.arm import Arm, Joint, Surface, sensor_names
from envs.manipulation.inverse import FAR, inverse, pose
from envs.manipulation.panda import PANDA
from envs.manipulation.scene import add_looks, put_thing
from envs.manipulation.so101 import SO101
from envs.shapes import Vec3
from envs.task import Camera, TaskSpec
from rl.motion import Motion, motion
from rl.types import Array, Obs, Readings

ARMS = {"panda": PANDA, "so101": SO101}
Robot = Literal["panda", "so101"]
Actions = Literal["joints", "ee"]
Rewards = Literal["dense", "sparse"]

STARTS = {"panda": (0.5, 0.0, 0.25, 0.0), "so101": (0.22, 0.0, 0.06, 0.0)}  # x y z yaw
ROOM = {  # m, corners of where a tool may be told to be
    "panda": ((0.3, -0.35, 0.015), (0.75, 0.35, 0.5)),
    "so101": ((0.13, -0.16, 0.008), (0.3, 0.16, 0.1)),
}
PERIOD = {"joints": 0.02, "ee": 0.05}  # s between actions
JOINT_STEP = 0.04  # rad, or m of a finger, that an action moves a target
TOOL_STEP = 0.0125  # m, likewise: 0.25 m/s, the reduced speed of ISO 10218-1
YAW_STEP = 0.05  # rad that an action turns the tool: what a Panda's wrist has the torque for
CAMERAS = "wrist", "front"
INSIDE = 0.999  # share of limits that is used: what is rounded later is within them still
LEASH = 0.04  # m that the tool's target may lead the tool: it bounds how hard the tool presses
HELD_S = 0.25  # s that a goal must be kept to count
IK_STEPS = 2  # of inverse kinematics in a control step


class Memory(NamedTuple):
    """What the robot carries."""

    targets: Array  # [motors] as it was told last
    moved: Array  # [motors] by which these differ from those before


@dataclass(frozen=True, eq=False)
class Tabletop:
    """An arm at its table; `free` is what of the tool an action moves where `actions` is "ee"."""

    robot: Robot
    actions: Actions
    free: tuple[str, ...]  # of x, y, z, yaw, grip
    low: Vec3  # m, where the tool may be told to be
    high: Vec3
    timestep: float = 0.005  # s, of physics
    started: tuple[float, float, float, float] | None = None  # x y z yaw; None: the arm's home
    grip: float | None = None  # of the fingers' joint, on what is in the hand at the start

    def __post_init__(self) -> None:
        steps = self.period / self.timestep if self.timestep > 0 else 0
        if steps < 1 or abs(steps - round(steps)) > 1e-6:
            raise ValueError(
                f"timestep is {self.timestep} s; a control step of {self.period} s must be a whole "
                "number of them."
            )

    @property
    def arm(self) -> Arm:
        return ARMS[self.robot]

    @property
    def period(self) -> float:
        return PERIOD[self.actions]

    @property
    def count(self) -> int:
        """Joints of the chain."""
        return len(self.arm.joints)

    @cached_property
    def rest(self) -> np.ndarray:
        """Motor targets [motors] at the start of an episode."""
        home = self.arm.home.copy()
        if self.grip is not None:
            home[-1] = self.arm.shut
        if self.started is None:
            return home
        found, error = inverse(self.arm, self.started[:3], self.started[3])
        if error > FAR:
            raise ValueError(
                f"{self.robot} cannot start at {self.started}: its joints do not reach there."
            )
        return np.concatenate([found, home[self.count :]])

    def scene(self) -> mujoco.MjSpec:
        """The arm, its table, a camera in front of it and a light; tasks add things."""
        spec = self.arm.spec()
        add_looks(spec, self.arm.reach)
        put_thing(spec.worldbody, "table", None, Surface())
        return spec

    def compile(self, spec: mujoco.MjSpec, *things: Sequence[float] | np.ndarray) -> mujoco.MjModel:
        """The model, whose keyframe is the arm at its start and `things` at these qpos."""
        spec.add_key(name="start", qpos=[*self.stand, *(x for thing in things for x in thing)])
        option = spec.option
        option.timestep, option.integrator = self.timestep, mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        option.cone, option.impratio = mujoco.mjtCone.mjCONE_ELLIPTIC, 10
        option.iterations, option.ls_iterations = 20, 50
        return spec.compile()

    def spec(self, sensors: Sequence[str], horizon_s: float, **other: Any) -> TaskSpec:
        """What a task reads and writes; `sensors` besides the arm's own."""
        arm, motors = self.arm, self.arm.motors
        facts: dict[str, Any] = {
            "actuators": tuple(joint.name for joint in motors),
            "low": tuple(joint.low for joint in motors),
            "high": tuple(joint.high for joint in motors),
            "actions": self.free if self.actions == "ee" else (),
            "substeps": round(self.period / self.timestep),
            "control_dt": self.period,
            "horizon": round(horizon_s / self.period),
            "sensors": (
                *sensor_names(arm.moving, "pos"), *sensor_names(arm.moving, "vel"),
                "tool_pos", "tool_quat",
                *sensors,
            ),
            "speeds": tuple(self.fastest(joint) for joint in motors),
            "accelerations": tuple(joint.acceleration for joint in motors),
            "torque_rates": tuple(joint.torque_rate for joint in motors),
        }  # fmt: skip
        return TaskSpec(**(facts | other))

    @cached_property
    def motion(self) -> Motion:
        """What limits the motors' targets, so that the bridge to a robot cuts none."""
        motors = self.arm.motors
        names = "low", "high", "kp", "kd", "acceleration", "torque_rate"
        facts = {n: np.array([getattr(joint, n) for joint in motors], np.float32) for n in names}
        facts["torque"] = np.array([joint.force for joint in motors], np.float32)
        facts["speed"] = np.array([self.fastest(joint) for joint in motors], np.float32)
        return motion(facts, self.period, INSIDE, INSIDE, INSIDE)

    def fastest(self, joint: Joint) -> float:
        """What a motor's target may move in a second; a hand paces itself, told at once."""
        grips = joint in self.arm.motors[self.count :]
        return (joint.high - joint.low) / self.period if grips else joint.speed

    def cameras(self, pixels: int) -> tuple[Camera, ...]:
        """The wrist's and the one in front, of so many pixels a side; none of 0."""
        return tuple(Camera(name, pixels, pixels) for name in CAMERAS) if pixels else ()

    def memory(self) -> Memory:
        rest = jnp.asarray(self.rest, jnp.float32)
        return Memory(rest, jnp.zeros_like(rest))

    @cached_property
    def stand(self) -> np.ndarray:
        """Positions of all the arm's joints at the start of an episode."""
        stand = self.rest.copy()
        if self.grip is not None:
            stand[-1] = self.grip
        return self.arm.everything(stand)

    def start(self) -> Array:
        """The same, on the device."""
        return jnp.asarray(self.stand, jnp.float32)

    def targets(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        """Motor targets of an action, as motors may follow it, which are remembered."""
        before, motion = memory.targets, self.motion
        action = jnp.clip(action, -1, 1)
        if self.actions == "joints":
            wished = before + JOINT_STEP * action
        else:
            wished = self.follow(action, readings, memory)
        angles, speeds = (x[: len(before)] for x in self.joints(readings))
        low, high = motion.bounds(before, angles, speeds, jnp)
        targets = jnp.clip(motion.eased(wished, before, memory.moved, jnp), low, high)
        return targets, Memory(targets, targets - before)

    def follow(self, action: Array, readings: Readings, memory: Memory) -> Array:
        """Motor targets that move the tool as `action` has it, all joints at one pace."""
        arm, asked = self.arm, dict(zip(self.free, action, strict=True))
        before, moved = (x[: self.count] for x in memory)
        told, q = kinematics.forward(arm, before), before
        start = self.start_pose
        by = jnp.stack([asked.get(name, jnp.zeros(())) for name in ("x", "y", "z")])
        fixed = np.array([name not in asked for name in ("x", "y", "z")])
        tool = readings["tool_pos"]
        at = jnp.clip(told.at + TOOL_STEP * by, tool - LEASH, tool + LEASH)
        at = jnp.where(fixed, start[:3], jnp.clip(at, np.array(self.low), np.array(self.high)))
        yaw = start[3]
        if "yaw" in asked:
            yaw = kinematics.yaw_of(told.turn) + YAW_STEP * asked["yaw"]
        turn, rest = kinematics.downward(yaw), jnp.asarray(self.rest[: self.count], jnp.float32)
        for _ in range(IK_STEPS):
            q = kinematics.nearer(arm, q, at, turn, rest)
        q = before + self.motion.together(q - before, moved, jnp)
        fingers = memory.targets[self.count :]
        if "grip" in asked:
            opening = (1 + asked["grip"]) / 2
            fingers = jnp.stack([arm.shut + opening * (arm.opened - arm.shut)])
        return jnp.concatenate([q, fingers])

    @cached_property
    def start_pose(self) -> np.ndarray:
        """Where the tool starts: x y z, m, and yaw, rad."""
        at, turn = pose(self.arm, self.rest)
        return np.array([*at, np.arctan2(turn[1, 0], turn[0, 0])], np.float32)

    def joints(self, readings: Readings) -> tuple[Array, Array]:
        """Positions and speeds [nq of the arm]."""
        moving = self.arm.moving
        gather = lambda what: jnp.concatenate([readings[n] for n in sensor_names(moving, what)])  # noqa: E731
        return gather("pos"), gather("vel")

    def arm_state(self, readings: Readings, memory: Memory) -> Array:
        """What a policy sees of its arm: positions, speeds, and how far targets are ahead."""
        position, speed = self.joints(readings)
        ahead = memory.targets - position[: len(memory.targets)]
        return jnp.concatenate([position, speed, ahead])

    def seen(self, state: Array, readings: Readings) -> Obs:
        """An observation of `state`, and of pictures where there are any."""
        images = {name: readings[name] for name in CAMERAS if name in readings}
        return {"policy": state} | images if images else state

    def held(self, count: Array, now: Array) -> Array:
        """Control steps [] int32 that a goal has been kept, counting this one."""
        return jnp.where(now, count + 1, 0)

    @property
    def needed(self) -> int:
        """Control steps that a goal must be kept to count."""
        return round(HELD_S / self.period)
