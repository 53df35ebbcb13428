"""Gymnasium's HumanoidStandup-v5: get up from lying."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs, PyTree


@dataclass(frozen=True)
class HumanoidStandup(Task):
    xml_file: str = "humanoidstandup.xml"
    frame_skip: int = 5
    uph_cost_weight: float = 1.0  # read by nothing, in Gymnasium as here
    ctrl_cost_weight: float = 0.1
    impact_cost_weight: float = 5e-7
    impact_cost_range: tuple[float, float] = (float("-inf"), 10.0)
    reset_noise_scale: float = 1e-2
    exclude_current_positions_from_observation: bool = True
    include_cinert_in_observation: bool = True
    include_cvel_in_observation: bool = True
    include_qfrc_actuator_in_observation: bool = True
    include_cfrc_ext_in_observation: bool = True
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        wanted = {
            "cinert": self.include_cinert_in_observation,
            "cvel": self.include_cvel_in_observation,
            "qfrc_actuator": self.include_qfrc_actuator_in_observation,
            "cfrc_ext": self.include_cfrc_ext_in_observation or self.impact_cost_weight != 0,
        }
        return models.spec(
            self.xml_file, self.frame_skip,
            fields=("qpos", "qvel", *(name for name, want in wanted.items() if want)),
            rescale=self.rescale,
        )  # fmt: skip

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.uniform)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        hidden = 2 if self.exclude_current_positions_from_observation else 0
        parts = [readings["qpos"][hidden:], readings["qvel"]]
        if self.include_cinert_in_observation:
            parts.append(readings["cinert"][1:].ravel())
        if self.include_cvel_in_observation:
            parts.append(readings["cvel"][1:].ravel())
        if self.include_qfrc_actuator_in_observation:
            parts.append(readings["qfrc_actuator"][6:])
        if self.include_cfrc_ext_in_observation:
            parts.append(readings["cfrc_ext"][1:].ravel())
        return jnp.concatenate(parts), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        height = after["qpos"][2] / self.model().opt.timestep
        ctrl = -self.ctrl_cost_weight * jnp.square(after["ctrl"]).sum()
        impact = jnp.float32(0)
        if self.impact_cost_weight:
            force = self.impact_cost_weight * jnp.square(after["cfrc_ext"]).sum()
            impact = -jnp.clip(force, *self.impact_cost_range)
        metrics = {"reward_linup": height, "reward_quadctrl": ctrl, "reward_impact": impact}
        return height + ctrl + impact + 1, metrics
