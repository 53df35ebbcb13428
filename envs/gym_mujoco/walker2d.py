"""Gymnasium's Walker2d-v5: walk forward on two legs in the plane."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec, displacement
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class Walker2d(Task):
    xml_file: str = "walker2d_v5.xml"
    frame_skip: int = 4
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 1e-3
    healthy_reward: float = 1.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.8, 2.0)  # m
    healthy_angle_range: tuple[float, float] = (-1.0, 1.0)  # rad
    reset_noise_scale: float = 5e-3
    exclude_current_positions_from_observation: bool = True
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(self, ("qpos", "qvel"), precise=("qpos",))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.uniform)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        hidden = 1 if self.exclude_current_positions_from_observation else 0
        qvel = jnp.clip(readings["qvel"], -10, 10)
        return jnp.concatenate([readings["qpos"][hidden:], qvel]), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        velocity = displacement(before, after, "qpos")[0] / self.spec.control_dt
        forward = self.forward_reward_weight * velocity
        survive = self.healthy_reward * self.healthy(after)
        ctrl = -self.ctrl_cost_weight * jnp.square(after["ctrl"]).sum()
        return models.total(forward=forward, survive=survive, ctrl=ctrl)

    def terminated(self, raw: Readings, episode: PyTree) -> Array:
        return ~self.healthy(raw) & self.terminate_when_unhealthy

    def healthy(self, raw: Readings) -> Array:
        """[] bool, upright."""
        z, angle = raw["qpos"][1], raw["qpos"][2]
        upright = models.within(z, self.healthy_z_range)
        return upright & models.within(angle, self.healthy_angle_range)
