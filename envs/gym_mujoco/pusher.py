"""Gymnasium's Pusher-v5: push a cylinder to a goal with a seven-joint arm."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs, PyTree

CANDIDATES = 32  # starts drawn at once; that all lie too near the goal has odds of 1e-13


@dataclass(frozen=True)
class Pusher(Task):
    xml_file: str = "pusher_v5.xml"
    frame_skip: int = 5
    reward_near_weight: float = 0.5
    reward_dist_weight: float = 1.0
    reward_control_weight: float = 0.1
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(self, ("qpos", "qvel", "xpos"), horizon=100)

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        cylinder_key, qvel_key = jax.random.split(key)
        drawn = jax.random.uniform(
            cylinder_key,
            (CANDIDATES, 2),
            minval=jnp.array([-0.3, -0.2]),
            maxval=jnp.array([0, 0.2]),
        )
        cylinder = drawn[jnp.argmax(jnp.linalg.norm(drawn, axis=1) > 0.17)]
        qpos = jnp.asarray(self.model().qpos0, jnp.float32)
        qvel = models.uniform(qvel_key, jnp.zeros(self.model().nv), 0.005)
        return Start(qpos.at[-4:-2].set(cylinder).at[-2:].set(0), qvel.at[-4:].set(0))

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        places = [self.place(readings, name) for name in ("tips_arm", "object", "goal")]
        return jnp.concatenate([readings["qpos"][:7], readings["qvel"][:7], *places]), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        thing = self.place(after, "object")
        near = -self.reward_near_weight * jnp.linalg.norm(thing - self.place(after, "tips_arm"))
        dist = -self.reward_dist_weight * jnp.linalg.norm(thing - self.place(after, "goal"))
        ctrl = -self.reward_control_weight * jnp.square(after["ctrl"]).sum()
        return models.total(near=near, dist=dist, ctrl=ctrl)

    def place(self, readings: Readings, body: str) -> Array:
        """Position of a body [3], m."""
        return readings["xpos"][self.model().body(body).id]
