"""Gymnasium's InvertedDoublePendulum-v5: balance two poles on a cart."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class InvertedDoublePendulum(Task):
    xml_file: str = "inverted_double_pendulum.xml"
    frame_skip: int = 5
    healthy_reward: float = 10.0
    reset_noise_scale: float = 0.1
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(self, ("qpos", "qvel", "qfrc_constraint", "site_xpos"))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.normal)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        qpos, qvel = readings["qpos"], jnp.clip(readings["qvel"], -10, 10)
        force = jnp.clip(readings["qfrc_constraint"][:1], -10, 10)
        return jnp.concatenate(
            [qpos[:1], jnp.sin(qpos[1:]), jnp.cos(qpos[1:]), qvel, force]
        ), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        x, _, y = after["site_xpos"][0]
        v1, v2 = after["qvel"][1:3]
        distance = -(0.01 * x**2 + (y - 2) ** 2)
        velocity = -(1e-3 * v1**2 + 5e-3 * v2**2)
        survive = self.healthy_reward * ~self.terminated(after, episode)
        metrics = {
            "reward_survive": survive, "distance_penalty": distance, "velocity_penalty": velocity,
        }  # fmt: skip
        return survive + distance + velocity, metrics

    def terminated(self, raw: Readings, episode: PyTree) -> Array:
        return raw["site_xpos"][0, 2] <= 1
