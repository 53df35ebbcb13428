"""What a simulator adds between a task and its world, and a robot has for real.

Noise, bias and delay act on the readings before `observe`; delay acts on the targets after
`control`.  Everything is drawn anew at each reset and none of it is exported.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.types import Array, Key, Readings

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
    """Ranges to draw from; the default disturbs nothing.

    Keys are names of readings, or patterns of them: "*_pos" is every one that ends so.
    """

    noise: Mapping[str, float] = field(default_factory=dict)  # std, in the reading's unit
    jitter: Mapping[str, float] = field(default_factory=dict)  # half-range of uniform noise
    bias: Mapping[str, float] = field(default_factory=dict)  # half-range of a constant offset
    reading_delay: Steps = (0, 0)
    target_delay: Steps = (0, 0)

    def __post_init__(self) -> None:
        for name, (least, most) in self.delays().items():
            if not 0 <= least <= most:
                raise ValueError(f"{name} is {(least, most)}; it needs 0 <= least <= most steps.")
        for kind in ("noise", "jitter", "bias"):
            for name, size in getattr(self, kind).items():
                if not 0 <= size < float("inf"):
                    raise ValueError(f"{kind} of {name!r} is {size}; it needs a finite size >= 0.")

    def delays(self) -> dict[str, Steps]:
        """Both, by name."""
        return {"reading_delay": self.reading_delay, "target_delay": self.target_delay}

    def check(self, readings: Readings) -> None:
        """Raise unless every disturbed reading exists and is a number, not a picture."""
        for pattern in (*self.noise, *self.jitter, *self.bias):
            found = [name for name in readings if fnmatchcase(name, pattern)]
            if not found:
                raise ValueError(
                    f"No reading {pattern!r} to disturb; there are {sorted(readings)}."
                )
            for name in found:
                if not jnp.issubdtype(readings[name].dtype, jnp.floating):
                    raise ValueError(
                        f"Reading {name!r} is {readings[name].dtype}; only delay fits it."
                    )

    def begin(self, key: Key, readings: Readings, targets: Array) -> Disturbed:
        """A new episode: the past is as if a first reading and `targets` had always held."""
        bias_key, noise_key, reading_key, target_key = jax.random.split(key, 4)
        bias = _drawn(bias_key, _symmetric, self.bias, readings)
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
        noise_key, jitter_key = jax.random.split(key)
        added = (
            bias,
            _drawn(noise_key, jax.random.normal, self.noise, readings),
            _drawn(jitter_key, _symmetric, self.jitter, readings),
        )
        told = dict(readings)
        for offsets in added:
            for name, offset in offsets.items():
                told[name] = told[name] + offset
        return told


def _drawn(
    key: Key, draw: Callable[..., Array], sizes: Mapping[str, float], readings: Readings
) -> Readings:
    """An offset of each reading that `sizes` has a pattern of: `draw` times its size."""
    found = {
        name: size
        for pattern, size in sizes.items()
        for name in readings
        if fnmatchcase(name, pattern)
    }
    # One draw for all: a key for each of many small readings takes longer than they do.
    every = draw(key, (sum(readings[name].size for name in found),))
    offsets, start = {}, 0
    for name, size in found.items():
        shape, end = readings[name].shape, start + readings[name].size
        offsets[name], start = size * every[start:end].reshape(shape), end
    return offsets


def _symmetric(key: Key, shape: tuple[int, ...]) -> Array:
    return jax.random.uniform(key, shape, minval=-1, maxval=1)


def _draw(key: Key, steps: Steps) -> Array:
    return jax.random.randint(key, (), steps[0], steps[1] + 1)


def _repeat(x: Array, times: int) -> Array:
    return jnp.broadcast_to(x, (times, *x.shape))


def _push(queue: Array, x: Array) -> Array:
    return jnp.concatenate([x[None], queue[:-1]])
