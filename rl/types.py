"""Containers shared by every agent.

Shape letters used throughout: B batch, T time, N parallel worlds, E ensemble,
O observation size, A action size, H action chunk.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

Array = jax.Array
Key = jax.Array
PyTree = Any
Params = Any
Obs = Any  # an array [..., O], or a dict such as {"policy": ..., "critic": ..., "image": ...}
Metrics = dict[str, Array]
Readings = dict[str, Array]  # of the world, by the name of a sensor, a raw field or a camera


class Transition(NamedTuple):
    """One environment step.  `next_obs` is the observation before any reset."""

    obs: Obs
    action: Array  # [..., A] as the policy gave it; what leaves [-1, 1] is clipped by the task
    reward: Array  # [...]
    terminated: Array  # [...] bool; True stops bootstrapping
    truncated: Array  # [...] bool; the clock ran out, the value goes on
    next_obs: Obs
    aux: PyTree = ()  # what the policy wants remembered: log-density, value, noise


def is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def words(tree: PyTree) -> PyTree:
    """`tree` with every key as the uint32 words that it is made of."""
    return jax.tree.map(lambda x: jax.random.key_data(x) if is_key(x) else x, tree)


def keyed(tree: PyTree, like: PyTree) -> PyTree:
    """`tree` with keys of its words where `like` has keys."""

    def key(x: Array, like: Array) -> Array:
        return jax.random.wrap_key_data(jnp.asarray(x)) if is_key(like) and not is_key(x) else x

    return jax.tree.map(key, tree, like)


def view(obs: Obs, who: str) -> Obs:
    """What `who` ("policy" or "critic") sees of `obs`.

    Its own entry of a dict, else the policy's, else everything but the critic's.
    """
    if not isinstance(obs, dict):
        return obs
    common = {name: x for name, x in obs.items() if name != "critic"}
    return obs.get(who, obs.get("policy", common))
