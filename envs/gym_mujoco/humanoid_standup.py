"""Gymnasium's HumanoidStandup-v5: get up from lying."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.gym_mujoco import models
from envs.gym_mujoco.humanoid import impact, inner, seen
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
        return models.spec(self, ("qpos", "qvel", *inner(self, self.impact_cost_weight != 0)))

    def model(self) -> mujoco.MjModel:
        return models.load(self.xml_file)

    def reset(self, key: Key, context: PyTree) -> Start:
        return models.start(key, self.model(), self.reset_noise_scale, qvel=models.uniform)

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        return seen(self, readings), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        height = after["qpos"][2] / self.model().opt.timestep
        ctrl = -self.ctrl_cost_weight * jnp.square(after["ctrl"]).sum()
        hurt = impact(after, self.impact_cost_weight, self.impact_cost_range)
        reward, metrics = models.total(linup=height, quadctrl=ctrl, impact=hurt)
        return reward + 1, metrics
