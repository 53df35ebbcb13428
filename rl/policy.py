"""A policy is one interface: the evaluator vmaps it, the trainer records it, the robot runs it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from rl.types import Array, Key, Obs, Params, PyTree

Carry = Any  # recurrent state, action queue; () for a memoryless policy


class Policy(NamedTuple):
    """Written for one world; callers vmap over carry, obs and key.

    `init(params) -> carry` starts an episode; `step(params, carry, obs, key) -> action [A],
    carry, aux` goes on, where aux is what training wants kept.
    """

    init: Callable[[Params], Carry]
    step: Callable[[Params, Carry, Obs, Key], tuple[Array, Carry, PyTree]]


def memoryless(act: Callable[[Params, Obs, Key], tuple[Array, PyTree]]) -> Policy:
    """The policy of a function from params, obs and key to action [A] and aux."""

    def step(params: Params, carry: Carry, obs: Obs, key: Key) -> tuple[Array, Carry, PyTree]:
        action, aux = act(params, obs, key)
        return action, carry, aux

    return Policy(init=lambda params: (), step=step)


def uniform(action_dim: int) -> Policy:
    """Actions drawn uniformly from [-1, 1]: a baseline, and how off-policy learning begins."""
    return memoryless(
        lambda params, obs, key: (jax.random.uniform(key, (action_dim,), minval=-1, maxval=1), ())
    )
