"""Kicks to a robot's trunk at random moments, as MuJoCo Playground gives them."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from rl.types import Array, Key

Range = tuple[float, float]


class Push(NamedTuple):
    """The kick that comes next, or that is under way once `wait` is over."""

    wait: Array  # [] s until it begins; below 0, since it began
    duration: Array  # [] s
    direction: Array  # [] rad, in the horizontal plane
    kick: Array  # [] m/s

    @property
    def on(self) -> Array:
        """[] bool."""
        return self.wait <= 0


@dataclass(frozen=True)
class Pushes:
    """Half a sine's worth of force on the trunk, again and again."""

    wait: Range = (1.0, 3.0)  # s between kicks
    duration: Range = (0.05, 0.2)  # s
    kick: Range = (0.0, 0.0)  # m/s; the robot's speed changes by a pi-th of it

    def __post_init__(self) -> None:
        for name in ("wait", "duration", "kick"):
            low, high = getattr(self, name)
            if not 0 <= low <= high < float("inf"):
                raise ValueError(f"{name} of pushes is {(low, high)}; it needs 0 <= least <= most.")
        if self.duration[0] <= 0:
            raise ValueError("A push of no duration is none: give its duration above 0 s.")

    def __bool__(self) -> bool:
        return self.kick[1] > 0

    def draw(self, key: Key) -> Push:
        """The next kick."""
        u = jax.random.uniform(key, (4,))
        between = lambda i, r: r[0] + u[i] * (r[1] - r[0])  # noqa: E731
        return Push(
            between(0, self.wait), between(1, self.duration), 2 * jnp.pi * u[2],
            between(3, self.kick),
        )  # fmt: skip

    def advance(self, key: Key, push: Push, dt: float) -> Push:
        """`dt` seconds later."""
        later = push._replace(wait=push.wait - dt)
        over = later.wait <= -later.duration
        return jax.tree.map(lambda a, b: jnp.where(over, a, b), self.draw(key), later)

    def force(self, push: Push, mass: float) -> Array:
        """Force [3] on a robot of `mass` kg now, N, in the world."""
        share = 0.5 * jnp.sin(jnp.pi * jnp.clip(-push.wait / push.duration, 0, 1))
        size = share * mass * push.kick / push.duration
        return size * jnp.stack([jnp.cos(push.direction), jnp.sin(push.direction), jnp.zeros(())])
