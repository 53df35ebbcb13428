"""The ground: a plane, or fields of steps from low to high.

Steps are boxes and no height field: where its triangles meet, MuJoCo pushes a foot sideways, which
threw over half of the robots that walk on a plane.  A task reads the height under a foot from our
own array, on every physics alike.
"""

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import mujoco
import numpy as np

from rl.types import Array

BLOCK = 0.6  # m, the side of a step
BLOCKS = 14  # along a side of the square field of one level
FIELD = BLOCK * BLOCKS  # m
BASE = 0.2  # m of a block below height 0
# Where about a robot the ground is told, m ahead and to the left.
AROUND = np.array([(x, y) for x in (-0.4, -0.2, 0.0, 0.2, 0.4, 0.6) for y in (-0.15, 0.0, 0.15)])
NEAR = 16  # feet and blocks that MJX looks at, the nearest; a foot meets 2 blocks at the most


@dataclass(frozen=True)
class Plane:
    """Level ground at height 0."""

    levels: int = 1
    swing: float = 0.1  # m over the ground, that a foot is to reach: MuJoCo Playground's
    iterations: int = 1  # of the solver: as Playground has it

    def put(self, spec: mujoco.MjSpec, bits: int, friction: float) -> None:
        """Add the ground to `spec`, meeting what has the collision `bits`."""
        spec.worldbody.add_geom(
            name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=(0, 0, 0.01),
            **_met(bits, friction),
        )  # fmt: skip

    def height(self, at: Array) -> Array:
        """Height [...] of the ground at `at` [..., 2], m."""
        return jnp.zeros(at.shape[:-1])

    def middle(self, level: Array) -> Array:
        """Where [2] a level's field has its middle, m."""
        return jnp.zeros(2)


@dataclass(frozen=True)
class Steps:
    """A plane with a row of fields along x, on which every other block stands a step higher.

    From level 0, which has none, to the last, whose steps are `highest`, each has steps higher by
    as much.
    """

    highest: float = 0.1  # m
    levels: int = 6
    swing: float = 0.16  # m, as for a plane: over a step's edge with some to spare
    iterations: int = 4  # with 1 the edges of steps throw over who walks well, with 3 it is settled

    @cached_property
    def heights(self) -> np.ndarray:
        """Heights [rows along y, columns along x] of the blocks, m."""
        row, column = np.indices((BLOCKS, BLOCKS * self.levels))
        step = np.linspace(0, self.highest, self.levels)
        return (row + column) % 2 * step[column // BLOCKS]

    @property
    def half(self) -> np.ndarray:
        """Half the size [2] of all fields along x and y, m."""
        return np.array(self.heights.shape[::-1]) * BLOCK / 2

    def put(self, spec: mujoco.MjSpec, bits: int, friction: float) -> None:
        Plane().put(spec, bits, friction)
        for row, column in np.argwhere(self.heights):
            x, y = (np.array([column, row]) + 0.5) * BLOCK - self.half
            height = self.heights[row, column]
            spec.worldbody.add_geom(
                name=f"ground_{row}_{column}", type=mujoco.mjtGeom.mjGEOM_BOX,
                pos=(x, y, (height - BASE) / 2),
                size=(BLOCK / 2, BLOCK / 2, (height + BASE) / 2), **_met(bits, friction),
            )  # fmt: skip
        spec.add_numeric(name="max_geom_pairs", data=[NEAR])

    def height(self, at: Array) -> Array:
        column, row = jnp.moveaxis(jnp.floor((at + self.half) / BLOCK).astype(jnp.int32), -1, 0)
        rows, columns = self.heights.shape
        inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
        return jnp.where(inside, jnp.array(self.heights, jnp.float32)[row, column], 0.0)

    def middle(self, level: Array) -> Array:
        return jnp.stack([(level - (self.levels - 1) / 2) * FIELD, jnp.zeros(())])


Terrain = Plane | Steps


def _met(bits: int, friction: float) -> dict[str, object]:
    """What makes a geom ground: by its priority its friction, solref and solimp are a contact's."""
    return {
        "contype": bits, "conaffinity": 0, "priority": 1, "condim": 3,
        "friction": (friction, 0.005, 0.0001), "material": "ground",
    }  # fmt: skip
