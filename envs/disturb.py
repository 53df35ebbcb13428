"""What a simulator adds between a task and its world, and a robot has for real.

Noise, bias and delay act on the readings before `observe`; delay acts on the targets after
`control`.  Everything is drawn anew at each reset and none of it is exported.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from envs.task import Readings
from rl.types import Array, Key

Steps = tuple[int, int]  # least and most, in control steps, drawn per episode


class Disturbed(NamedTuple):
    """Per-episode draws and what is still on its way."""

    bias: Readings
    readings: Readings  # leaves [most + 1, ...], newest first
    reading_delay: Array  # [] int32
    targets: Array  # [most + 1, A], newest first
    target_delay: Array  # [] int32


@dataclass(frozen=True)
class Disturbance:
    """Ranges to draw from; the default disturbs nothing.  Keys are names of readings."""

    noise: Mapping[str, float] = field(default_factory=dict)  # std, in the reading's unit
    bias: Mapping[str, float] = field(default_factory=dict)  # half-range of a constant offset
    reading_delay: Steps = (0, 0)
    target_delay: Steps = (0, 0)

    def __post_init__(self) -> None:
        for name in ("reading_delay", "target_delay"):
            least, most = getattr(self, name)
            if not 0 <= least <= most:
                raise ValueError(f"{name} is {(least, most)}; it needs 0 <= least <= most steps.")
        for kind in ("noise", "bias"):
            for name, size in getattr(self, kind).items():
                if not 0 <= size < float("inf"):
                    raise ValueError(f"{kind} of {name!r} is {size}; it needs a finite size >= 0.")

    def check(self, readings: Readings) -> None:
        """Raise unless every disturbed reading exists and is a number, not a picture."""
        for name in (*self.noise, *self.bias):
            if name not in readings:
                raise ValueError(f"No reading {name!r} to disturb; there are {sorted(readings)}.")
            if not jnp.issubdtype(readings[name].dtype, jnp.floating):
                raise ValueError(f"Reading {name!r} is {readings[name].dtype}; only delay fits it.")

    def begin(self, key: Key, readings: Readings, targets: Array) -> Disturbed:
        """A new episode: the past is as if a first reading and `targets` had always held."""
        bias_key, noise_key, reading_key, target_key = jax.random.split(key, 4)
        keys = dict(zip(self.bias, jax.random.split(bias_key, max(len(self.bias), 1))))  # noqa: B905
        bias = {
            name: jax.random.uniform(keys[name], readings[name].shape, minval=-b, maxval=b)
            for name, b in self.bias.items()
        }
        told = self._measure(bias, noise_key, readings)
        return Disturbed(
            bias=bias,
            readings=jax.tree.map(lambda x: _repeat(x, self.reading_delay[1] + 1), told),
            reading_delay=_draw(reading_key, self.reading_delay),
            targets=_repeat(targets, self.target_delay[1] + 1),
            target_delay=_draw(target_key, self.target_delay),
        )

    def sense(self, x: Disturbed, key: Key, readings: Readings) -> tuple[Readings, Disturbed]:
        """What the robot is told of `readings`: biased and noisy when measured, then late."""
        queue = jax.tree.map(_push, x.readings, self._measure(x.bias, key, readings))
        return jax.tree.map(lambda q: q[x.reading_delay], queue), x._replace(readings=queue)

    def actuate(self, x: Disturbed, targets: Array) -> tuple[Array, Disturbed]:
        """The targets that reach the actuators now."""
        queue = _push(x.targets, targets)
        return queue[x.target_delay], x._replace(targets=queue)

    def _measure(self, bias: Readings, key: Key, readings: Readings) -> Readings:
        keys = dict(zip(self.noise, jax.random.split(key, max(len(self.noise), 1))))  # noqa: B905
        told = dict(readings)
        for name, offset in bias.items():
            told[name] = told[name] + offset
        for name, std in self.noise.items():
            told[name] = told[name] + std * jax.random.normal(keys[name], told[name].shape)
        return told


def _draw(key: Key, steps: Steps) -> Array:
    return jax.random.randint(key, (), steps[0], steps[1] + 1)


def _repeat(x: Array, times: int) -> Array:
    return jnp.broadcast_to(x, (times, *x.shape))


def _push(queue: Array, x: Array) -> Array:
    return jnp.concatenate([x[None], queue[:-1]])
