"""From little to all that may be asked of a robot, as it is mastered.

To a command far from what a robot does the reward shows no way: a Go2 that began with all of them
learned to walk backwards, and never forwards.  One that began with a fifth of them stood still,
which earns nearly as much.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.types import Array, Key

LEAST, STEP = 0.5, 0.1  # of the reach
MASTERED, LOST = 0.8, 0.5  # how well commands were followed on average, in [0, 1]
MASTERED_STEPS = 0.7  # where steps hold up who walks well: at 0.8 none came beyond 4 cm


class Context(NamedTuple):
    """What outlives an episode."""

    level: Array  # [] int32, of the terrain; -1: any
    reach: Array  # [] share of the commands' range

    @property
    def kicks(self) -> Array:
        """Share [] of the kicks' strength: none as long as it learns to walk."""
        return (self.reach - LEAST) / (1 - LEAST)


def following(key: Key, lived: Context, tracked: Array, fell: Array, levels: int) -> Context:
    """What comes after an episode `lived`, in which commands were followed so well [].

    Harder where they were and it did not fall, first in all that may be asked and then in steps:
    on steps that are just mastered nobody learns to go faster.  Less where they were not; easier
    ground after a fall.  Who has mastered all the ground is given any of it: that keeps up all.
    """
    enough = jnp.where(lived.level > 0, MASTERED_STEPS, MASTERED)
    mastered = ((tracked > enough) & ~fell).astype(jnp.int32)
    lost = (tracked < LOST).astype(jnp.int32)
    higher = mastered * (lived.reach > 1 - STEP / 2)
    level = jnp.maximum(lived.level + higher - fell, 0)
    anywhere = jax.random.randint(key, (), 0, levels)
    reach = jnp.clip(lived.reach + STEP * (mastered - lost), LEAST, 1.0)
    return Context(jnp.where(level < levels, level, anywhere), reach)
