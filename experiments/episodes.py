"""Whole episodes of a policy, as a dataset holds them."""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl import rollout
from rl.data import dataset
from rl.data.dataset import Dataset
from rl.env import Env
from rl.policy import Policy
from rl.types import Key, Metrics, Params, Transition

WORLDS = 64  # episodes at a time
TRIES = 20  # episodes for each that is of use, at most
FIRST = 16 * TRIES  # episodes that may all be of no use


class Episode(NamedTuple):
    steps: Transition  # leaves [T, ...]
    facts: dict[str, Any]  # "length", "return", and what its task tells in the end


class TooFew(ValueError):
    """So many episodes were tried, and too few were of use."""

    def __init__(self, found: int, tried: int) -> None:
        super().__init__(f"Only {found} of {tried} episodes were of use.")
        self.found, self.tried = found, tried


def gathered(
    env: Env, policy: Policy, params: Params, key: Key, count: int,
    wanted: Callable[[dict[str, Any]], bool],
) -> list[Episode]:  # fmt: skip
    """The first `count` episodes that are wanted, by their facts, of those that `key` begins."""
    found: list[Episode] = []
    some = jax.jit(lambda key, params: lived(env, policy, params, key))
    tried = 0
    while len(found) < count:
        if tried >= FIRST + TRIES * len(found):
            raise TooFew(len(found), tried)
        batch_key = jax.random.fold_in(key, tried // WORLDS)
        seen, metrics = jax.device_get(some(batch_key, params))
        found += [episode for episode in apart(seen, metrics) if wanted(episode.facts)]
        tried += WORLDS
    return found[:count]


def lived(env: Env, policy: Policy, params: Params, key: Key) -> tuple[Transition, Metrics]:
    """Steps of fresh worlds to the end of their time [T, N, ...], and their metrics: what comes
    after a world's first episode is of no use."""
    start_key, key = jax.random.split(key)
    worlds = rollout.start(env, policy, params, start_key, WORLDS)

    def tick(worlds: rollout.Worlds, key: Key) -> Any:
        before = worlds.state
        keys = jax.random.split(key, WORLDS)
        action, carry, aux = jax.vmap(policy.step, (None, 0, 0, 0))(
            params, worlds.carry, before.obs, keys
        )
        action = jnp.clip(action, -1, 1)  # as the task would
        after = jax.vmap(env.step)(before, action)
        seen = Transition(
            before.obs, action, after.reward, after.terminated, after.truncated, after.obs, aux
        )
        return worlds._replace(state=after, carry=carry), (seen, after.metrics)

    return jax.lax.scan(tick, worlds, jax.random.split(key, env.horizon))[1]


def apart(seen: Transition, metrics: Metrics) -> Iterator[Episode]:
    """Each world's first episode."""
    over = seen.terminated | seen.truncated
    for world in range(over.shape[1]):
        length = int(over[:, world].argmax()) + 1
        steps = jax.tree.map(itemgetter((slice(length), world)), seen)
        facts = {"length": length, "return": float(steps.reward.sum())}
        if "success" in metrics:
            facts["success"] = bool(metrics["success"][length - 1, world])
        yield Episode(steps, facts)


def joined(episodes: list[Episode], facts: dict[str, Any]) -> Dataset:
    steps = [dataset.named(episode.steps._replace(aux=())) for episode in episodes]
    numbers = [episode.facts for episode in episodes]
    return dataset.compact(
        {name: np.concatenate([x[name] for x in steps]) for name in steps[0]},
        {name: np.array([x[name] for x in numbers]) for name in numbers[0]},
        facts,
        "What was recorded",
    )
