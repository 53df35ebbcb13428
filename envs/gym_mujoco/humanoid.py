"""Gymnasium's Humanoid-v5: walk forward on two legs."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec, displacement
from rl.types import Array, Key, Metrics, Obs, PyTree


def inner(task: Any, forces: bool) -> list[str]:
    """Fields besides qpos and qvel that a humanoid's task shows, or needs as contacts' `forces`."""
    wanted = {
        "cinert": task.include_cinert_in_observation,
        "cvel": task.include_cvel_in_observation,
        "qfrc_actuator": task.include_qfrc_actuator_in_observation,
        "cfrc_ext": task.include_cfrc_ext_in_observation or forces,
    }
    return [name for name, want in wanted.items() if want]


def seen(task: Any, readings: Readings) -> Array:
    """The observation [O]; the world's own rows are left out, and the root's actuators."""
    hidden = 2 if task.exclude_current_positions_from_observation else 0
    parts = [readings["qpos"][hidden:], readings["qvel"]]
    for name in inner(task, forces=False):
        skipped = 6 if name == "qfrc_actuator" else 1
        parts.append(readings[name][skipped:].ravel())
    return jnp.concatenate(parts)


def impact(after: Readings, weight: float, limits: tuple[float, float]) -> Array:
    """What contacts' forces cost []; nothing, and unread, at a weight of 0."""
    if not weight:
        return jnp.float32(0)
    return -jnp.clip(weight * jnp.square(after["cfrc_ext"]).sum(), *limits)


@dataclass(frozen=True)
class Humanoid(Task):
    xml_file: str = "humanoid.xml"
    frame_skip: int = 5
    forward_reward_weight: float = 1.25
    ctrl_cost_weight: float = 0.1
    contact_cost_weight: float = 5e-7
    contact_cost_range: tuple[float, float] = (float("-inf"), 10.0)
    healthy_reward: float = 5.0
    terminate_when_unhealthy: bool = True
    healthy_z_range: tuple[float, float] = (1.0, 2.0)  # m
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        fields = "qpos", "qvel", "xipos", *inner(self, self.contact_cost_weight != 0)
        return models.spec(self, fields, precise=("xipos",))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.uniform)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        return seen(self, readings), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        mass = jnp.asarray(self.model().body_mass, jnp.float32)
        moved = (mass[:, None] * displacement(before, after, "xipos")).sum(0) / mass.sum()
        forward = self.forward_reward_weight * moved[0] / self.spec.control_dt
        survive = self.healthy_reward * self.healthy(after)
        ctrl = -self.ctrl_cost_weight * jnp.square(after["ctrl"]).sum()
        contact = impact(after, self.contact_cost_weight, self.contact_cost_range)
        return models.total(forward=forward, survive=survive, ctrl=ctrl, contact=contact)

    def terminated(self, raw: Readings, episode: PyTree) -> Array:
        return ~self.healthy(raw) & self.terminate_when_unhealthy

    def healthy(self, raw: Readings) -> Array:
        """[] bool, the torso at a height within bounds."""
        return models.within(raw["qpos"][2], self.healthy_z_range)
