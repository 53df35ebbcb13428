"""Gymnasium's Ant-v5: walk forward on four legs."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec, displacement
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class Ant(Task):
    xml_file: str = "ant.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.0
    ctrl_cost_weight: float = 0.5
    contact_cost_weight: float = 5e-4
    healthy_reward: float = 1.0
    main_body: int | str = 1
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (0.2, 1.0)  # m
    contact_force_range: tuple[float, float] = (-1.0, 1.0)
    reset_noise_scale: float = 0.1
    exclude_current_positions_from_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        forces = self.include_cfrc_ext_in_observation or self.contact_cost_weight != 0
        fields = "qpos", "qvel", "xpos", *(("cfrc_ext",) if forces else ())
        return models.spec(self, fields, precise=("xpos",))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.normal)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        hidden = 2 if self.exclude_current_positions_from_observation else 0
        parts = [readings["qpos"][hidden:], readings["qvel"]]
        if self.include_cfrc_ext_in_observation:
            parts.append(self.contact_forces(readings)[1:].ravel())
        return jnp.concatenate(parts), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        body = self.model().body(self.main_body).id
        velocity = displacement(before, after, "xpos")[body, 0] / self.spec.control_dt
        forward = self.forward_reward_weight * velocity
        survive = self.healthy_reward * self.healthy(after)
        ctrl = -self.ctrl_cost_weight * jnp.square(after["ctrl"]).sum()
        contact = jnp.float32(0)
        if self.contact_cost_weight:
            contact = -self.contact_cost_weight * jnp.square(self.contact_forces(after)).sum()
        return models.total(forward=forward, survive=survive, ctrl=ctrl, contact=contact)

    def terminated(self, raw: Readings, episode: PyTree) -> Array:
        return ~self.healthy(raw) & self.terminate_when_unhealthy

    def healthy(self, raw: Readings) -> Array:
        """[] bool, the torso at a height within bounds."""
        low, high = self.healthy_z_range
        z = raw["qpos"][2]
        return (low <= z) & (z <= high)

    def contact_forces(self, readings: Readings) -> Array:
        """Clipped external force and torque on each body [nbody, 6]."""
        return jnp.clip(readings["cfrc_ext"], *self.contact_force_range)
