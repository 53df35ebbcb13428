"""What makes one robot differ from another, as numbers that a teacher may know."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import mujoco
import numpy as np

from envs.task import ParamsByField
from rl.mirror import SAME, VECTOR, Flip
from rl.types import Array


class Factor(NamedTuple):
    """A part of a model's field that `envs.randomise` may draw."""

    field: str
    part: Callable[[mujoco.MjModel, Array], Array]  # [n]
    mirror: Flip


def _trunk(model: mujoco.MjModel, x: Array) -> Array:
    return jnp.atleast_1d(x[model.body("trunk").id])


# Not what differs from joint to joint: by so many numbers a teacher tells its worlds apart, and
# learns each by heart.
FACTORS = (
    Factor("geom_friction", lambda model, x: x[model.geom("ground").id, :1], SAME),
    Factor("body_mass", _trunk, SAME),
    Factor("body_ipos", _trunk, VECTOR),
)


def factors(model: mujoco.MjModel, params: ParamsByField) -> Array | tuple[()]:
    """How far each drawn factor is off the nominal robot's, [n]; () where none is drawn."""
    found = [
        factor.part(model, params[factor.field] - np.asarray(getattr(model, factor.field)))
        for factor in FACTORS
        if factor.field in params
    ]
    return jnp.concatenate(found) if found else ()


def mirror(params: Mapping[str, Any]) -> tuple[Flip, ...]:
    """Of what `factors` gives for parameters of these names."""
    return tuple(factor.mirror for factor in FACTORS if factor.field in params)
