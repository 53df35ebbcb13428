"""An arm takes a block from its table and holds it at a point in the air.

What is seen and the dense reward are those of MuJoCo Playground's PandaPickCube (Zakka et al. 2025,
arXiv:2502.08844).  Its blocks and goals lie up to 0.9 m ahead, where the arm does not reach them
all; here they lie where it does.  An episode lasts 5 s, not 3, as a real arm's limits of motion are
kept here.  That the block was reached is forgotten with the episode; there it outlives it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from tyro.conf import Suppress

from envs.manipulation.arm import Surface
from envs.manipulation.expert import program
from envs.manipulation.kinematics import lowest, rotation
from envs.manipulation.plan import (
    BROAD,
    CLOSE,
    OPEN,
    SHUT,
    WAYS,
    Plan,
    Stage,
    above,
    aside,
    plan,
    squared,
    wrapped,
)
from envs.manipulation.reachable import check_goal, check_goals, check_pose
from envs.manipulation.scene import put_loose, put_thing
from envs.manipulation.script import read
from envs.manipulation.tabletop import ROOM, STARTS, Actions, Memory, Rewards, Robot, Tabletop
from envs.shapes import UPRIGHT, Box, Vec3
from envs.task import Mark, Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs

HORIZON_S = 5.0
REACHED = 0.012  # m from the block that the tool has reached it
YAWS = 1000  # of a rad: how an expert remembers a yaw as a count
YAW_OFFSET = 10_000  # keeps a remembered yaw above -1, which stands for none
CUBE, ORANGE = "cube", (0.9, 0.5, 0.2, 1)
SENSED = ("cube_pos", "cube_quat", "cube_linvel", "cube_gyro")


class Episode(NamedTuple):
    reached: Array  # [] bool, the tool has been at the block
    held: Array  # [] int32, control steps that the goal has been kept


@dataclass(frozen=True)
class Weights:
    """Of the dense reward's terms."""

    gripper_box: float = 4.0
    box_target: float = 8.0
    no_floor_collision: float = 0.25
    robot_target_qpos: float = 0.3


@dataclass(frozen=True)
class PickCube(Task):
    """Fields are flags: `--env.actions joints`."""

    robot: Suppress[Robot] = "panda"  # which, the name of a task says
    actions: Actions = "ee"
    rewards: Rewards = "dense"
    half: Vec3 = (0.02, 0.02, 0.03)  # m, half the block's sides
    mass: float = 0.096  # kg
    friction: float = 1.0
    near: float = 0.025  # m from its goal that the block may be
    turned: float = 0.0  # rad, how far from straight a block may lie
    cube_low: tuple[float, float] = (0.4, -0.2)  # m, corners of where blocks lie
    cube_high: tuple[float, float] = (0.65, 0.2)
    goal_low: Vec3 = (0.4, -0.2, 0.2)  # m, corners of the box that goals lie in
    goal_high: Vec3 = (0.65, 0.2, 0.4)
    weights: Weights = Weights()
    pixels: int = 0  # a side of the pictures that wrist and front cameras take; 0: none
    scripted: bool = False  # observations hold what an expert reads as well

    program = program  # by which an expert is a policy like any other

    def __post_init__(self) -> None:
        for name, x in (("mass", self.mass), ("near", self.near), ("half", min(self.half))):
            if not x > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it takes numbers above 0.")
        if not self.turned >= 0:
            raise ValueError(f"turned is {self.turned}; it takes rad of at least 0.")
        z = self.half[2]
        check_goals(self.table, (*self.cube_low, z), (*self.cube_high, z), "block")
        check_goals(self.table, self.goal_low, self.goal_high, "goal")
        if self.goal_low[2] < z + 2 * self.near:
            raise ValueError(
                f"goal_low is {self.goal_low}: a block that stands on the table would be near a "
                f"goal; goals lie from {z + 2 * self.near:g} m up."
            )

    @cached_property
    def table(self) -> Tabletop:
        start = STARTS[self.robot] if self.actions == "ee" else None
        free = "x", "y", "z", "yaw", "grip"
        return Tabletop(self.robot, self.actions, free, *ROOM[self.robot], started=start)

    @cached_property
    def spec(self) -> TaskSpec:
        axes = zip("xyz", self.goal_low, self.goal_high, strict=True)
        return self.table.spec(
            SENSED, HORIZON_S,
            command=tuple((axis, "m", low, high) for axis, low, high in axes),
            achieved=(("cube_pos", 3),), cameras=self.table.cameras(self.pixels),
        )  # fmt: skip

    @cached_property
    def _model(self) -> mujoco.MjModel:
        scene = self.table.scene()
        body = put_loose(scene, CUBE, (0.5, 0.0, self.half[2]))
        surface = Surface((self.friction, 0.03, 0.003), priority=1)
        put_thing(body, CUBE, Box(self.half), surface, ORANGE, self.mass)
        return self.table.compile(scene, body.pos, UPRIGHT)

    def model(self) -> mujoco.MjModel:
        return self._model

    def memory(self) -> Memory:
        return self.table.memory()

    def reset(self, key: Key, context: tuple[()]) -> Start:
        at_key, turn_key, goal_key = jax.random.split(key, 3)
        low, high = jnp.array(self.cube_low), jnp.array(self.cube_high)
        at = jax.random.uniform(at_key, (2,), minval=low, maxval=high)
        yaw = jax.random.uniform(turn_key, (), minval=-self.turned, maxval=self.turned) / 2
        low, high = jnp.array(self.goal_low), jnp.array(self.goal_high)
        block = jnp.stack([at[0], at[1], self.half[2], jnp.cos(yaw), 0, 0, jnp.sin(yaw)])
        qpos = jnp.concatenate([self.table.start(), block])
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(len(qpos) - 1),
            command=jax.random.uniform(goal_key, (3,), minval=low, maxval=high),
            memory=self.memory(),
            episode=Episode(jnp.bool(False), jnp.int32(0)),
        )

    def check_start(self, qpos: np.ndarray, command: np.ndarray) -> None:
        check_pose(self.table, self.model(), qpos)
        check_goal(self.table, command, "goal")

    def marks(self, command: np.ndarray) -> Sequence[Mark]:
        return [Mark(tuple(command), self.half)]

    def observe(self, readings: Readings, command: Array, memory: Memory) -> tuple[Obs, Memory]:
        position, speed = self.table.joints(readings)
        tool, block = rotation(readings["tool_quat"]), rotation(readings["cube_quat"])
        at = readings["cube_pos"]
        state = [
            position, at, readings["cube_quat"],
            speed, readings["cube_linvel"], readings["cube_gyro"],
            readings["tool_pos"], tool[1:].ravel(), block[1:].ravel(),
            at - readings["tool_pos"], command - at, (jnp.eye(3) - block)[:2].ravel(),
            memory.targets - position[: len(memory.targets)],
        ]  # fmt: skip
        seen = self.table.seen(jnp.concatenate(state), readings)
        return read(seen, readings, command, memory) if self.scripted else seen, memory

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        return self.table.targets(action, readings, memory)

    def advance(
        self, key: Key, raw: Readings, action: Array, command: Array, episode: Episode
    ) -> tuple[Array, Episode, dict[str, Array]]:
        held = self.table.held(episode.held, self.there(raw, command))
        return command, Episode(self.reached(raw, episode), held), {}

    def reward(
        self, before: Readings, after: Readings, action: Array, command: Array, episode: Episode
    ) -> tuple[Array, Metrics]:
        there, terms = self.there(after, command), self.terms(after, command, episode)
        kept = self.table.held(episode.held, there) >= self.table.needed
        dense = sum(getattr(self.weights, name) * x for name, x in terms.items())
        metrics = terms | {"there": there, "success": kept}
        return jnp.where(self.rewards == "dense", dense, there), metrics

    def terms(self, raw: Readings, command: Array, episode: Episode) -> Metrics:
        """Each term of the dense reward [], before its weight."""
        at, block = raw["cube_pos"], rotation(raw["cube_quat"])
        position, _ = self.table.joints(raw)
        turned = jnp.linalg.norm((jnp.eye(3) - block)[:2].ravel())
        off = 0.9 * jnp.linalg.norm(command - at) + 0.1 * turned
        bent = jnp.linalg.norm((position - self.table.start())[: self.table.count])
        fall = lambda x: 1 - jnp.tanh(x)  # noqa: E731
        return {
            "gripper_box": fall(5 * jnp.linalg.norm(at - raw["tool_pos"])),
            "box_target": fall(5 * off) * self.reached(raw, episode),
            "no_floor_collision": jnp.all(lowest(self.table.arm, raw) > 0).astype(jnp.float32),
            "robot_target_qpos": fall(bent),
        }

    def reached(self, raw: Readings, episode: Episode) -> Array:
        near = jnp.linalg.norm(raw["cube_pos"] - raw["tool_pos"]) < REACHED
        return episode.reached | near

    def there(self, raw: Readings, command: Array) -> Array:
        """[] bool, the block is where it should be."""
        return jnp.linalg.norm(raw["cube_pos"] - command) < self.near

    def terminated(self, raw: Readings, episode: Episode) -> Array:
        at = raw["cube_pos"]
        return jnp.any(jnp.abs(at) > 1) | (at[2] < 0)

    @property
    def lift(self) -> float:
        """m above a block, that an expert comes from."""
        return 0.1 if self.robot == "panda" else 0.045

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS

    def plan(self, readings: Readings, command: Array, way: Array, kept: Array) -> Plan:
        """For an expert: above the block, down, shut, and to the goal by one side or the other."""
        at, tool = readings["cube_pos"], readings["tool_pos"]
        held, by, up = tool - at, self.table.arm.reach / 7, self.lift
        first = jnp.round(YAWS * wrapped(squared(readings, "tool", "cube"))).astype(jnp.int32)
        kept = jnp.where(kept < 0, first + YAW_OFFSET, kept)  # a held block's yaw says it no more
        return plan(
            (kept - YAW_OFFSET) / YAWS,
            Stage(aside(at, way, by, 1.4 * up), OPEN, by / 3),
            Stage(above(at, up), OPEN, by / 6),
            Stage(at, OPEN, CLOSE),
            Stage(at, SHUT, BROAD, least=round(0.3 / self.table.period)),
            Stage(aside(command, way, by, 0.0) + held, SHUT, by / 2.5),
            Stage(command + held, SHUT),
            kept=kept,
        )
