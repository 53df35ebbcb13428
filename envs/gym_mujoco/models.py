"""Models of Gymnasium's MuJoCo tasks, from the installed package, and what they share."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import gymnasium.envs.mujoco
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.typing import ArrayLike

from envs.task import Start, TaskSpec, packaged
from rl.types import Array, Key

ASSETS = Path(gymnasium.envs.mujoco.__file__).parent / "assets"


@cache
def load(xml_file: str) -> mujoco.MjModel:
    """The model of a file in Gymnasium's assets, or of a path that starts with ~, . or /."""
    path = Path(xml_file).expanduser() if xml_file[:1] in "~./" else ASSETS / xml_file
    if not path.is_file():
        raise FileNotFoundError(f"There is no model {xml_file!r} at {path}.")
    own = path.parent != ASSETS
    return mujoco.MjModel.from_xml_path(str(path)) if own else packaged(path)


@cache
def spec(
    xml_file: str,
    frame_skip: int,
    *,
    fields: tuple[str, ...],
    precise: tuple[str, ...] = (),
    horizon: int = 1000,
    rescale: bool = True,
) -> TaskSpec:
    """A Gymnasium task's spec: raw fields, observed one substep late as Gymnasium does."""
    model = load(xml_file)
    low, high = model.actuator_ctrlrange.T.tolist()
    return TaskSpec(
        actuators=tuple(model.actuator(i).name or str(i) for i in range(model.nu)),
        low=tuple(low),
        high=tuple(high),
        substeps=frame_skip,
        control_dt=frame_skip * model.opt.timestep,
        horizon=horizon,
        fields=(*fields, "ctrl"),
        precise=precise,
        rescale=rescale,
        derived="lagged",
    )


def uniform(key: Key, centre: ArrayLike, scale: float) -> Array:
    """`centre` + U(-scale, scale)."""
    centre = jnp.asarray(centre, jnp.float32)
    return centre + jax.random.uniform(key, centre.shape, minval=-scale, maxval=scale)


def normal(key: Key, centre: ArrayLike, scale: float) -> Array:
    """`centre` + scale N(0, 1)."""
    centre = jnp.asarray(centre, jnp.float32)
    return centre + scale * jax.random.normal(key, centre.shape)


def start(
    key: Key, model: mujoco.MjModel, scale: float, qvel: Callable[[Key, ArrayLike, float], Array]
) -> Start:
    """The model's own pose with uniform noise, and velocities drawn by `qvel` about zero."""
    qpos_key, qvel_key = jax.random.split(key)
    return Start(uniform(qpos_key, model.qpos0, scale), qvel(qvel_key, np.zeros(model.nv), scale))


def within(x: Array, bounds: tuple[float, float]) -> Array:
    """Elementwise low < x < high."""
    return (bounds[0] < x) & (x < bounds[1])
