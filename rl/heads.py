"""What a critic predicts of a return and how it is taught: a number, or a histogram.

A head reads the network's outputs [..., K].  `backup` makes a target of the next step's
outputs, `mean` says what a target is worth, and `loss` compares outputs with a target.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from rl.train import sound
from rl.types import Array


@dataclass(frozen=True)
class MSE:
    """The value itself, by squared error."""

    outputs = 1

    def value(self, outputs: Array) -> Array:
        return outputs[..., 0]

    def backup(self, outputs: Array, reward: Array, discount: Array, bonus: Array) -> Array:
        """reward + discount (value + bonus) [..., 1]; the last three are [...]."""
        return (reward + discount * (self.value(outputs) + bonus))[..., None]

    def mean(self, target: Array) -> Array:
        return target[..., 0]

    def loss(self, outputs: Array, target: Array) -> Array:
        """[...] for each."""
        return (outputs - target)[..., 0] ** 2


@dataclass(frozen=True)
class HLGauss:
    """A histogram taught a Gaussian about the target (Farebrother et al. 2024, 2403.03950)."""

    low: float = -10.0
    high: float = 10.0
    bins: int = 101
    spread: float = 0.75  # std of that Gaussian, in bins

    def __post_init__(self) -> None:
        sound(
            self,
            high=(self.high > self.low, f"a number above low, {self.low}"),
            bins=(self.bins > 1, "a count of at least 2"),
            spread=(self.spread > 0, "a number above 0"),
        )

    @property
    def outputs(self) -> int:
        return self.bins

    def value(self, outputs: Array) -> Array:
        edges = jnp.linspace(self.low, self.high, self.bins + 1)
        return jax.nn.softmax(outputs) @ ((edges[1:] + edges[:-1]) / 2)

    def backup(self, outputs: Array, reward: Array, discount: Array, bonus: Array) -> Array:
        """reward + discount (value + bonus) [..., 1]; the last three are [...]."""
        return (reward + discount * (self.value(outputs) + bonus))[..., None]

    def mean(self, target: Array) -> Array:
        return target[..., 0]

    def loss(self, outputs: Array, target: Array) -> Array:
        """Cross-entropy [...] with the mass of the Gaussian in each bin, cut off at the ends."""
        edges = jnp.linspace(self.low, self.high, self.bins + 1)
        std = self.spread * (self.high - self.low) / self.bins
        mass = jax.scipy.special.ndtr((edges - jnp.clip(target, self.low, self.high)) / std)
        share = (mass[..., 1:] - mass[..., :-1]) / (mass[..., -1:] - mass[..., :1])
        return -(share * jax.nn.log_softmax(outputs)).sum(-1)


@dataclass(frozen=True)
class C51:
    """A histogram of the return's distribution (Bellemare et al. 2017, arXiv:1707.06887)."""

    low: float = -10.0
    high: float = 10.0
    bins: int = 101

    def __post_init__(self) -> None:
        sound(
            self,
            high=(self.high > self.low, f"a number above low, {self.low}"),
            bins=(self.bins > 1, "a count of at least 2"),
        )

    @property
    def outputs(self) -> int:
        return self.bins

    @property
    def atoms(self) -> Array:
        return jnp.linspace(self.low, self.high, self.bins)

    def value(self, outputs: Array) -> Array:
        return self.mean(jax.nn.softmax(outputs))

    def backup(self, outputs: Array, reward: Array, discount: Array, bonus: Array) -> Array:
        """Shares [..., K] of reward + discount (atom + bonus), projected back onto the atoms."""
        moved = reward[..., None] + discount[..., None] * (self.atoms + bonus[..., None])
        place = (jnp.clip(moved, self.low, self.high) - self.low) * (self.bins - 1)
        place = place / (self.high - self.low)
        below = jnp.clip(jnp.floor(place), 0, self.bins - 2)
        share, above = jax.nn.softmax(outputs), place - below
        spread = jnp.vectorize(self._spread, signature="(k),(k),(k)->(k)")
        return spread(below.astype(jnp.int32), share * (1 - above), share * above)

    @staticmethod
    def _spread(below: Array, near: Array, far: Array) -> Array:
        """Shares [K] added up on the atoms `below` [K] and on those after them."""
        found = jnp.zeros_like(near).at[below].add(near, mode="clip")
        return found.at[below + 1].add(far, mode="clip")  # clip: what is no number stays seen

    def mean(self, target: Array) -> Array:
        return target @ self.atoms

    def loss(self, outputs: Array, target: Array) -> Array:
        """Cross-entropy [...]."""
        return -(target * jax.nn.log_softmax(outputs)).sum(-1)


Head = MSE | HLGauss | C51
