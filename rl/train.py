"""Trainable parameters: a pytree and its optimiser state, stepped together."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from rl.types import Array, Metrics, Params

Loss = Callable[..., tuple[Array, Metrics]]


class Trainable(NamedTuple):
    params: Params
    opt: optax.OptState


def trainable(params: Params, tx: optax.GradientTransformation) -> Trainable:
    return Trainable(params, tx.init(params))


def descend(
    tx: optax.GradientTransformation, loss: Loss, x: Trainable, *args: Any
) -> tuple[Trainable, Metrics]:
    """One optimiser step on `loss(params, *args) -> (scalar, metrics)`."""
    grads, metrics = jax.grad(loss, has_aux=True)(x.params, *args)
    updates, opt = tx.update(grads, x.opt, x.params)
    return Trainable(optax.apply_updates(x.params, updates), opt), metrics
