"""A quadruped that was dropped gets up and stands.

Starts and terms of the reward are those of MuJoCo Playground's Go1 getup task (Zakka et al. 2025,
arXiv:2502.08844).  Its reward hardly changes until a robot is nearly upright, and is gone while
joints are fast, so that a policy learned to lie still; here each bit of turning over pays, and
speed costs a fiftieth.  Its actions move joints from where they are; here they are offsets from the
standing pose, so that doing nothing stands.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
from tyro.conf import Suppress

from envs.disturb import Disturbance
from envs.locomotion import symmetry
from envs.locomotion.legged import (
    CONTROL_DT,
    FIELDS,
    ROBOTS,
    Legged,
    Memory,
    Robot,
    blank_memory,
    within,
)
from envs.locomotion.terrain import Plane
from envs.randomise import Ranges
from envs.task import Readings, Start, Task, TaskSpec
from rl.mirror import SAME, Mirror, joined
from rl.types import Array, Key, Metrics, Obs

DROP = 0.5  # m, of the trunk, turned anyhow
SETTLE_S = 0.5  # s of falling before the episode
SOFT = 0.95  # share of the joints' ranges, about their middle, that is free
HELD = 100  # control steps of standing that count as up: 2 s


class Episode(NamedTuple):
    action: Array  # [12] the last
    before: Array  # [12] the one before
    held: Array  # [] int32, control steps that it has stood without a break


@dataclass(frozen=True)
class Weights:
    """Of the reward's terms, per second."""

    orientation: float = 1.0
    torso_height: float = 1.0
    posture: float = 1.0
    stand_still: float = 1.0
    action_rate: float = -0.001
    dof_pos_limits: float = -0.1
    torques: float = -1e-5
    dof_acc: float = -2.5e-7
    dof_vel: float = -0.002


@dataclass(frozen=True)
class Getup(Task):
    """Fields are flags: `--env.dropped 1`."""

    robot: Suppress[Robot] = "go1"  # which, the name of a task says
    measured: bool = True  # the policy sees what the robot measures: not its own velocity
    dropped: float = 0.6  # chance to begin dropped; else it begins standing
    action_scale: float = 1.5  # rad
    timestep: float = 0.004  # s, of physics
    noise: float = 1.0  # of the readings, x Playground's
    randomised: float = 0.0  # share of `ranges` to draw from
    ranges: Ranges = Ranges()
    weights: Weights = Weights()

    def __post_init__(self) -> None:
        if not 0 <= self.dropped <= 1:
            raise ValueError(f"dropped is {self.dropped}; it is a chance, from 0 to 1.")
        self.legged.check(self.action_scale, self.ranges.scaled(self.randomised))

    @cached_property
    def legged(self) -> Legged:
        return Legged(ROBOTS[self.robot], Plane(), touching="all", timestep=self.timestep)

    @cached_property
    def spec(self) -> TaskSpec:
        fields = (*FIELDS, "qacc")
        spec = self.legged.spec(self.measured)
        return self.legged.spec(
            self.measured, horizon=300, max_tilt=180.0, fields=fields,
            settle=round(SETTLE_S / self.timestep), privileged=(*spec.privileged, "qacc"),
        )  # fmt: skip

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance(jitter=self.legged.noise(self.noise, self.measured))

    @property
    def mirror(self) -> Mirror:
        policy = symmetry.frame(self.measured)
        critic = joined(policy, symmetry.TRUTHS, SAME)
        return Mirror({"policy": policy, "critic": critic}, symmetry.JOINTS)

    def model(self) -> mujoco.MjModel:
        return self.legged.model

    def dressed(self, meshes: Path) -> mujoco.MjModel:
        return self.legged.dressed(meshes)

    def memory(self) -> Memory:
        return blank_memory(1, 0)

    def reset(self, key: Key, context: tuple[()]) -> Start:
        drop_key, turn_key, pose_key, jolt_key, draw_key = jax.random.split(key, 5)
        low, high = jnp.array(self.legged.robot.limits()).T
        quat = jax.random.normal(turn_key, (4,))
        joints = jax.random.uniform(pose_key, (12,), minval=low, maxval=high)
        fallen = jnp.concatenate([jnp.array([0, 0, DROP]), quat / jnp.linalg.norm(quat), joints])
        standing = jnp.array([0, 0, self.legged.robot.height, 1, 0, 0, 0, *self.legged.pose])
        qpos = jnp.where(jax.random.bernoulli(drop_key, self.dropped), fallen, standing)
        jolt = jax.random.uniform(jolt_key, (6,), minval=-0.5, maxval=0.5)
        rest = jnp.zeros(12)
        return Start(
            qpos=qpos,
            qvel=jnp.concatenate([jolt, rest]),
            params=self.ranges.scaled(self.randomised).draw(
                draw_key, self.model(), "trunk", "ground"
            ),
            memory=self.memory(),
            episode=Episode(rest, rest, jnp.int32(0)),
            ctrl=qpos[7:],
        )

    def observe(self, readings: Readings, command: tuple[()], memory: Memory) -> tuple[Obs, Memory]:
        return self.legged.frame(readings, memory.action, self.measured), memory

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        action = within(action)
        targets = jnp.asarray(self.legged.pose) + self.action_scale * action
        return targets, memory._replace(action=action, before=memory.action)

    def privileged(self, raw: Readings, obs: Obs, episode: Episode) -> Obs:
        return jnp.concatenate([obs, self.legged.truths(raw), raw["position"][2:]])

    def advance(
        self, key: Key, raw: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[tuple[()], Episode, dict[str, Array]]:
        held = jnp.where(self.stands(raw), episode.held + 1, 0)
        return command, Episode(within(action), episode.action, held), {}

    def reward(
        self, before: Readings, after: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[Array, Metrics]:
        parts = self.terms(after, within(action), episode)
        weights = asdict(self.weights)
        total = sum(weights[name] * x for name, x in parts.items())
        stands = self.stands(after)
        up = stands & (episode.held + 1 >= HELD)
        metrics = parts | {"stands": stands.astype(jnp.float32), "up": up.astype(jnp.float32)}
        return jnp.clip(total * CONTROL_DT, 0, 1e4), metrics

    def terms(self, raw: Readings, action: Array, episode: Episode) -> Metrics:
        """Each term of the reward [], before its weight."""
        angles, speeds = self.legged.joints(raw)
        turned = (1 + raw["up"][2]) / 2  # 0 of a robot on its back, 1 of one that is upright
        height, force = jnp.clip(raw["position"][2], 0, self.tall), raw["actuator_force"]
        stands = (turned > 0.9975) & (self.tall - height < 0.005)
        square = lambda x: jnp.sum(x**2)  # noqa: E731
        jerk = action - 2 * episode.action + episode.before
        return {
            "orientation": turned,
            "torso_height": height / self.tall * turned**2,
            "posture": jnp.exp(-0.1 * square(angles)) * turned**2,
            "stand_still": jnp.exp(-0.5 * square(action)) * stands,
            "action_rate": square(action - episode.action) + square(jerk),
            "dof_pos_limits": self.legged.beyond(angles, self.legged.soft_limits(SOFT)),
            "torques": jnp.linalg.norm(force) + jnp.abs(force).sum(),
            "dof_acc": square(raw["qacc"][6:]),
            "dof_vel": square(jnp.maximum(jnp.abs(speeds) - 2 * jnp.pi, 0)),
        }

    @property
    def tall(self) -> float:
        """Height of the IMU that counts as standing, m."""
        return self.legged.robot.height + self.legged.robot.imu_at[2] + 0.003

    def stands(self, raw: Readings) -> Array:
        """[] bool, upright within 18 degrees and at most 5 cm lower than it should be."""
        return (raw["up"][2] > 0.95) & (raw["position"][2] > self.tall - 0.05)
