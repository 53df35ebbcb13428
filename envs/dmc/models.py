"""Models of the dm_control suite, from the installed package, and what its tasks share.

Tasks follow the suite in observation, reward and control step: Tassa et al. 2018, "DeepMind
Control Suite".
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import mujoco
from jax.typing import ArrayLike

from envs.task import TaskSpec, packaged
from rl.types import Array, Key

HORIZON = 1000  # control steps, of every task of the suite


@cache
def load(xml_file: str) -> mujoco.MjModel:
    """The model of a file of the suite.  Everybody's: copy it to change it."""
    package = find_spec("dm_control")  # found, not imported: that would load its renderers
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError(
            f"The model {xml_file!r} comes with dm_control, which is not installed: "
            "pip install dm_control, or this package's extra `dmc`."
        )
    path = Path(package.submodule_search_locations[0]) / "suite" / xml_file
    if not path.is_file():
        raise FileNotFoundError(f"There is no model {xml_file!r} in dm_control's suite at {path}.")
    model = packaged(path)
    # Energy moves nothing and nobody here reads it, but MJX refuses a model that asks for it.
    model.opt.enableflags &= ~int(mujoco.mjtEnableBit.mjENBL_ENERGY)
    return model


def spec(
    model: mujoco.MjModel,
    substeps: int,
    repeat: int,
    **facts: Any,
) -> TaskSpec:
    """A suite task's spec, of which so many control steps are one: derived quantities are those of
    the new state, as the suite's are."""
    low, high = model.actuator_ctrlrange.T.tolist()
    return TaskSpec(
        actuators=tuple(model.actuator(i).name for i in range(model.nu)),
        low=tuple(low),
        high=tuple(high),
        substeps=substeps * repeat,
        control_dt=substeps * repeat * model.opt.timestep,
        horizon=HORIZON // repeat,
        derived="current",
        **facts,
    )


def pose(key: Key, model: mujoco.MjModel, *, turn: bool = True) -> Array:
    """qpos [nq] with limited joints uniform in their range and, if `turn`, free hinges in +-pi."""
    hinge = (model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE) & turn
    limited, reach = model.jnt_limited.astype(bool), model.jnt_range.T
    low = jnp.where(limited, reach[0], jnp.where(hinge, -jnp.pi, model.qpos0))
    high = jnp.where(limited, reach[1], jnp.where(hinge, jnp.pi, model.qpos0))
    return jax.random.uniform(key, (model.nq,), minval=low, maxval=high)


def tolerance(
    x: ArrayLike,
    low: float = 0.0,
    high: float = 0.0,
    *,
    margin: float = 0.0,
    sigmoid: Literal["gaussian", "linear", "quadratic"] = "gaussian",
    value_at_margin: float = 0.1,
) -> Array:
    """1 where low <= x <= high, falling to `value_at_margin` at a distance of `margin`.

    Elementwise.  Without a margin it is 0 outside (Tassa et al. 2018).
    """
    outside = jnp.maximum(jnp.maximum(low - x, x - high), 0.0)
    if margin == 0:
        return (outside == 0).astype(jnp.float32)
    distance = outside / margin
    if sigmoid == "gaussian":
        return value_at_margin**distance**2
    power = 1 if sigmoid == "linear" else 2
    return jnp.maximum(1 - (1 - value_at_margin) * distance**power, 0.0)
