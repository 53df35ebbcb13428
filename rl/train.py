"""Trainable parameters: a pytree and its optimiser state, stepped together."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from rl.types import Array, Params

Loss = Callable[..., tuple[Array, Any]]


class Trainable(NamedTuple):
    params: Params
    opt: optax.OptState


def trainable(params: Params, tx: optax.GradientTransformation) -> Trainable:
    return Trainable(params, tx.init(params))


def descend(
    tx: optax.GradientTransformation, loss: Loss, x: Trainable, *args: Any
) -> tuple[Trainable, Any]:
    """One optimiser step on `loss(params, *args) -> (scalar, aux)`, and that aux."""
    grads, aux = jax.grad(loss, has_aux=True)(x.params, *args)
    updates, opt = tx.update(grads, x.opt, x.params)
    return Trainable(optax.apply_updates(x.params, updates), opt), aux


def sound(agent: Any, **takes: tuple[bool, str]) -> None:
    """Raise for the first hyperparameter that is no finite number, or not `(well, "its kind")`."""
    for name, value in vars(agent).items():
        well, what = takes.get(name, (True, "a number"))
        if not well or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{type(agent).__name__}'s {name} is {value}; it takes {what}.")
