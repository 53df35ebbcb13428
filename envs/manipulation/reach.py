"""An arm brings its tool to a point in the air and keeps it there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from tyro.conf import Suppress

from envs.manipulation.expert import program
from envs.manipulation.plan import SHUT, WAYS, Plan, Stage, aside, plan
from envs.manipulation.reachable import check_goal, check_goals, check_pose
from envs.manipulation.script import read
from envs.manipulation.tabletop import ROOM, STARTS, Actions, Memory, Rewards, Robot, Tabletop
from envs.shapes import Vec3
from envs.task import Mark, Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs

HORIZON_S = 3.0
NEAR = 0.02  # m from its goal that the tool may be


class Episode(NamedTuple):
    held: Array  # [] int32, control steps that the goal has been kept


@dataclass(frozen=True)
class Reach(Task):
    """Fields are flags: `--env.actions joints`."""

    robot: Suppress[Robot] = "panda"  # which, the name of a task says
    actions: Actions = "ee"
    rewards: Rewards = "dense"
    goal_low: Vec3 = (0.35, -0.3, 0.05)  # m, corners of the box that goals lie in
    goal_high: Vec3 = (0.65, 0.3, 0.45)
    pixels: int = 0  # a side of the pictures that wrist and front cameras take; 0: none
    scripted: bool = False  # observations hold what an expert reads as well

    program = program  # by which an expert is a policy like any other

    def __post_init__(self) -> None:
        check_goals(self.table, self.goal_low, self.goal_high, "goal")

    @cached_property
    def table(self) -> Tabletop:
        return Tabletop(
            self.robot, self.actions, ("x", "y", "z"), *ROOM[self.robot],
            started=STARTS[self.robot],
        )  # fmt: skip

    @cached_property
    def spec(self) -> TaskSpec:
        axes = zip("xyz", self.goal_low, self.goal_high, strict=True)
        return self.table.spec(
            (), HORIZON_S, command=tuple((axis, "m", low, high) for axis, low, high in axes),
            achieved=(("tool_pos", 3),), cameras=self.table.cameras(self.pixels),
        )  # fmt: skip

    @cached_property
    def _model(self) -> mujoco.MjModel:
        return self.table.compile(self.table.scene())

    def model(self) -> mujoco.MjModel:
        return self._model

    def memory(self) -> Memory:
        return self.table.memory()

    def reset(self, key: Key, context: tuple[()]) -> Start:
        low, high = jnp.array(self.goal_low), jnp.array(self.goal_high)
        qpos = self.table.start()
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(len(qpos)),
            command=jax.random.uniform(key, (3,), minval=low, maxval=high),
            memory=self.memory(),
            episode=Episode(jnp.int32(0)),
        )

    def check_start(self, qpos: np.ndarray, command: np.ndarray) -> None:
        check_pose(self.table, self.model(), qpos)
        check_goal(self.table, command, "goal")

    def marks(self, command: np.ndarray) -> Sequence[Mark]:
        return [Mark(tuple(command), (NEAR, NEAR, NEAR), ball=True)]

    def observe(self, readings: Readings, command: Array, memory: Memory) -> tuple[Obs, Memory]:
        at = readings["tool_pos"]
        state = jnp.concatenate([self.table.arm_state(readings, memory), at, command - at])
        seen = self.table.seen(state, readings)
        return read(seen, readings, command, memory) if self.scripted else seen, memory

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        return self.table.targets(action, readings, memory)

    def advance(
        self, key: Key, raw: Readings, action: Array, command: Array, episode: Episode
    ) -> tuple[Array, Episode, dict[str, Array]]:
        return command, Episode(self.table.held(episode.held, self.there(raw, command))), {}

    def reward(
        self, before: Readings, after: Readings, action: Array, command: Array, episode: Episode
    ) -> tuple[Array, Metrics]:
        off, there = self.off(after, command), self.there(after, command)
        kept = self.table.held(episode.held, there) >= self.table.needed
        metrics = {"there": there, "success": kept, "off": off}
        dense = there + 1 - jnp.tanh(5 * off)
        return jnp.where(self.rewards == "dense", dense, there), metrics

    def off(self, raw: Readings, command: Array) -> Array:
        """How far the tool is from its goal [], m."""
        return jnp.linalg.norm(raw["tool_pos"] - command)

    def there(self, raw: Readings, command: Array) -> Array:
        return self.off(raw, command) < NEAR

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS

    def plan(self, readings: Readings, command: Array, way: Array, kept: Array) -> Plan:
        """For an expert: to the goal by a place beside the start."""
        start = jnp.asarray(self.table.start_pose)
        half = (start[:3] + command) / 2
        by = aside(half, way, by=self.table.arm.reach / 7, height=self.table.arm.reach / 30)
        return plan(start[3], Stage(by, SHUT, self.table.arm.reach / 20), Stage(command, SHUT))
