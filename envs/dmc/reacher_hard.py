"""dm_control's reacher-hard: hold a two-link arm's tip within a small target."""

from copy import copy
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from envs.dmc import models
from envs.dmc.suite import Suite
from envs.task import Readings, Start, TaskSpec
from rl.types import Array, Key, Metrics, PyTree


@dataclass(frozen=True)
class ReacherHard(Suite):
    target_size: float = 0.015  # m, radius; the suite's reacher-easy has 0.05

    @property
    def spec(self) -> TaskSpec:
        return self.asks(substeps=1, fields=("qpos", "qvel", "geom_xpos"))

    def model(self) -> mujoco.MjModel:
        return _model(self.target_size)

    def reset(self, key: Key, context: PyTree) -> Start:
        """The target's place is the model's own, so that whoever draws the model draws it there."""
        pose_key, angle_key, radius_key = jax.random.split(key, 3)
        angle = jax.random.uniform(angle_key, maxval=2 * jnp.pi)
        radius = jax.random.uniform(radius_key, minval=0.05, maxval=0.2)  # m
        target = radius * jnp.stack([jnp.sin(angle), jnp.cos(angle)])
        places = jnp.asarray(self.model().geom_pos, jnp.float32)
        return Start(
            models.pose(pose_key, self.model()),
            jnp.zeros(self.model().nv),
            params={"geom_pos": places.at[self.model().geom("target").id, :2].set(target)},
        )

    def state(self, readings: Readings) -> Array:
        return jnp.concatenate([readings["qpos"], self.error(readings), readings["qvel"]])

    def earned(self, after: Readings) -> tuple[Array, Metrics]:
        distance = jnp.linalg.norm(self.error(after))
        reach = self.target_size + float(self.model().geom("finger").size[0])
        return models.tolerance(distance, 0.0, reach), {"distance": distance}

    def error(self, readings: Readings) -> Array:
        """From the fingertip to the target [2], m."""
        geom, place = self.model().geom, readings["geom_xpos"]
        return place[geom("target").id, :2] - place[geom("finger").id, :2]


@cache
def _model(target_size: float) -> mujoco.MjModel:
    model = copy(models.load("reacher.xml"))
    model.geom("target").size = np.array([target_size, 0, 0])
    return model
