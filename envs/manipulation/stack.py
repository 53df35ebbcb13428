"""An arm puts a block on another and lets go of it."""

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
from envs.manipulation.kinematics import rotation
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
    level,
    plan,
    squared,
)
from envs.manipulation.reachable import check_goals, check_pose
from envs.manipulation.scene import put_loose, put_thing
from envs.manipulation.script import read
from envs.manipulation.tabletop import ROOM, STARTS, Actions, Memory, Rewards, Robot, Tabletop
from envs.shapes import UPRIGHT, Box
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs

HORIZON_S = 8.0
HALF = 0.02  # m, half a block's side
MASS = 0.1  # kg
BLOCKS = {"upper": (0.9, 0.5, 0.2, 1), "lower": (0.25, 0.5, 0.8, 1)}  # and their colours
APART = 0.08  # m between the blocks' middles, at least
OVER, LEVEL = 0.02, 0.005  # m off the middle, and off the height, that still is on top
STILL = 0.05  # m/s
FREE = 0.05  # m from the tool's middle that a block is out of the hand


class Episode(NamedTuple):
    held: Array  # [] int32, control steps that the upper block has stood by itself


@dataclass(frozen=True)
class Stack(Task):
    """Fields are flags: `--env.actions joints`."""

    robot: Suppress[Robot] = "panda"  # which, the name of a task says
    actions: Actions = "ee"
    rewards: Rewards = "dense"
    turned: float = 0.4  # rad, how far from straight blocks may lie
    low: tuple[float, float] = (0.4, -0.18)  # m, corners of where they lie
    high: tuple[float, float] = (0.62, 0.18)
    pixels: int = 0  # a side of the pictures that wrist and front cameras take; 0: none
    scripted: bool = False  # observations hold what an expert reads as well

    program = program  # by which an expert is a policy like any other

    def __post_init__(self) -> None:
        if not self.turned >= 0:
            raise ValueError(f"turned is {self.turned}; it takes rad of at least 0.")
        for z in (HALF, 5 * HALF):
            check_goals(self.table, (*self.low, z), (*self.high, z), "block")
        if self.high[1] - self.low[1] < 2 * APART:
            raise ValueError(f"Blocks need {2 * APART:g} m from side to side, for both to lie in.")

    @cached_property
    def table(self) -> Tabletop:
        start = STARTS[self.robot] if self.actions == "ee" else None
        free = "x", "y", "z", "yaw", "grip"
        return Tabletop(self.robot, self.actions, free, *ROOM[self.robot], started=start)

    @cached_property
    def spec(self) -> TaskSpec:
        kinds = "pos", "quat", "linvel", "gyro"
        sensed = tuple(f"{block}_{kind}" for block in BLOCKS for kind in kinds)
        return self.table.spec(sensed, HORIZON_S, cameras=self.table.cameras(self.pixels))

    @cached_property
    def _model(self) -> mujoco.MjModel:
        scene = self.table.scene()
        lie = []
        for i, (name, colour) in enumerate(BLOCKS.items()):
            body = put_loose(scene, name, (0.5, 0.1 * i, HALF))
            lie += [body.pos, UPRIGHT]
            put_thing(
                body, name, Box((HALF, HALF, HALF)), Surface((1.0, 0.01, 0.001)), colour, MASS
            )
        return self.table.compile(scene, *lie)

    def model(self) -> mujoco.MjModel:
        return self._model

    def memory(self) -> Memory:
        return self.table.memory()

    def reset(self, key: Key, context: tuple[()]) -> Start:
        at_key, side_key, turn_key = jax.random.split(key, 3)
        x, y = jnp.array([self.low, self.high]).T
        along, across = jax.random.uniform(at_key, (2, 2))
        half = (y[1] - y[0] - APART) / 2  # of the table for each, one on its left, one right
        across = y[0] + half * across + jnp.array([0, half + APART])
        at = jnp.stack([x[0] + (x[1] - x[0]) * along, across], 1)
        at = jnp.where(jax.random.bernoulli(side_key), at, at[::-1])
        turns = jax.random.uniform(turn_key, (2,), minval=-self.turned, maxval=self.turned) / 2
        lies = lambda at, half: jnp.stack(  # noqa: E731
            [at[0], at[1], jnp.float32(HALF), jnp.cos(half), 0.0, 0.0, jnp.sin(half)]
        )
        qpos = jnp.concatenate([self.table.start(), lies(at[0], turns[0]), lies(at[1], turns[1])])
        episode = Episode(jnp.int32(0))
        return Start(qpos, jnp.zeros(len(qpos) - 2), memory=self.memory(), episode=episode)

    def check_start(self, qpos: np.ndarray, command: tuple[()]) -> None:
        check_pose(self.table, self.model(), qpos)

    def observe(self, readings: Readings, command: tuple[()], memory: Memory) -> tuple[Obs, Memory]:
        tool, upper, lower = (readings[f"{name}_pos"] for name in ("tool", "upper", "lower"))
        turns = [rotation(readings[f"{n}_quat"])[:, :2].ravel() for n in ("tool", *BLOCKS)]
        moved = [readings[f"upper_{what}"] for what in ("linvel", "gyro")]
        state = [
            self.table.arm_state(readings, memory), tool, *turns, upper - tool, lower - upper,
            upper[2:], *moved,
        ]  # fmt: skip
        seen = self.table.seen(jnp.concatenate(state), readings)
        return read(seen, readings, command, memory) if self.scripted else seen, memory

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        return self.table.targets(action, readings, memory)

    def advance(
        self, key: Key, raw: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[tuple[()], Episode, dict[str, Array]]:
        return command, Episode(self.table.held(episode.held, self.there(raw))), {}

    def reward(
        self, before: Readings, after: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[Array, Metrics]:
        there, fall = self.there(after), lambda x: 1 - jnp.tanh(x)
        kept = self.table.held(episode.held, there) >= self.table.needed
        upper, tool = after["upper_pos"], after["tool_pos"]
        lifted = jnp.clip((upper[2] - HALF) / (2 * HALF), 0, 1)
        close = fall(5 * jnp.linalg.norm(self.off(after)))
        dense = fall(5 * jnp.linalg.norm(upper - tool)) + lifted + 2 * lifted * close + 4 * there
        metrics = {"lifted": lifted, "close": close, "there": there, "success": kept}
        return jnp.where(self.rewards == "dense", dense, there), metrics

    def off(self, raw: Readings) -> Array:
        """From where it should stand to the upper block [3], m."""
        return raw["upper_pos"] - above(raw["lower_pos"], 2 * HALF)

    def there(self, raw: Readings) -> Array:
        """[] bool, it stands on the other, still, and nothing holds it."""
        off, speed = self.off(raw), jnp.linalg.norm(raw["upper_linvel"])
        on = (jnp.linalg.norm(off[:2]) < OVER) & (jnp.abs(off[2]) < LEVEL)
        return on & (speed < STILL) & (jnp.linalg.norm(raw["upper_pos"] - raw["tool_pos"]) > FREE)

    def terminated(self, raw: Readings, episode: Episode) -> Array:
        at = jnp.stack([raw["upper_pos"], raw["lower_pos"]])
        return jnp.any(jnp.abs(at) > 1) | jnp.any(at[:, 2] < 0)

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS

    def plan(self, readings: Readings, command: tuple[()], way: Array, kept: Array) -> Plan:
        """For an expert: above the block, down, shut, above the other, down, open, up."""
        at, tool = readings["upper_pos"], readings["tool_pos"]
        goal, held, wait = above(readings["lower_pos"], 2 * HALF), tool - at, 0.3
        steps = round(wait / self.table.period)
        return plan(
            squared(readings, "tool", "upper"),
            Stage(above(at, 0.1), OPEN),
            Stage(at, OPEN, CLOSE),
            Stage(at, SHUT, BROAD, least=steps),
            Stage(level(tool, 0.14), SHUT),
            Stage(aside(goal, way, by=0.1, height=0.1) + held, SHUT, 0.04),
            Stage(above(goal, 0.05) + held, SHUT, CLOSE),
            Stage(above(goal, 0.002) + held, SHUT, 0.004, least=steps),
            Stage(tool, OPEN, least=steps),
            Stage(above(goal, 0.12), OPEN, speed=0.3),
        )
