"""Gymnasium's InvertedPendulum-v5: balance a pole on a cart."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class InvertedPendulum(Task):
    xml_file: str = "inverted_pendulum.xml"
    frame_skip: int = 2
    reset_noise_scale: float = 0.01
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(self, ("qpos", "qvel"))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.uniform)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        return jnp.concatenate([readings["qpos"], readings["qvel"]]), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        survive = 1.0 - self.terminated(after, episode)
        return survive, {"reward_survive": survive}

    def terminated(self, raw: Readings, episode: PyTree) -> Array:
        return jnp.abs(raw["qpos"][1]) > 0.2
