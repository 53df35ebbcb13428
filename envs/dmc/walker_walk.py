"""dm_control's walker-walk: walk on two legs in the plane at 1 m/s."""

from dataclasses import dataclass

import jax.numpy as jnp
import mujoco

from envs.dmc import models
from envs.dmc.suite import Suite
from envs.task import Readings, Start, TaskSpec
from rl.types import Array, Key, Metrics, PyTree

STAND_HEIGHT = 1.2  # m, of the torso
WALK_SPEED = 1.0  # m/s
XX, XZ, ZZ = 0, 2, 8  # entries of a rotation matrix


@dataclass(frozen=True)
class WalkerWalk(Suite):
    @property
    def spec(self) -> TaskSpec:
        return self.asks(substeps=10, sensors=("torso_subtreelinvel",),
            fields=("qvel", "xpos", "xmat"),
        )  # fmt: skip

    def model(self) -> mujoco.MjModel:
        return models.load("walker.xml")

    def reset(self, key: Key, context: PyTree) -> Start:
        return Start(models.pose(key, self.model()), jnp.zeros(self.model().nv))

    def state(self, readings: Readings) -> Array:
        orientations = readings["xmat"][1:, jnp.array([XX, XZ])].ravel()
        height = readings["xpos"][self.torso, 2][None]
        return jnp.concatenate([orientations, height, readings["qvel"]])

    def earned(self, after: Readings) -> tuple[Array, Metrics]:
        height, speed = after["xpos"][self.torso, 2], after["torso_subtreelinvel"][0]
        standing = models.tolerance(height, STAND_HEIGHT, jnp.inf, margin=STAND_HEIGHT / 2)
        upright = (1 + after["xmat"][self.torso, ZZ]) / 2
        stand = (3 * standing + upright) / 4
        walk = models.tolerance(
            speed, WALK_SPEED, jnp.inf, margin=WALK_SPEED / 2, value_at_margin=0.5,
            sigmoid="linear",
        )  # fmt: skip
        return stand * (5 * walk + 1) / 6, {"stand": stand, "speed": speed}

    @property
    def torso(self) -> int:
        return self.model().body("torso").id
