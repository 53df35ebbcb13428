"""Gymnasium's HalfCheetah-v5: run forward."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec, displacement
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class HalfCheetah(Task):
    xml_file: str = "half_cheetah.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.1
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(self, ("qpos", "qvel"), precise=("qpos",))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.normal)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        hidden = 1 if self.exclude_current_positions_from_observation else 0
        return jnp.concatenate([readings["qpos"][hidden:], readings["qvel"]]), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        velocity = displacement(before, after, "qpos")[0] / self.spec.control_dt
        forward = self.forward_reward_weight * velocity
        ctrl = -self.ctrl_cost_weight * jnp.square(after["ctrl"]).sum()
        return models.total(forward=forward, ctrl=ctrl)
