"""Experts that are programs: they do the tasks of arms by the same actions as any policy.

A task says where its tool should go, stage by stage (`plan`), and in how many distinct ways; an
expert goes there, as fast, as shakily and as mistakenly as it is told to.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from envs.manipulation import kinematics
from envs.manipulation.plan import TURN, Plan, wrapped
from envs.manipulation.script import SCRIPT, Script
from envs.manipulation.tabletop import JOINT_STEP, PERIOD, TOOL_STEP, YAW_STEP, Tabletop
from envs.revealed import WORLD, World
from envs.task import TaskSpec
from rl.policy import Policy
from rl.types import Array, Key, Obs, Params, Readings

CLOSELY = 10  # times as near as is near enough
GAIN = 0.4  # of what is left to go, that an action asks for: targets run ahead of the arm


class Planned(Protocol):
    """A task that an expert can do."""

    @property
    def table(self) -> Tabletop: ...
    @property
    def spec(self) -> TaskSpec: ...
    @property
    def ways(self) -> tuple[str, ...]: ...  # in which it can be done
    def plan(self, readings: Readings, command: Array, way: Array, kept: Array) -> Plan: ...


class Carry(NamedTuple):
    """How far an expert has come."""

    stage: Array  # [] int32
    since: Array  # [] int32, control steps that it has been where the stage is to bring it
    close: Array  # [] int32, control steps that it has been close to there
    way: Array  # [] int32; -1: not chosen yet
    mistake: Array  # [3] m, by which it is wrong about where things are
    kept: Array  # [] int32, what its plan wanted to be told; -1: nothing yet


@dataclass(frozen=True)
class Expert:
    """How fast, shakily and mistakenly an expert acts."""

    way: int = -1  # index into the task's ways (99 lists them); -1: drawn anew in each episode
    speed: float = 1.0  # share of the most that an action may move
    noise: float = 0.0  # std of what is added to each action
    mistake: float = 0.0  # m, std of how wrong it is about where things are, in an episode
    patience: float = 0.0  # s that it is close to there before it goes on anyhow; 0: for ever

    def __post_init__(self) -> None:
        for name, good, what in (
            ("speed", 0 < self.speed <= 1, "a share above 0, at most 1"),
            ("noise", 0 <= self.noise < np.inf, "a number of at least 0"),
            ("mistake", 0 <= self.mistake < np.inf, "m of at least 0"),
            ("patience", 0 <= self.patience < np.inf, "s of at least 0"),
        ):
            if not good:
                raise ValueError(f"{name} is {getattr(self, name)}; it takes {what}.")

    def policy(self, task: Planned) -> Policy:
        """It as a policy, which tells its way.

        It needs an environment that is `Revealed`, or a task that is `scripted`, as robots' are.
        """
        count = len(task.ways)
        if not -1 <= self.way < count:
            names = ", ".join(f"{i} ({name})" for i, name in enumerate(task.ways))
            raise ValueError(f"The expert's way is {self.way}; it takes {names}, or -1 for any.")

        def step(params: Params, carry: Carry, obs: Obs, key: Key) -> tuple[Array, Carry, Array]:
            way_key, miss_key, noise_key = jax.random.split(key, 3)
            way = jax.random.randint(way_key, (), 0, count) if self.way < 0 else self.way
            miss = self.mistake * jax.random.normal(miss_key, (3,)) * jnp.array([1.0, 1.0, 0.0])
            begun = carry.way >= 0
            carry = carry._replace(
                way=jnp.where(begun, carry.way, way),
                mistake=jnp.where(begun, carry.mistake, miss),
            )
            read = obs[WORLD] if WORLD in obs else obs[SCRIPT]
            action, carry = self.act(task, read, carry)
            action = action + self.noise * jax.random.normal(noise_key, action.shape)
            return jnp.clip(action, -1, 1), carry, carry.way

        zero = jnp.int32(0)
        fresh = Carry(zero, zero, zero, way=zero - 1, mistake=jnp.zeros(3), kept=zero - 1)
        return Policy(lambda params: fresh, step)

    def act(self, task: Planned, world: World | Script, carry: Carry) -> tuple[Array, Carry]:
        """An action of its stage, and the stage after it."""
        told, tool = world.told, world.told["tool_pos"]
        plan = task.plan(told, world.command, carry.way, carry.kept)
        last, stage = len(plan.yaw) - 1, carry.stage
        to = plan.at[stage] + carry.mistake
        now, near = kinematics.yaw_of(kinematics.rotation(told["tool_quat"])), plan.near[stage]
        turned = jnp.abs(wrapped(plan.yaw[stage] - now)) < TURN * near
        left = jnp.linalg.norm(to - tool)
        there = (left < near) & (turned | ("yaw" not in task.table.free))
        enough = there & (carry.since >= plan.least[stage])
        if self.patience:
            enough |= carry.close * task.table.period > self.patience
        over = enough & (stage < last)
        most = self.speed * plan.speed[stage]
        action = towards(task.table, world, to, plan.yaw[stage], plan.grip[stage], most)
        since = jnp.where(over | ~there, 0, carry.since + 1)
        close = jnp.where(over, 0, carry.close + (left < CLOSELY * near))
        return action, Carry(stage + over, since, close, carry.way, carry.mistake, plan.kept)


def program(task: Any, settings: Any) -> Policy:
    """What acts in a task that is `scripted` by the settings of agents/scripted.py."""
    if not task.scripted:
        raise ValueError("A program acts by what --env.scripted has a task show: give it that.")
    same = {field.name: getattr(settings, field.name) for field in fields(Expert)}
    return Expert(**same).policy(task)


def towards(
    table: Tabletop, world: World | Script, to: Array, yaw: Array, grip: Array, most: Array
) -> Array:
    """An action that brings the tool nearer to there, of at most so much in each number."""
    told, pace = world.told, table.period / PERIOD["ee"]  # as much a second, if not a step
    off = to - told["tool_pos"]
    turn = wrapped(yaw - kinematics.yaw_of(kinematics.rotation(told["tool_quat"])))
    by = dict(zip("xyz", GAIN * off / TOOL_STEP, strict=True)) | {"yaw": GAIN * turn / YAW_STEP}
    moved = {name: jnp.clip(pace * x, -most, most) for name, x in by.items()} | {"grip": grip}
    action = jnp.stack([moved[name] for name in table.free])
    return action if table.actions == "ee" else _by_joints(table, world, action)


def _by_joints(table: Tabletop, world: World | Script, action: Array) -> Array:
    """The joints' steps to where the hand would be told to be."""
    steps = (table.follow(action, world.told, world.memory) - world.memory.targets) / JOINT_STEP
    arm, hand = steps[: table.count], steps[table.count :]
    arm = arm / jnp.maximum(jnp.abs(arm).max(), 1)
    return jnp.concatenate([arm, hand])
