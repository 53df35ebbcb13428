"""Models of Gymnasium's MuJoCo tasks, from the installed package, and what they share.

A task is one file, to be read beside Gymnasium's own of that name: tasks repeat each other where
Gymnasium's do, and the signatures of the contract.
"""

from collections.abc import Callable
from functools import cache, reduce
from operator import add
from pathlib import Path
from typing import Protocol

import gymnasium.envs.mujoco
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.typing import ArrayLike

from envs.task import Start, TaskSpec, packaged
from rl.types import Array, Key, Metrics

ASSETS = Path(gymnasium.envs.mujoco.__file__).parent / "assets"


@cache
def load(xml_file: str) -> mujoco.MjModel:
    """The model of a file in Gymnasium's assets, or of a path that starts with ~, . or /."""
    path = Path(xml_file).expanduser() if xml_file[:1] in "~./" else ASSETS / xml_file
    if not path.is_file():
        raise FileNotFoundError(f"There is no model {xml_file!r} at {path}.")
    own = path.parent != ASSETS
    return mujoco.MjModel.from_xml_path(str(path)) if own else packaged(path)


class Named(Protocol):
    """What the tasks have in common; the keywords of Gymnasium's constructors are their fields."""

    @property
    def xml_file(self) -> str: ...
    @property
    def frame_skip(self) -> int: ...
    @property
    def rescale(self) -> bool: ...


def spec(
    task: Named, fields: tuple[str, ...], precise: tuple[str, ...] = (), horizon: int = 1000
) -> TaskSpec:
    """A Gymnasium task's spec: raw fields, observed one substep late as Gymnasium does."""
    return _spec(task.xml_file, task.frame_skip, (*fields, "ctrl"), precise, horizon, task.rescale)


@cache
def _spec(
    xml_file: str,
    frame_skip: int,
    fields: tuple[str, ...],
    precise: tuple[str, ...],
    horizon: int,
    rescale: bool,
) -> TaskSpec:
    model = load(xml_file)
    low, high = model.actuator_ctrlrange.T.tolist()
    return TaskSpec(
        actuators=tuple(model.actuator(i).name or str(i) for i in range(model.nu)),
        low=tuple(low),
        high=tuple(high),
        substeps=frame_skip,
        control_dt=frame_skip * model.opt.timestep,
        horizon=horizon,
        fields=fields,
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


def total(**terms: Array) -> tuple[Array, Metrics]:
    """A reward that is the sum of `terms`, and each of them as Gymnasium tells it."""
    return reduce(add, terms.values()), {f"reward_{n}": x for n, x in terms.items()}
