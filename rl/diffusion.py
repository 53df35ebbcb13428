"""Denoising diffusion: how it is learned and how data are drawn.

A field is what a network predicts of noised data x [B, ...] at levels of noise [B].
"""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from rl.generative import ANYWHERE, MOST, Bounds, Field, along, shaken, squared
from rl.train import sound
from rl.types import Array, Key


def cosine(levels: int) -> np.ndarray:
    """Nichol and Dhariwal 2021 (arXiv:2102.09672), eq. 17: variances [levels] that are added."""
    at = np.cos((np.arange(levels + 1) / levels + 0.008) / 1.008 * np.pi / 2) ** 2
    return np.minimum(1 - at[1:] / at[:-1], 0.999)


def linear(levels: int) -> np.ndarray:
    """Ho et al. 2020 (arXiv:2006.11239), for a thousand levels, and as much in total for others."""
    return np.minimum(np.linspace(1e-4, 0.02, levels) * 1000 / levels, 0.999)


def vp(levels: int) -> np.ndarray:
    """Of a variance-preserving process between rates of 0.1 and 10, at equal times."""
    t = np.arange(1, levels + 1)
    return 1 - np.exp(-0.1 / levels - 0.5 * 9.9 * (2 * t - 1) / levels**2)


SCHEDULES = {"cosine": cosine, "linear": linear, "vp": vp}


@dataclass(frozen=True)
class Diffusion:
    """Denoising diffusion (DDPM: Ho et al. 2020, arXiv:2006.11239), drawn as DDIM has it (Song et
    al. 2020, arXiv:2010.02502): eta 1 over all levels is DDPM with its posterior's variance.

    A field is given levels [B], from `levels` (noise) to 1, as floats.
    """

    levels: int = 20  # of noise
    schedule: Literal["cosine", "linear", "vp"] = "cosine"  # how noise grows over them
    predicts: Literal["noise", "data", "velocity"] = "velocity"  # what the network tells
    steps: int = 20  # of drawing, evenly over the levels
    eta: float = 1.0  # noise of drawing; 0: none but the first

    def __post_init__(self) -> None:
        sound(
            self,
            levels=(self.levels > 0, "a count of at least 1"),
            steps=(0 < self.steps <= self.levels, f"a count of at most its levels, {self.levels}"),
            eta=(0 <= self.eta <= 1, "a share in [0, 1]"),
        )

    @property
    def signal(self) -> Array:
        """The share [levels + 1] of the variance that is the data's; of 0, all."""
        share = np.cumprod(1 - SCHEDULES[self.schedule](self.levels))
        return jnp.asarray(np.concatenate([[1.0], share]), jnp.float32)

    def parts(self, level: Array) -> tuple[Array, Array]:
        """What data and noise of unit variance are multiplied by at a level."""
        share = self.signal[level]
        return jnp.sqrt(share), jnp.sqrt(1 - share)

    @property
    def ladder(self) -> np.ndarray:
        """Levels [steps + 1] that drawing goes down, the last 0."""
        left = self.steps - np.arange(self.steps + 1)
        return (2 * self.levels * left + self.steps) // (2 * self.steps)  # rounded, a half upwards

    def noised(self, data: Array, noise: Array, level: Array) -> tuple[Array, Array]:
        """Data [B, ...] at a level of noise, and what is to be predicted there."""
        clear, rest = (along(x, data) for x in self.parts(level))
        targets = {"noise": noise, "data": data, "velocity": clear * noise - rest * data}
        return clear * data + rest * noise, targets[self.predicts]

    def loss(self, field: Field, data: Array, key: Key, kept: Array | None = None) -> Array:
        """Mean squared error of the prediction, over what is `kept` of data [B, ...]."""
        level_key, noise_key = jax.random.split(key)
        level = jax.random.randint(level_key, (len(data),), 1, self.levels + 1)
        x, target = self.noised(data, jax.random.normal(noise_key, data.shape), level)
        return squared(field(x, level.astype(jnp.float32)) - target, kept)

    def told(self, field: Field, x: Array, level: Array, bounds: Bounds) -> tuple[Array, Array]:
        """Data, within bounds, and noise that x [B, ...] at a level is taken to be made of."""
        clear, rest = self.parts(level)
        found = field(x, jnp.full(len(x), level, jnp.float32))
        match self.predicts:
            case "noise":
                data = (x - rest * found) / clear
            case "data":
                data = found
            case "velocity":
                data = clear * x - rest * found
        data = jnp.clip(data, *bounds)
        return data, (x - clear * data) / rest

    def mixed(self, data: Array, noise: Array, level: Array, to: Array) -> tuple[Array, Array]:
        """Mean and std [] at a lower level of what is made of these: eq. 12 and 16 of DDIM."""
        share, then = self.signal[level], self.signal[to]
        std = self.eta * jnp.sqrt((1 - then) / (1 - share) * (1 - share / then))
        return jnp.sqrt(then) * data + jnp.sqrt(jnp.maximum(1 - then - std**2, 0)) * noise, std

    def step(
        self, field: Field, x: Array, level: Array, to: Array, bounds: Bounds
    ) -> tuple[Array, Array]:
        """Mean and std [] of x [B, ...] at a lower level, of data within bounds."""
        return self.mixed(*self.told(field, x, level, bounds), level, to)

    def score(self, field: Field, data: Array, blur: float) -> Array:
        """Slope [B, ...] of the log-density that data have once noise of about this std is added:
        that of the nearest level."""
        clear, rest = self.parts(jnp.arange(1, self.levels + 1))
        level = 1 + jnp.abs(rest / clear - blur).argmin()
        clear, rest = self.parts(level)
        _, noise = self.told(field, clear * data, level, ANYWHERE)
        return -clear / rest * noise

    def sample(self, field: Field, noise: Array, key: Key, bounds: Bounds = ANYWHERE) -> Array:
        """Data of noise [B, ...], within bounds."""
        return self._walk(field, noise, key, bounds, 0.0, jnp.inf)[-1]

    def wander(
        self, field: Field, noise: Array, key: Key, least: float, bounds: Bounds = ANYWHERE
    ) -> Array:
        """Sampling whose every step has a std of at least `least`, as policy gradients need it: all
        states [steps + 1, B, ...] from noise to data (DPPO: Ren et al. 2024, arXiv:2409.00588)."""
        return self._walk(field, noise, key, bounds, least, MOST)

    def _walk(
        self, field: Field, noise: Array, key: Key, bounds: Bounds, least: float, most: float
    ) -> Array:
        def move(x: Array, now: tuple[Array, Array, Key]) -> tuple[Array, Array]:
            level, to, key = now
            mean, std = self.step(field, x, level, to, bounds)
            x = shaken(key, mean, jnp.maximum(std, least), most)
            return x, x

        each = *self.stairs(), jax.random.split(key, self.steps)
        return jnp.concatenate([noise[None], jax.lax.scan(move, noise, each)[1]])

    def stairs(self) -> tuple[Array, Array]:
        """The levels [steps] that drawing comes from and goes to."""
        return jnp.asarray(self.ladder[:-1]), jnp.asarray(self.ladder[1:])
