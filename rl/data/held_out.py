"""What a learner makes of episodes that it does not learn from: measured without a rollout."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl.data import sampling
from rl.data.dataset import Dataset
from rl.data.sampling import Source
from rl.types import Array, Key, Metrics, Transition

STEPS = 2_048  # of each side, that are looked at


def counts(data: Dataset, share: float) -> tuple[int, int]:
    """How many episodes there are, and how many of them are held out: some, not all."""
    count = len(data.episodes["length"])
    held = min(max(round(share * count), 1), count - 1)
    if held < 1:
        raise ValueError("One episode cannot be held out of itself: --held-out 0, or more data.")
    return count, held


def split(data: Dataset, share: float, seed: int) -> tuple[Dataset, Dataset]:
    """The episodes to learn from and those held out, at least one of each, drawn by `seed`."""
    count, held = counts(data, share)
    order = np.random.default_rng(seed).permutation(count)
    return data.chosen(np.sort(order[held:])), data.chosen(np.sort(order[:held]))


def glimpse(source: Source, key: Key) -> Transition:
    """Some of its steps, as often as they are drawn [STEPS, ...]."""
    drawn = sampling.sample(source, key, STEPS, 1)
    return jax.tree.map(lambda x: x[:, 0], drawn)


def measured(agent: Any, state: Any, seen: Transition, key: Key) -> Metrics:
    """Of transitions [B, ...] with aux "return": how far the policy is from the data, and what
    critics believe, of the data's actions, the policy's and chance's.

    "imitated", "explained" and "bellman" are shares of a variance: of the data's actions that the
    policy has, of what the data came to that critics believe, of their targets that they meet.
    """
    dim = seen.action.shape[-1]
    policy, params = agent.policy(explore=False, action_dim=dim), agent.deploy(state)
    act_key, chance_key = jax.random.split(key)
    carry = policy.init(params)

    def act(obs: Any) -> Array:
        step = jax.vmap(lambda o: policy.step(params, carry, o, act_key)[0])
        return step(obs)

    here = act(seen.obs)
    apart = ((here - seen.action) ** 2).mean()
    spread = jnp.maximum(seen.action.var(0).mean(), 1e-8)
    found = {"distance": jnp.sqrt(apart), "imitated": 1 - apart / spread}
    if not hasattr(agent, "believed"):
        return found
    chance = jax.random.uniform(chance_key, here.shape, minval=-1, maxval=1)
    q = {
        name: agent.believed(state, seen.obs, action)
        for name, action in (("data", seen.action), ("policy", here), ("chance", chance))
    }
    after = agent.believed(state, seen.next_obs, act(seen.next_obs))
    target = seen.reward + agent.gamma * jnp.where(seen.terminated, 0, after)
    came = seen.aux["return"]
    error, off = q["data"] - target, q["data"] - came
    return found | {f"q_{name}": x.mean() for name, x in q.items()} | {
        "gap": q["policy"].mean() - q["data"].mean(), "td": jnp.sqrt((error**2).mean()),
        "bellman": 1 - error.var() / jnp.maximum(target.var(), 1e-8),
        "above_return": off.mean(), "return_std": came.std(),
        "explained": 1 - off.var() / jnp.maximum(came.var(), 1e-8),
    }  # fmt: skip
