"""A task that differs: a robot heavier, on smoother ground, with weaker motors, or late.

What differs is an array, so that all variants of a task step in one compiled program.  It comes on
top of what the task itself draws and delays.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from jax.typing import ArrayLike

from envs.disturb import Disturbance, Disturbed
from envs.locomotion.factors import factors
from envs.simulation import Simulation
from envs.task import ParamsByField, Start, Task
from rl.types import Array, Key, PyTree, Readings


class Variant(NamedTuple):
    mass: ArrayLike = 1.0  # x every body's mass and moments of inertia
    friction: ArrayLike = 1.0  # x every geom's sliding friction
    gain: ArrayLike = 1.0  # x every motor's force before its limit: a servo's kp and kd with it
    action_delay: ArrayLike = 0  # control steps more until targets reach the motors
    observation_delay: ArrayLike = 0  # control steps more until readings reach the robot


def vary(env: Simulation, variant: Variant, most: tuple[int, int], scale: bool) -> Simulation:
    """`env` as `variant` has it; `most` of its two delays sizes what is on its way.

    Without `scale` no factor counts, and the model is the nominal one to the last bit: fields that
    are handed over are float32.
    """
    disturbance, task = env.disturbance, env.task
    if any(most):
        before = vars(disturbance or Disturbance())
        disturbance = Late(**before, variant=variant, most=most)
    if scale:
        _check(task.model())
        task: Any = Scaled(task, variant)
    return replace(env, task=task, disturbance=disturbance)


@dataclass(frozen=True, eq=False)
class Scaled:
    """`task` with the factors of `variant`."""

    task: Task
    variant: Variant

    def __getattr__(self, name: str) -> Any:
        return getattr(self.task, name)

    def reset(self, key: Key, context: PyTree) -> Start:
        start, model = self.task.reset(key, context), self.task.model()
        params, episode = scaled(model, start.params, self.variant), start.episode
        if "factors" in getattr(episode, "_fields", ()):  # a teacher is told what there is
            told = {name: params[name] for name in start.params}
            episode = episode._replace(factors=factors(model, told))
        return start._replace(params=params, episode=episode)


@dataclass(frozen=True, kw_only=True)
class Late(Disturbance):
    """A disturbance whose delays are longer by those of `variant`, which are `most` or less."""

    variant: Variant
    most: tuple[int, int]

    def begin(self, key: Key, readings: Readings, targets: Array) -> Disturbed:
        x = super().begin(key, readings, targets)
        longer = lambda queue, more: jnp.concatenate([queue, jnp.repeat(queue[-1:], more, 0)])  # noqa: E731
        return x._replace(
            readings=jax.tree.map(lambda queue: longer(queue, self.most[1]), x.readings),
            reading_delay=x.reading_delay + jnp.int32(self.variant.observation_delay),
            targets=longer(x.targets, self.most[0]),
            target_delay=x.target_delay + jnp.int32(self.variant.action_delay),
        )


def scaled(model: mujoco.MjModel, params: ParamsByField, variant: Variant) -> ParamsByField:
    """`params` of `model` and what the factors of `variant` change in it."""

    def field(name: str) -> Array:
        return jnp.asarray(params.get(name, getattr(model, name)))

    new = {name: field(name) * variant.mass for name in ("body_mass", "body_inertia")}
    for name in ("actuator_gainprm", "actuator_biasprm"):
        new[name] = field(name) * variant.gain
    new["geom_friction"] = field("geom_friction").at[:, 0].mul(variant.friction)
    if model.npair:
        new["pair_friction"] = field("pair_friction").at[:, :2].mul(variant.friction)
    return {**params, **new}


def _check(model: mujoco.MjModel) -> None:
    """Raise ValueError where a factor of a motor's numbers is none of its force."""
    gains, biases = mujoco.mjtGain, mujoco.mjtBias
    linear = np.isin(model.actuator_gaintype, [gains.mjGAIN_FIXED, gains.mjGAIN_AFFINE])
    linear &= np.isin(model.actuator_biastype, [biases.mjBIAS_NONE, biases.mjBIAS_AFFINE])
    if not linear.all():
        name = model.actuator(int(np.argmin(linear))).name
        raise ValueError(f"Actuator {name!r} is a muscle or of its maker: a gain scales no such.")
