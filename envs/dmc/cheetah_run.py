"""dm_control's cheetah-run: run forward at 10 m/s."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.dmc import models
from envs.dmc.suite import Suite
from envs.task import Readings, Start, TaskSpec
from rl.types import Array, Key, Metrics, PyTree

RUN_SPEED = 10.0  # m/s


@dataclass(frozen=True)
class CheetahRun(Suite):
    settle: int = 200  # physics steps before an episode: random poses begin in the air or the floor

    @property
    def spec(self) -> TaskSpec:
        return self.asks(substeps=1, sensors=("torso_subtreelinvel",), fields=("qpos", "qvel"),
            settle=self.settle,
        )  # fmt: skip

    def model(self) -> mujoco.MjModel:
        return models.load("cheetah.xml")

    def reset(self, key: Key, context: PyTree) -> Start:
        return Start(models.pose(key, self.model(), turn=False), jnp.zeros(self.model().nv))

    def state(self, readings: Readings) -> Array:
        return jnp.concatenate([readings["qpos"][1:], readings["qvel"]])

    def earned(self, after: Readings) -> tuple[Array, Metrics]:
        speed = after["torso_subtreelinvel"][0]
        run = models.tolerance(
            speed, RUN_SPEED, jnp.inf, margin=RUN_SPEED, value_at_margin=0, sigmoid="linear"
        )
        return run, {"speed": speed}
