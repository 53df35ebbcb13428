"""What a step of off-policy learning sees of replay: both views of observations, n-step rewards."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from rl.nets import flatten
from rl.returns import n_step
from rl.types import Array, Obs, Transition, view


class Views(NamedTuple):
    """An observation as flat vectors: what the policy sees of it, and what the critic does."""

    policy: Array  # [..., O]
    critic: Array  # [..., O']


class Sample(NamedTuple):
    """A window of steps as one: leaves [B, ...]."""

    obs: Views
    action: Array
    reward: Array  # summed over the window
    discount: Array  # of what comes after it
    next_obs: Views


def views(obs: Obs) -> Views:
    return Views(flatten(view(obs, "policy")), flatten(view(obs, "critic")))


def sample(windows: Transition, gamma: float, scale: Callable[[Views], Views]) -> Sample:
    """What to learn from windows [B, n, ...] of consecutive steps, observations scaled."""
    obs, action = jax.tree.map(lambda x: x[:, 0], (windows.obs, windows.action))
    reward, discount, after = n_step(windows, gamma)
    return Sample(scale(views(obs)), action, reward, discount, scale(views(after)))
