"""A quadruped that rears up and stands on its hind feet.

Most of the reward is that of MuJoCo Playground's Go1 footstand task (Zakka et al. 2025,
arXiv:2502.08844); actions move the targets from where they are.  The penalty of a contact is for
the front feet, as its code means it, and not for all four.  Standing pays as such, the longer
and the stiller the more, and who comes down again has failed: else a robot leaps up each second and
lets itself fall.  Episodes begin anywhere on the way up: from all feet alone it learns to sit half
way up for good, which some learn all the same.  The policy is told where its targets are, which its
last action does not say.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from tyro.conf import Suppress

from envs.disturb import Disturbance
from envs.locomotion import symmetry
from envs.locomotion.legged import CONTROL_DT, FIELDS, ROBOTS, Legged, Robot, turned, within
from envs.locomotion.terrain import Plane
from envs.randomise import Ranges
from envs.task import Readings, Start, Task, TaskSpec
from rl.mirror import SAME, Mirror, joined
from rl.types import Array, Key, Metrics, Obs

TALL = 0.53  # m, of the IMU
SOFT = 0.9  # share of the joints' ranges, about their middle, that is free
HELD = 100  # control steps of standing that count: 2 s
FALLEN = 0.7  # of `rearing`, below which a robot that stood has come down
FRONT = slice(0, 6)  # joints of the front legs; its feet are the first two
BENT = 1.2  # rad, of the knees of a robot that begins reared up
SWAY = 0.1  # rad, that it leans then
HIND = ("RR", "RL")


class Memory(NamedTuple):
    targets: Array  # [12] rad


class Episode(NamedTuple):
    action: Array  # [12] the last
    held: Array  # [] int32, control steps that it has stood without a break
    stood: Array  # [] bool, it has at all


@dataclass(frozen=True)
class Weights:
    """Of the reward's terms, per second."""

    height: float = 1.0
    orientation: float = 1.0
    standing: float = 1.0
    still: float = 1.0
    contact: float = -0.1
    action_rate: float = 0.0
    dof_pos_limits: float = -0.5
    pose: float = -0.1
    energy: float = 0.0


@dataclass(frozen=True)
class Footstand(Task):
    """Fields are flags: `--env.noise 0`."""

    robot: Suppress[Robot] = "go1"  # which, the name of a task says
    measured: bool = False  # the policy sees what the robot measures: not its own velocity
    reared: tuple[float, float] = (0.0, 1.0)  # how far up it begins, from 0, all feet, to 1
    action_scale: float = 0.3  # rad, that targets move by at most in a control step
    timestep: float = 0.004  # s, of physics
    noise: float = 1.0  # of the readings, x Playground's
    randomised: float = 0.0  # share of `ranges` to draw from
    ranges: Ranges = Ranges()
    weights: Weights = Weights()

    def __post_init__(self) -> None:
        if not 0 <= self.reared[0] <= self.reared[1] <= 1:
            raise ValueError(f"reared is {self.reared}; it needs 0 <= least <= most <= 1.")
        self.legged.check(self.action_scale, self.ranges.scaled(self.randomised))

    @cached_property
    def legged(self) -> Legged:
        return Legged(ROBOTS[self.robot], Plane(), touching="all", timestep=self.timestep)

    @cached_property
    def spec(self) -> TaskSpec:
        spec, more = self.legged.spec(self.measured), ("geom_xpos", "geom_xmat")
        return self.legged.spec(
            self.measured, horizon=500, max_tilt=180.0, fields=(*FIELDS, *more),
            privileged=(*spec.privileged, *more),
        )  # fmt: skip

    @property
    def disturbance(self) -> Disturbance:
        sizes = self.legged.noise(self.noise, self.measured)
        return Disturbance(jitter=sizes | ({"*_pos": 0.01 * self.noise} if sizes else {}))

    @property
    def mirror(self) -> Mirror:
        policy = symmetry.frame(self.measured)
        critic = joined(policy, symmetry.TRUTHS, SAME, SAME, SAME)
        return Mirror({"policy": policy, "critic": critic}, symmetry.JOINTS)

    def model(self) -> mujoco.MjModel:
        return self.legged.model

    def dressed(self, meshes: Path) -> mujoco.MjModel:
        return self.legged.dressed(meshes)

    def memory(self) -> Memory:
        return Memory(jnp.float32(self.legged.pose))

    def reset(self, key: Key, context: tuple[()]) -> Start:
        place_key, turn_key, jolt_key, draw_key, rear_key, sway_key = jax.random.split(key, 6)
        at = jax.random.uniform(place_key, (2,), minval=-0.5, maxval=0.5)
        w, _, _, z = turned(jax.random.uniform(turn_key, minval=-3.14, maxval=3.14))
        least, most = self.reared
        way = jax.random.uniform(rear_key, minval=least, maxval=most)
        angle, height, pose = self.stance(way)
        angle += way * jax.random.uniform(sway_key, minval=-SWAY, maxval=SWAY)
        cos, sin = jnp.cos(angle / 2), jnp.sin(angle / 2)
        quat = jnp.stack([w * cos, z * sin, -w * sin, z * cos])
        jolt = jax.random.uniform(jolt_key, (6,), minval=-0.5, maxval=0.5)
        ranges = self.ranges.scaled(self.randomised)
        rest = jnp.zeros(12)
        return Start(
            qpos=jnp.concatenate([at, height[None], quat, pose]),
            qvel=jnp.concatenate([jolt, rest]),
            params=ranges.draw(draw_key, self.model(), "trunk", "ground"),
            memory=Memory(jnp.float32(pose)),
            episode=Episode(rest, jnp.int32(0), jnp.bool(False)),
        )

    def stance(self, way: Array) -> tuple[Array, Array, Array]:
        """What a robot is like that is so far `way` [] from all feet, 0, to reared up, 1.

        The angle [] that its nose points up, rad, the height [] of its trunk, m, and the pose [12],
        rad, whose hind feet are on the ground below their hips.
        """
        robot, pose = self.legged.robot, jnp.asarray(self.legged.pose)
        angle, bend = way * np.pi / 2, way * BENT - (1 - way) * pose[-1]  # of the knees
        hips = (1 - way) * pose[6::3]
        legs = jnp.stack([hips, jnp.full(2, angle + bend / 2), jnp.full(2, -bend)], -1)
        leg = -robot.calf_at[2] * 2 * jnp.cos(bend / 2)  # whose two links are as long
        height = leg + robot.foot.radius + robot.hip_at[0] * jnp.sin(angle)
        return angle, height, pose.at[6:].set(legs.ravel())

    def observe(self, readings: Readings, command: tuple[()], memory: Memory) -> tuple[Obs, Memory]:
        moved = memory.targets - jnp.asarray(self.legged.pose)
        return self.legged.frame(readings, moved, self.measured), memory

    def control(self, action: Array, readings: Readings, memory: Memory) -> tuple[Array, Memory]:
        action, (low, high) = within(action), jnp.array(self.legged.robot.limits()).T
        # Within the joints' ranges: targets that ran away would take as long to come back.
        targets = jnp.clip(memory.targets + self.action_scale * action, low, high)
        return targets, Memory(targets)

    def privileged(self, raw: Readings, obs: Obs, episode: Episode) -> Obs:
        so_far = jnp.stack([jnp.minimum(1, episode.held / HELD), jnp.float32(episode.stood)])
        return jnp.concatenate([obs, self.legged.truths(raw), raw["position"][2:], so_far])

    def advance(
        self, key: Key, raw: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[tuple[()], Episode, dict[str, Array]]:
        held = jnp.where(self.stands(raw), episode.held + 1, 0)
        return command, Episode(within(action), held, episode.stood | (held > 0)), {}

    def reward(
        self, before: Readings, after: Readings, action: Array, command: tuple[()], episode: Episode
    ) -> tuple[Array, Metrics]:
        angles, speeds = self.legged.joints(after)
        square = lambda x: jnp.sum(x**2)  # noqa: E731
        stands = self.stands(after)
        up = stands & (episode.held + 1 >= HELD)
        motion = square(after["velocity"]) + square(after["gyro"]) / 4
        parts = {
            "height": jnp.exp(jnp.minimum(after["position"][2], TALL) - TALL),
            "orientation": (0.5 * rearing(after) + 0.5) ** 2,
            "standing": stands * jnp.minimum(1, 0.5 + 0.5 * episode.held / HELD),
            "still": stands * jnp.exp(-motion),
            "contact": self.legged.feet(after).contact[:2].any().astype(jnp.float32),
            "action_rate": square(within(action) - episode.action),
            "dof_pos_limits": self.legged.beyond(angles, self.legged.soft_limits(SOFT)),
            "pose": square(angles[FRONT]),
            "energy": jnp.sum(jnp.abs(speeds * after["actuator_force"])),
        }
        weights = asdict(self.weights)
        total = sum(weights[name] * x for name, x in parts.items())
        metrics = parts | {"stands": stands.astype(jnp.float32), "up": up.astype(jnp.float32)}
        return jnp.clip(total * CONTROL_DT, 0, 1e4), metrics

    def terminated(self, raw: Readings, episode: Episode) -> Array:
        """It turned over, sat down on its hind legs, or came down after it had stood."""
        over, sits = raw["upright"][2] < -0.25, (self.legged.lowest(raw, HIND) <= 0).any()
        return over | sits | (episode.stood & (rearing(raw) < FALLEN))

    def stands(self, raw: Readings) -> Array:
        """[] bool, reared up within 26 degrees, tall, and its front feet off the ground."""
        tall = raw["position"][2] > TALL - 0.1
        return (rearing(raw) > 0.9) & tall & ~self.legged.feet(raw).contact[:2].any()


def rearing(raw: Readings) -> Array:
    """How far up [] the robot's front points: 1 is straight up."""
    return raw["up"][0]
