"""An arm pushes a T along its table to a pose (after Chi et al. 2023, arXiv:2303.04137).

Fingers stay shut and at one height; x and y are all that an action moves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from tyro.conf import Suppress

from envs.manipulation import pushing
from envs.manipulation.arm import Surface
from envs.manipulation.expert import program
from envs.manipulation.kinematics import rotation, yaw_of
from envs.manipulation.plan import SHUT, Plan, Stage, plan, wrapped
from envs.manipulation.reachable import check_goal, check_goals, check_pose
from envs.manipulation.scene import put_loose, put_thing
from envs.manipulation.script import read
from envs.manipulation.tabletop import Actions, Memory, Rewards, Robot, Tabletop
from envs.shapes import UPRIGHT, Box
from envs.task import Mark, Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs

HORIZON_S = 20.0
HIGH = 0.02  # m, half its height
MASS = 0.2  # kg
NEAR, ALIGNED = 0.015, 0.15  # m and rad off its goal that the T may be
LEAST_TURN = 0.4  # rad off its goal that it starts, at least: more than is aligned
PINK = (0.85, 0.35, 0.5, 1)
SLIPPERY = Surface((0.4, 0.005, 0.0001), 3)

Pose = tuple[float, float, float]  # x, y, m, and yaw, rad


class Episode(NamedTuple):
    held: Array  # [] int32, control steps that the goal has been kept


@dataclass(frozen=True)
class PushT(Task):
    """Fields are flags: `--env.rewards sparse`."""

    robot: Suppress[Robot] = "panda"  # which, the name of a task says
    actions: Actions = "ee"
    rewards: Rewards = "dense"
    precise: float = 0.0  # of dense rewards, for the last centimetre and the last tenths of a rad
    low: tuple[float, float] = (0.47, -0.1)  # m, corners of where the T starts
    high: tuple[float, float] = (0.57, 0.1)
    turned: float = 3.14  # rad off its goal that it starts, at most
    goal_low: Pose = (0.47, -0.06, -0.5)  # m, m, rad: least and most of goals
    goal_high: Pose = (0.57, 0.06, 0.5)
    pixels: int = 0  # a side of the pictures that wrist and front cameras take; 0: none
    scripted: bool = False  # observations hold what an expert reads as well

    program = program  # by which an expert is a policy like any other

    def __post_init__(self) -> None:
        z = float(self.table.start_pose[2])
        far = pushing.AROUND
        if not 0 <= self.precise < math.inf:
            raise ValueError(f"precise is {self.precise}; it is a number of at least 0.")
        for low, high in ((self.low, self.high), (self.goal_low, self.goal_high)):
            if not all(a <= b for a, b in zip(low, high, strict=True)):
                raise ValueError(f"A T's places, from {low} to {high}, have a low above its high.")
            corners = (low[0] - far, low[1] - far, z), (high[0] + far, high[1] + far, z)
            check_goals(self.table, *corners, "place beside a T")
        if not LEAST_TURN <= self.turned <= 3.15:
            raise ValueError(f"turned is {self.turned}; it lies from {LEAST_TURN} to 3.15 rad.")

    @cached_property
    def table(self) -> Tabletop:
        return Tabletop(
            self.robot, self.actions, ("x", "y"), low=(0.3, -0.26, 0.0), high=(0.72, 0.26, 0.1),
            started=(0.33, 0.0, 0.03, 0.0), grip=0.0,
        )  # fmt: skip

    @cached_property
    def spec(self) -> TaskSpec:
        sensed = "tee_pos", "tee_quat", "tee_linvel", "tee_gyro", "tee_ahead"
        places = zip("xy", self.goal_low, self.goal_high, strict=False)
        return self.table.spec(
            sensed, HORIZON_S, cameras=self.table.cameras(self.pixels),
            command=(
                *((axis, "m", low, high) for axis, low, high in places),
                ("ahead x", "1", -1.0, 1.0), ("ahead y", "1", -1.0, 1.0),
            ),
            achieved=(("tee_pos", 2), ("tee_ahead", 2)),
        )  # fmt: skip

    @cached_property
    def _model(self) -> mujoco.MjModel:
        scene = self.table.scene()
        body = put_loose(scene, "tee", (0.5, 0.0, HIGH))
        for name, half, y, share in (
            ("bar", pushing.BAR, pushing.BAR_AT, pushing.BAR_SHARE),
            ("stem", pushing.STEM, pushing.STEM_AT, pushing.STEM_SHARE),
        ):
            shape = Box((*half, HIGH), (0.0, y, 0.0))
            put_thing(body, f"tee_{name}", shape, SLIPPERY, PINK, MASS * share)
        scene.add_sensor(
            name="tee_ahead", type=mujoco.mjtSensor.mjSENS_FRAMEXAXIS,
            objtype=mujoco.mjtObj.mjOBJ_XBODY, objname="tee",
        )  # fmt: skip
        return self.table.compile(scene, body.pos, UPRIGHT)

    def model(self) -> mujoco.MjModel:
        return self._model

    def memory(self) -> Memory:
        return self.table.memory()

    def reset(self, key: Key, context: tuple[()]) -> Start:
        at_key, turn_key, side_key, goal_key = jax.random.split(key, 4)
        low, high = jnp.array(self.goal_low), jnp.array(self.goal_high)
        x, y, yaw = jax.random.uniform(goal_key, (3,), minval=low, maxval=high)
        low, high = jnp.array(self.low), jnp.array(self.high)
        at = jax.random.uniform(at_key, (2,), minval=low, maxval=high)
        turn = jax.random.uniform(turn_key, (), minval=LEAST_TURN, maxval=self.turned)
        half = (yaw + jnp.where(jax.random.bernoulli(side_key), turn, -turn)) / 2
        tee = jnp.stack([at[0], at[1], HIGH, jnp.cos(half), 0, 0, jnp.sin(half)])
        qpos = jnp.concatenate([self.table.start(), tee])
        return Start(
            qpos=qpos,
            qvel=jnp.zeros(len(qpos) - 1),
            command=jnp.stack([x, y, jnp.cos(yaw), jnp.sin(yaw)]),
            memory=self.memory(),
            episode=Episode(jnp.int32(0)),
        )

    def check_start(self, qpos: np.ndarray, command: np.ndarray) -> None:
        check_pose(self.table, self.model(), qpos)
        check_goal(self.table, (*command[:2], HIGH), "goal")
        if abs(np.hypot(*command[2:]) - 1) > 0.01:
            raise ValueError(f"{command[2:]} is no unit vector, which says how a T is to lie.")

    def marks(self, command: np.ndarray) -> Sequence[Mark]:
        x, y, c, s = map(float, command)
        parts = (pushing.BAR, pushing.BAR_AT), (pushing.STEM, pushing.STEM_AT)
        return [
            Mark((x - s * at, y + c * at, HIGH), (*half, HIGH), yaw=float(np.arctan2(s, c)))
            for half, at in parts
        ]

    def observe(self, readings: Readings, command: Array, memory: Memory) -> tuple[Obs, Memory]:
        tool, tee, ahead = readings["tool_pos"], readings["tee_pos"], readings["tee_ahead"]
        off, turn = self.off(readings, command)
        moved = readings["tee_linvel"][:2], readings["tee_gyro"][2:]
        state = [
            self.table.arm_state(readings, memory), tool, tee, ahead[:2], (tool - tee)[:2],
            command, off, jnp.stack([jnp.cos(turn), jnp.sin(turn)]), *moved,
        ]  # fmt: skip
        seen = self.table.seen(jnp.concatenate(state), readings)
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
        there, (off, turn) = self.there(after, command), self.off(after, command)
        kept = self.table.held(episode.held, there) >= self.table.needed
        away = jnp.linalg.norm((after["tool_pos"] - after["tee_pos"])[:2])
        metrics = {"off": jnp.linalg.norm(off), "turn": jnp.abs(turn), "there": there}
        close = jnp.exp(-((metrics["off"] / NEAR) ** 2 + (turn / ALIGNED) ** 2) / 4)
        dense = (
            2 * (1 - jnp.tanh(5 * metrics["off"])) + jnp.cos(turn) + 2 * there
            + 0.2 * (1 - jnp.tanh(5 * away)) + self.precise * close
        )  # fmt: skip
        return jnp.where(self.rewards == "dense", dense, there), metrics | {"success": kept}

    def off(self, raw: Readings, command: Array) -> tuple[Array, Array]:
        """What is left to move [2], m, and to turn [], rad."""
        yaw = jnp.arctan2(command[3], command[2])
        return command[:2] - raw["tee_pos"][:2], wrapped(yaw - yaw_of(rotation(raw["tee_quat"])))

    def there(self, raw: Readings, command: Array) -> Array:
        """[] bool, the T is where and as it should be."""
        off, turn = self.off(raw, command)
        return (jnp.linalg.norm(off) < NEAR) & (jnp.abs(turn) < ALIGNED)

    def terminated(self, raw: Readings, episode: Episode) -> Array:
        """It is out of reach, or off the table."""
        at = raw["tee_pos"]
        return (jnp.abs(at[0] - 0.52) > 0.25) | (jnp.abs(at[1]) > 0.3) | (at[2] < 0)

    @property
    def ways(self) -> tuple[str, ...]:
        return "anticlockwise", "clockwise"

    def plan(self, readings: Readings, command: Array, way: Array, kept: Array) -> Plan:
        """For an expert: push after push, going round the T always the same way."""
        off, turn = self.off(readings, command)
        tool, at = readings["tool_pos"], readings["tee_pos"][:2]
        done = (jnp.linalg.norm(off) < NEAR / 2) & (jnp.abs(turn) < ALIGNED / 2)
        tee = pushing.Sight(at, yaw_of(rotation(readings["tee_quat"])), off, turn)
        to, place = pushing.toward(tool[:2], tee, jnp.array([1.0, -1.0])[way], kept)
        to = jnp.concatenate([jnp.where(done, tool[:2], to), tool[2:]])
        return plan(self.table.start_pose[3], Stage(to, SHUT), kept=place)
