"""dm_control's cheetah-run: run forward at 10 m/s."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.dmc import models
from envs.task import Readings, Start, Task, TaskSpec
from rl.types import Array, Key, Metrics, Obs, PyTree

RUN_SPEED = 10.0  # m/s


@dataclass(frozen=True)
class CheetahRun(Task):
    settle: int = 200  # physics steps before an episode: random poses begin in the air or the floor
    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range

    @property
    def spec(self) -> TaskSpec:
        return models.spec(
            self.model(), substeps=1, sensors=("torso_subtreelinvel",), fields=("qpos", "qvel"),
            settle=self.settle, rescale=self.rescale,
        )  # fmt: skip

    def model(self) -> mujoco.MjModel:
        return models.load("cheetah.xml")

    def reset(self, key: Key, context: PyTree) -> Start:
        return Start(models.pose(key, self.model(), turn=False), jnp.zeros(self.model().nv))

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        return jnp.concatenate([readings["qpos"][1:], readings["qvel"]]), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        speed = after["torso_subtreelinvel"][0]
        run = models.tolerance(
            speed, RUN_SPEED, jnp.inf, margin=RUN_SPEED, value_at_margin=0, sigmoid="linear"
        )
        return run, {"speed": speed}
