"""An arm puts the peg in its hand into a hole that is 1 mm wider.

The peg is held by friction alone.  It and the hole are square: position, turn and tilt must fit.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from tyro.conf import Suppress

from envs.manipulation.arm import Surface
from envs.manipulation.expert import program
from envs.manipulation.kinematics import forward, rotation, yaw_of
from envs.manipulation.plan import (
    CLOSE,
    SHUT,
    WAYS,
    Plan,
    Stage,
    above,
    aside,
    plan,
    squared,
    wrapped,
)  # fmt: skip
from envs.manipulation.reachable import check_goals, check_pose
from envs.manipulation.scene import put_fixed, put_loose, put_thing
from envs.manipulation.script import read
from envs.manipulation.tabletop import TOOL_STEP, Actions, Memory, Rewards, Robot, Tabletop
from envs.shapes import Box
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs

HORIZON_S = 6.0
PEG = 0.01  # m, half its width
LENGTH = 0.05  # m, half
MASS = 0.05  # kg
HELD = 0.02  # m from its middle up to where the hand holds it
DEPTH, WALL = 0.04, 0.03  # m of the hole and of what is about it
FLOOR = 0.01  # m from the table to the hole's floor
IN = 0.03  # m deep that is inserted
INSERTED = 0.024  # m/s, about, by an expert
STRAIGHT = 0.005  # m off the hole's middle that the tip of an inserted peg may be
FINE = (0.004, 0.02), (0.03, 0.15)  # m and rad off, of which a close look tells most
HARD = Surface((0.6, 0.005, 0.0001), 3, (0.004, 1.0), (0.95, 0.99, 0.0005))
GRIPPED = Surface((1.5, 0.02, 0.001), 4, (0.004, 1.0), (0.95, 0.99, 0.0005))
BLUE, GREY = (0.2, 0.45, 0.8, 1), (0.62, 0.62, 0.65, 1)


class Episode(NamedTuple):
    held: Array  # [] int32, control steps that the peg has been in


@dataclass(frozen=True)
class PegInsertion(Task):
    """Fields are flags: `--env.rewards sparse`."""

    robot: Suppress[Robot] = "panda"  # which, the name of a task says
    actions: Actions = "ee"
    rewards: Rewards = "dense"
    clearance: float = 0.001  # m that the hole is wider than the peg; less than 0 fits none
    turned: float = 0.3  # rad, how far from straight the hole may be
    low: tuple[float, float] = (0.45, -0.1)  # m, a corner of where its middle lies
    high: tuple[float, float] = (0.6, 0.1)  # m, the opposite one
    timestep: float = 0.002  # s, of physics
    pixels: int = 0  # a side of the pictures that wrist and front cameras take; 0: none
    scripted: bool = False  # observations hold what an expert reads as well
    sees: Literal["all", "fit"] = "all"  # the arm and all things, or how the peg lies to the hole

    program = program  # by which an expert is a policy like any other

    def __post_init__(self) -> None:
        if not -0.01 <= self.clearance <= 0.02:
            raise ValueError(f"clearance is {self.clearance} m; it lies from -0.01 to 0.02.")
        if not self.turned >= 0:
            raise ValueError(f"turned is {self.turned}; it takes rad of at least 0.")
        for z in (FLOOR + LENGTH + HELD, self.over):
            check_goals(self.table, (*self.low, z), (*self.high, z), "hole")

    @cached_property
    def table(self) -> Tabletop:
        return Tabletop(
            self.robot, self.actions, ("x", "y", "z", "yaw"), timestep=self.timestep,
            low=(0.35, -0.2, FLOOR + LENGTH + HELD - 0.01), high=(0.7, 0.2, 0.25),
            started=(0.5, 0.0, 0.18, 0.0), grip=PEG,
        )  # fmt: skip

    @property
    def top(self) -> float:
        """m, the hole's upper rim."""
        return FLOOR + DEPTH

    @property
    def over(self) -> float:
        """m, where the tool is when the peg's tip is 1 cm above the rim."""
        return self.top + 0.01 + LENGTH + HELD

    @cached_property
    def held(self) -> np.ndarray:
        """The peg's qpos [7] in the hand."""
        x, y, z, turn = self.table.start_pose
        return np.array([x, y, z - HELD, np.cos(turn / 2), 0, 0, np.sin(turn / 2)])

    @cached_property
    def spec(self) -> TaskSpec:
        sensed = "peg_pos", "peg_quat", "peg_linvel", "peg_gyro", "socket_pos", "socket_quat"
        return self.table.spec(sensed, HORIZON_S, cameras=self.table.cameras(self.pixels))

    @cached_property
    def _model(self) -> mujoco.MjModel:
        scene, hole = self.table.scene(), PEG + self.clearance / 2
        body = put_loose(scene, "peg", (0.5, 0.0, 0.2))
        put_thing(body, "peg", Box((PEG, PEG, LENGTH)), GRIPPED, BLUE, MASS)
        socket = put_fixed(scene, "socket")
        half, out = DEPTH / 2, hole + WALL / 2
        long, thick, z = hole + WALL, WALL / 2, FLOOR + half
        parts = {
            "floor": Box((long, long, FLOOR / 2), (0, 0, FLOOR / 2)),
            "front": Box((thick, long, half), (-out, 0, z)),
            "back": Box((thick, long, half), (out, 0, z)),
            "left": Box((hole, thick, half), (0, out, z)),
            "right": Box((hole, thick, half), (0, -out, z)),
        }
        for name, part in parts.items():
            put_thing(socket, f"socket_{name}", part, HARD, GREY, mass=1.0)
        return self.table.compile(scene, self.held, ((self.low[0] + self.high[0]) / 2, 0.0, 0.0))

    def model(self) -> mujoco.MjModel:
        return self._model

    def memory(self) -> Memory:
        return self.table.memory()

    def reset(self, key: Key, context: tuple[()]) -> Start:
        at_key, turn_key = jax.random.split(key)
        low, high = jnp.array(self.low), jnp.array(self.high)
        at = jax.random.uniform(at_key, (2,), minval=low, maxval=high)
        yaw = jax.random.uniform(turn_key, (1,), minval=-self.turned, maxval=self.turned)
        peg = jnp.asarray(self.held, jnp.float32)
        qpos = jnp.concatenate([self.table.start(), peg, at, yaw])
        episode = Episode(jnp.int32(0))
        return Start(qpos, jnp.zeros(len(qpos) - 1), memory=self.memory(), episode=episode)

    def check_start(self, qpos: np.ndarray, command: tuple[()]) -> None:
        check_pose(self.table, self.model(), qpos)

    def observe(self, readings: Readings, command: tuple[()], memory: Memory) -> tuple[Obs, Memory]:
        state = self.fit(readings, memory) if self.sees == "fit" else self.all(readings, memory)
        seen = self.table.seen(jnp.concatenate(state), readings)
        return read(seen, readings, command, memory) if self.scripted else seen, memory

    def all(self, readings: Readings, memory: Memory) -> list[Array]:
        """All that is measured."""
        tool, peg, hole = (readings[f"{name}_pos"] for name in ("tool", "peg", "socket"))
        turns = {n: rotation(readings[f"{n}_quat"]) for n in ("tool", "peg", "socket")}
        seen = jnp.concatenate([turns[n][:, :2].ravel() for n in turns])
        off = turns["socket"].T @ self.off(readings)  # as the hole sees it
        moved = [readings["peg_linvel"], readings["peg_gyro"]]
        arm = self.table.arm_state(readings, memory)
        return [arm, tool, peg - tool, hole - peg, off, seen, *moved]

    def fit(self, readings: Readings, memory: Memory) -> list[Array]:
        """How the peg lies to the hole, as the hole sees it, from afar and close to, and how far
        the hand is told to be ahead: the same wherever the hole is, so little is to be learned."""
        tool, hole = readings["tool_pos"], rotation(readings["socket_quat"])
        off = hole.T @ self.off(readings)
        turn = yaw_of(rotation(readings["peg_quat"])) - yaw_of(hole)
        turn = wrapped(4 * turn) / 4  # they are square
        told = forward(self.table.arm, memory.targets[: self.table.count]).at
        near = [jnp.tanh(off / scale) for scale in FINE[0]]
        near += [jnp.tanh(turn / np.array(FINE[1], np.float32))]
        moves = [hole.T @ (told - tool) / 0.02, hole.T @ readings["peg_linvel"] / 0.1]
        held = (readings["peg_pos"] - tool) / PEG
        return [*near, *moves, off / 0.1, tool[2:] / 0.1, held]

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        return self.table.targets(action, readings, memory)

    def advance(
        self, key: Key, raw: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[tuple[()], Episode, dict[str, Array]]:
        return command, Episode(self.table.held(episode.held, self.there(raw))), {}

    def reward(
        self, before: Readings, after: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[Array, Metrics]:
        there, off = self.there(after), self.off(after)
        kept = self.table.held(episode.held, there) >= self.table.needed
        beside, deep = jnp.linalg.norm(off[:2]), jnp.clip(-off[2] / DEPTH, 0, 1)
        turn = 4 * (yaw_of(rotation(after["peg_quat"])) - yaw_of(rotation(after["socket_quat"])))
        fits = (1 - jnp.tanh(10 * beside)) * (0.5 + 0.5 * jnp.cos(turn))
        low = 1 - jnp.tanh(10 * jnp.maximum(off[2], 0))
        inside = deep * (beside < STRAIGHT)
        metrics = {"beside": beside, "deep": inside, "there": there, "success": kept}
        dense = fits * (1 + low) + 2 * inside + 2 * there
        return jnp.where(self.rewards == "dense", dense, there), metrics

    def off(self, raw: Readings) -> Array:
        """From the middle of the hole's rim to the peg's tip [3], m."""
        tip = raw["peg_pos"] - LENGTH * rotation(raw["peg_quat"])[:, 2]
        return tip - above(raw["socket_pos"], self.top)

    def there(self, raw: Readings) -> Array:
        """[] bool, the peg is in the hole."""
        off = self.off(raw)
        return (off[2] < -IN) & (jnp.linalg.norm(off[:2]) < STRAIGHT)

    def terminated(self, raw: Readings, episode: Episode) -> Array:
        """The peg is out of the hand."""
        return jnp.linalg.norm(raw["peg_pos"] - raw["tool_pos"]) > LENGTH

    @property
    def ways(self) -> tuple[str, ...]:
        return WAYS

    def plan(self, readings: Readings, command: tuple[()], way: Array, kept: Array) -> Plan:
        """For an expert: to above the hole by one side or the other, and down."""
        held = readings["tool_pos"] - (self.off(readings) + above(readings["socket_pos"], self.top))
        rim = above(readings["socket_pos"], self.top) + held
        return plan(
            squared(readings, "peg", "socket"),
            Stage(aside(rim, way, by=0.15, height=0.05), SHUT, 0.05),
            Stage(above(rim, 0.02), SHUT, CLOSE),
            Stage(above(rim, 0.005), SHUT, 0.0004, least=4),
            Stage(above(rim, -IN - 0.007), SHUT, speed=INSERTED * self.table.period / TOOL_STEP),
        )
