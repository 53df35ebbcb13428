"""The ground: a plane, or fields of steps from low to high.

Heights are our own array: MuJoCo collides with it, and a task reads the height under a foot from
it, on every physics alike (MJX's rays pass through height fields).
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import mujoco
import numpy as np

from rl.types import Array

CELL = 0.05  # m
BLOCK = 0.6  # m, the side of a step
FIELD = 8.4  # m, the side of the square of one level
BASE = 0.5  # m of ground below height 0


@dataclass(frozen=True)
class Plane:
    """Level ground at height 0."""

    levels: int = 1

    def put(self, spec: mujoco.MjSpec, bits: int, friction: float) -> None:
        """Add the ground to `spec`, meeting what has the collision `bits`."""
        spec.worldbody.add_geom(
            name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=(0, 0, 0.01), contype=bits,
            conaffinity=0, priority=1, friction=(friction, 0.005, 0.0001), condim=3,
            material="ground",
        )  # fmt: skip

    def height(self, at: Array) -> Array:
        """Height [...] of the ground at `at` [..., 2], m."""
        return jnp.zeros(at.shape[:-1])

    def middle(self, level: Array) -> Array:
        """Where [2] a level's field has its middle, m."""
        return jnp.zeros(2)


@dataclass(frozen=True, eq=False)
class Steps:
    """A row of square fields along x, of blocks half of which stand a step higher.

    From level 0, which has none, to the last, whose steps are `highest`, each has steps higher by
    as much; around the fields is level ground.
    """

    highest: float = 0.1  # m
    levels: int = 6
    margin: float = 3.0  # m of level ground around
    seed: int = 0

    @cached_property
    def heights(self) -> np.ndarray:
        """Heights [rows along y, columns along x] at the corners of cells, m."""
        blocks = round(FIELD / BLOCK)
        raised = np.random.default_rng(self.seed).random((self.levels, blocks, blocks)) < 0.5
        step = np.linspace(0, self.highest, self.levels)
        fine = np.repeat(np.repeat(raised, round(BLOCK / CELL), 1), round(BLOCK / CELL), 2)
        fields = np.concatenate(list(fine * step[:, None, None]), 1)
        edge = round(self.margin / CELL)
        return np.pad(fields, ((edge, edge + 1), (edge, edge + 1)))

    @property
    def half(self) -> np.ndarray:
        """Half the size [2] along x and y, m."""
        return (np.array(self.heights.shape[::-1]) - 1) * CELL / 2

    def put(self, spec: mujoco.MjSpec, bits: int, friction: float) -> None:
        rows, columns = self.heights.shape
        spec.add_hfield(
            name="ground", nrow=rows, ncol=columns, size=(*self.half, self.highest, BASE),
            userdata=(self.heights / self.highest).ravel(),
        )  # fmt: skip
        spec.worldbody.add_geom(
            name="ground", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="ground", contype=bits,
            conaffinity=0, priority=1, friction=(friction, 0.005, 0.0001), condim=3,
            material="ground",
        )  # fmt: skip

    def height(self, at: Array) -> Array:
        """Bilinear between the corners; beyond the edge as at the edge."""
        heights = jnp.array(self.heights, jnp.float32)
        most = jnp.array(self.heights.shape[::-1]) - 1
        place = jnp.clip((at + self.half) / CELL, 0, most)
        low = jnp.minimum(jnp.floor(place), most - 1).astype(jnp.int32)
        x, y = jnp.moveaxis(place - low, -1, 0)
        column, row = jnp.moveaxis(low, -1, 0)
        near = heights[row, column] * (1 - x) + heights[row, column + 1] * x
        far = heights[row + 1, column] * (1 - x) + heights[row + 1, column + 1] * x
        return near * (1 - y) + far * y

    def middle(self, level: Array) -> Array:
        return jnp.stack([(level - (self.levels - 1) / 2) * FIELD, jnp.zeros(())])


Terrain = Plane | Steps
