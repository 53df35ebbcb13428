"""Generating data from noise along a flow: how it is learned and how data are drawn.

A field is what a network makes of noised data x [B, ...] at times [B], here a velocity; of what it
is conditioned on it knows by itself.  rl/diffusion.py is a sibling.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from rl.train import sound
from rl.types import Array, Key

Field = Callable[[Array, Array], Array]
SizedField = Callable[[Array, Array, Array], Array]  # which knows how far it is to step
Spread = Callable[[Array, Array], Array]  # std of what is added to x [B, ...] at times [B]
Bounds = tuple[Array | float, Array | float]  # that data lie within
ANYWHERE: Bounds = (-jnp.inf, jnp.inf)
MOST = 3.0  # stds of the noise of a step that is explored


def along(time: Array, x: Array) -> Array:
    """Numbers [B] that broadcast against x [B, ...]."""
    return time.reshape(*time.shape, *[1] * (x.ndim - time.ndim))


def squared(error: Array, kept: Array | None) -> Array:
    """The mean square over all that is `kept` (bool, broadcastable to it)."""
    if kept is None:
        return (error**2).mean()
    kept = jnp.broadcast_to(kept, error.shape)
    return jnp.where(kept, error**2, 0).sum() / jnp.maximum(kept.sum(), 1)


def logp(x: Array, mean: Array, std: Array) -> Array:
    """Log-density [...] of every number of x under a Gaussian."""
    return -0.5 * ((x - mean) / std) ** 2 - jnp.log(std) - 0.5 * jnp.log(2 * jnp.pi)


def shaken(key: Key, mean: Array, std: Array, most: float = MOST) -> Array:
    """A Gaussian's sample, within so many stds."""
    return mean + std * jnp.clip(jax.random.normal(key, mean.shape), -most, most)


@dataclass(frozen=True)
class Flow:
    """Flow matching on straight paths: the field is the velocity from noise to data.

    Lipman et al. 2023 (arXiv:2210.02747), Liu et al. 2022 (arXiv:2209.03003).  Time runs to the
    data ("data_at_one": FQL, QC) or from it ("noise_at_one": openpi).
    """

    steps: int = 10  # of the solver
    solver: Literal["euler", "heun"] = "euler"  # heun looks twice
    convention: Literal["data_at_one", "noise_at_one"] = "data_at_one"  # which way time runs
    times: Literal["uniform", "logit_normal", "beta"] = "uniform"  # learned at; beta: as openpi

    def __post_init__(self) -> None:
        sound(self, steps=(self.steps > 0, "a count of at least 1"))

    @property
    def sign(self) -> int:
        """Of the velocity: which way time runs."""
        return 1 if self.convention == "data_at_one" else -1

    def time(self, done: Array) -> Array:
        """By this convention, of the share of the way from noise to data."""
        return done if self.sign > 0 else 1 - done

    def drawn(self, key: Key, count: int) -> Array:
        """Times [count] to learn at."""
        match self.times:
            case "uniform":
                return jax.random.uniform(key, (count,))
            case "logit_normal":
                return jax.nn.sigmoid(jax.random.normal(key, (count,)))
            case "beta":
                at_noise = 0.001 + 0.999 * jax.random.beta(key, 1.5, 1.0, (count,))
                return at_noise if self.sign < 0 else 1 - at_noise

    def noised(self, data: Array, noise: Array, time: Array) -> tuple[Array, Array]:
        """What is between noise and data [B, ...] at a time, and the velocity there."""
        done = along(self.time(time), data)
        return (1 - done) * noise + done * data, self.sign * (data - noise)

    def loss(self, field: Field, data: Array, key: Key, kept: Array | None = None) -> Array:
        """Mean squared error of the velocity, over what is `kept` of data [B, ...]."""
        time_key, noise_key = jax.random.split(key)
        time = self.drawn(time_key, len(data))
        x, velocity = self.noised(data, jax.random.normal(noise_key, data.shape), time)
        return squared(field(x, time) - velocity, kept)

    def step(self, field: Field, x: Array, i: Array) -> Array:
        """x [B, ...] one of the solver's steps nearer to the data, after i of them."""
        size = self.sign / self.steps
        at = lambda i: jnp.full(len(x), self.time(i / self.steps))  # noqa: E731
        slope = field(x, at(i))
        if self.solver == "heun":
            slope = (slope + field(x + size * slope, at(i + 1))) / 2
        return x + size * slope

    def sample(self, field: Field, noise: Array, key: Key, bounds: Bounds = ANYWHERE) -> Array:
        """Data of noise [B, ...], within bounds; the key is not used."""
        move = lambda x, i: (self.step(field, x, i), None)  # noqa: E731
        return jnp.clip(jax.lax.scan(move, noise, jnp.arange(self.steps))[0], *bounds)

    def score(self, field: Field, data: Array, blur: float) -> Array:
        """Slope [B, ...] of the log-density that data have once noise of this std is added."""
        done = jnp.full(len(data), 1 / (1 + blur))
        velocity = self.sign * field(along(done, data) * data, self.time(done))
        return along(done**2 / (1 - done), data) * (velocity - data)

    def moments(
        self, field: Field, spread: Spread, x: Array, i: Array, bounds: Bounds
    ) -> tuple[Array, Array]:
        """Mean, within bounds, and std of the step from x [B, ...] where one is to wander."""
        time = jnp.full(len(x), self.time(i / self.steps))
        return jnp.clip(self.step(field, x, i), *bounds), spread(x, time)

    def wander(
        self, field: Field, spread: Spread, noise: Array, key: Key, bounds: Bounds = ANYWHERE
    ) -> Array:
        """Sampling with Gaussian noise after each step, as policy gradients need it: all states
        [steps + 1, B, ...] from noise to data, these not within bounds yet (ReinFlow: Zhang et al.
        2025, arXiv:2505.22094)."""

        def move(x: Array, now: tuple[Array, Key]) -> tuple[Array, Array]:
            x = shaken(now[1], *self.moments(field, spread, x, now[0], bounds))
            return x, x

        each = jnp.arange(self.steps), jax.random.split(key, self.steps)
        return jnp.concatenate([noise[None], jax.lax.scan(move, noise, each)[1]])

    def densities(
        self, field: Field, spread: Spread, states: Array, bounds: Bounds = ANYWHERE
    ) -> Array:
        """Log-density [steps, B, ...] of every number of states that wandered, given those before
        it."""
        step = jax.vmap(lambda x, i: self.moments(field, spread, x, i, bounds))
        return logp(states[1:], *step(states[:-1], jnp.arange(self.steps)))


@dataclass(frozen=True)
class Shortcut:
    """A flow whose field is told how far it is to step, so that few steps are enough, or one.

    Frans et al. 2024 (arXiv:2410.12557).  Time runs to the data.
    """

    steps: int = 1  # of drawing
    finest: int = 16  # steps that it learns by; a power of two
    consistent: float = 0.25  # share of a batch that learns of its own shorter steps

    def __post_init__(self) -> None:
        powers = [2**i for i in range(max(self.finest, 1).bit_length())]
        sound(
            self,
            finest=(self.finest > 1 and self.finest in powers, "a power of two above 1"),
            steps=(self.steps in powers, f"a power of two up to finest, {self.finest}"),
            consistent=(0 < self.consistent < 1, "a share in (0, 1)"),
        )

    def told(self, size: Array) -> Array:
        """What a field is told of a step [B]: the finest is none, as the velocity is learned."""
        return jnp.where(size * self.finest > 1, size, 0)

    def target(self, field: SizedField, x: Array, time: Array, size: Array) -> Array:
        """Velocity [B, ...] of two steps of a size, one after the other."""
        told = self.told(size)
        first = field(x, time, told)
        second = field(x + along(size, x) * first, time + size, told)
        return (first + second) / 2

    def loss(
        self,
        field: SizedField,
        teacher: SizedField,
        data: Array,
        key: Key,
        kept: Array | None = None,
    ) -> Array:
        """Mean squared error: some of the batch learns that a step is two of half its size by the
        `teacher` (a slow average of the field), the rest the velocity, told to step nowhere."""
        size_key, time_key, noise_key = jax.random.split(key, 3)
        count, rest = len(data), max(round(self.consistent * len(data)), 1)
        noise, time = (
            jax.random.normal(noise_key, data.shape),
            jax.random.uniform(time_key, (count,)),
        )
        half = 2.0 ** jax.random.randint(size_key, (count,), 0, self.finest.bit_length() - 1)
        half = jnp.where(jnp.arange(count) < rest, half / self.finest, 0)
        steps = 1 / jnp.where(half > 0, 2 * half, 1)
        time = jnp.where(half > 0, jnp.floor(time * steps) / steps, time)
        done = along(time, data)
        x, velocity = (1 - done) * noise + done * data, data - noise
        two = self.target(teacher, x[:rest], time[:rest], half[:rest])
        wanted = jax.lax.stop_gradient(velocity.at[:rest].set(two))
        return squared(field(x, time, 2 * half) - wanted, kept)

    def score(self, field: SizedField, data: Array, blur: float) -> Array:
        """That of a flow whose velocity is learned so."""
        return Flow().score(lambda x, time: field(x, time, 0 * time), data, blur)

    def sample(self, field: SizedField, noise: Array, key: Key, bounds: Bounds = ANYWHERE) -> Array:
        """Data of noise [B, ...], within bounds; the key is not used."""
        size = jnp.full(len(noise), 1 / self.steps)

        def move(x: Array, i: Array) -> tuple[Array, None]:
            return x + along(size, x) * field(x, i * size, self.told(size)), None

        return jnp.clip(jax.lax.scan(move, noise, jnp.arange(self.steps))[0], *bounds)
