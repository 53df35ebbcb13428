"""What the tests of agents that learn from replay have in common."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rl import heads
from rl.types import Transition

B, N_STEP, SEEN, A = 16, 3, 3, 2
HEADS = {"mse": heads.MSE(), "hl-gauss": heads.HLGauss(-3, 4, 21), "c51": heads.C51(-3, 4, 21)}
KEY = jax.random.key(5)


def close(ours: jax.Array, theirs: np.ndarray) -> bool:
    return np.allclose(np.asarray(ours, np.float64), theirs, rtol=1e-5, atol=1e-5)


def window(rng: np.random.Generator, count: int = B, length: int = N_STEP) -> Transition:
    ends = rng.random((2, count, length)) < 0.2
    arrays = Transition(
        obs=rng.normal(size=(count, length, SEEN)), action=rng.uniform(-1, 1, (count, length, A)),
        reward=rng.normal(size=(count, length)), terminated=ends[0], truncated=ends[1],
        next_obs=rng.normal(size=(count, length, SEEN)),
    )  # fmt: skip
    return jax.tree.map(lambda x: jnp.asarray(x, bool if x.dtype == bool else "f4"), arrays)


def made(agent: Any, rng: np.random.Generator) -> Any:
    """A state whose parameters, targets among them, are all different."""
    state = agent.init(jax.random.key(0), jnp.zeros(SEEN), jnp.zeros(A))
    noisy = lambda tree: jax.tree.map(lambda x: x + 0.3 * rng.normal(size=x.shape), tree)  # noqa: E731
    online = {name: getattr(state, name) for name in ("actor", "critic")}
    targets = {name: noisy(x) for name, x in state._asdict().items() if name.startswith("target")}
    return state._replace(
        **{name: x._replace(params=noisy(x.params)) for name, x in online.items()}, **targets
    )


def values_of_a_fixed_reward(agent: Any, terminated: bool) -> jax.Array:
    """What the critics [E] make of a reward of 1 at every step, which ends the episode or not."""
    flags = jnp.full((2, 32, 1), terminated)

    def learn(state: Any, key: jax.Array) -> tuple[Any, None]:
        action = jax.random.uniform(key, (2, 32, 1, 1), minval=-1, maxval=1)
        obs = jnp.zeros((2, 32, 1, 1))
        batch = Transition(obs, action, jnp.ones((2, 32, 1)), flags, flags & False, obs)
        return agent.update(state, batch, key)[0], None

    state = agent.init(jax.random.key(0), jnp.zeros(1), jnp.zeros(1))
    state, _ = jax.jit(lambda s: jax.lax.scan(learn, s, jax.random.split(KEY, 600)))(state)
    return agent.head.value(agent.q(state.critic.params, jnp.zeros(1), jnp.zeros(1)))
