"""dm_control's cartpole-swingup: swing a pole up and hold it over the middle."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import mujoco

from envs.dmc import models
from envs.dmc.suite import Suite
from envs.task import Readings, Start, TaskSpec
from rl.types import Array, Key, Metrics, PyTree


@dataclass(frozen=True)
class CartpoleSwingup(Suite):
    @property
    def spec(self) -> TaskSpec:
        return self.asks(substeps=1, fields=("qpos", "qvel", "xmat", "ctrl"))

    def model(self) -> mujoco.MjModel:
        return models.load("cartpole.xml")

    def reset(self, key: Key, context: PyTree) -> Start:
        qpos_key, qvel_key = jax.random.split(key)
        hanging = jnp.array([0, jnp.pi])
        return Start(
            hanging + 0.01 * jax.random.normal(qpos_key, (2,)),
            0.01 * jax.random.normal(qvel_key, (2,)),
        )

    def state(self, readings: Readings) -> Array:
        up, aside = self.pole(readings)
        position = jnp.stack([readings["qpos"][0], up, aside])
        return jnp.concatenate([position, readings["qvel"]])

    def earned(self, after: Readings) -> tuple[Array, Metrics]:
        upright = (1 + self.pole(after)[0]) / 2
        centred = (1 + models.tolerance(after["qpos"][0], margin=2)) / 2
        control = models.tolerance(
            after["ctrl"][0], margin=1, value_at_margin=0, sigmoid="quadratic"
        )
        still = (1 + models.tolerance(after["qvel"][1], margin=5)) / 2
        metrics = {"upright": upright, "centred": centred, "still": still}
        return upright * (4 + control) / 5 * still * centred, metrics

    def pole(self, readings: Readings) -> tuple[Array, Array]:
        """Cosine and sine of the pole's angle from upright."""
        # From the rotation matrix: an angle wound up far loses its decimals in float32.
        xmat = readings["xmat"][self.model().body("pole_1").id]
        return xmat[8], xmat[2]
