"""Gymnasium's Reacher-v5: bring a two-link arm's tip to a target."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class Reacher(Task):
    xml_file: str = "reacher.xml"
    frame_skip: int = 2
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 1.0
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(self, ("qpos", "qvel", "xpos"), horizon=50)

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        qpos_key, qvel_key, angle_key, radius_key = jax.random.split(key, 4)
        qpos = models.uniform(qpos_key, self.model().qpos0, 0.1)
        # Uniform in a disc of 0.2 m, as Gymnasium's rejection from the square is.
        radius = 0.2 * jnp.sqrt(jax.random.uniform(radius_key))
        angle = jax.random.uniform(angle_key, maxval=2 * jnp.pi)
        goal = radius * jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        qvel = models.uniform(qvel_key, jnp.zeros(self.model().nv), 0.005)
        return Start(qpos.at[-2:].set(goal), qvel.at[-2:].set(0))

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        qpos, qvel = readings["qpos"], readings["qvel"]
        angle = qpos[:2]
        error = self.error(readings)[:2]
        return jnp.concatenate([jnp.cos(angle), jnp.sin(angle), qpos[2:], qvel[:2], error]), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        dist = -self.reward_dist_weight * jnp.linalg.norm(self.error(after))
        ctrl = -self.reward_control_weight * jnp.square(after["ctrl"]).sum()
        return models.total(dist=dist, ctrl=ctrl)

    def error(self, readings: Readings) -> Array:
        """From the target to the fingertip [3], m."""
        body = self.model().body
        return readings["xpos"][body("fingertip").id] - readings["xpos"][body("target").id]
