"""A toy world for the tests of what steps worlds: it ends by chance, and tells if it goes on."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl.env import State

SIZE, A = 3, 2
PUSH = np.random.default_rng(0).normal(size=(A, SIZE)).astype("f4")


class Body(NamedTuple):
    at: jax.Array
    made: jax.Array  # steps, ever
    told: jax.Array  # readings
    command: jax.Array


@dataclass(frozen=True, eq=False)
class Walk:
    """A point that is pushed and ends by chance; no step may follow an end: it is worth NaN.  Its
    context counts episodes."""

    horizon: int = 11
    ends: float = 0.08
    restarts: Any = "few"
    shown: str = "plain"
    action_dim, control_dt = A, 0.1

    def seen(self, at: jax.Array) -> Any:
        more = jnp.concatenate([2 * at, at[:1]])
        kinds = {"both": {"policy": at, "critic": more}, "parts": {"a": at, "b": more}}
        return kinds.get(self.shown, at)

    def reset(self, key: jax.Array, context: Any = None) -> State:
        at_key, key = jax.random.split(key)
        no, at = jnp.bool(False), jax.random.normal(at_key, (SIZE,))
        body = Body(at, jnp.int32(0), 3 * at, at[:1])
        told = dict.fromkeys(("pushed", "far"), jnp.float32(0))
        context = jnp.int32(0) if context is None else context
        return State(body, context, self.seen(at), jnp.float32(0), no, no, told, jnp.int32(0), key)

    def step(self, state: State, action: jax.Array) -> State:
        key, end_key = jax.random.split(state.key)
        at, t = 0.9 * state.sim.at + 0.3 * action @ PUSH, state.t + 1
        return state._replace(
            sim=Body(at, state.sim.made + 1, 3 * at, at[:1]),
            obs=self.seen(at),
            reward=jnp.where(state.done, jnp.nan, at[0] * t),
            terminated=jax.random.uniform(end_key) < self.ends,
            truncated=t >= self.horizon,
            metrics={"pushed": jnp.abs(action).sum(), "far": jnp.abs(at).max()},
            t=t,
            key=key,
        )

    def restart(self, state: State, prepared: State | None = None) -> State:
        fresh = self.reset(state.key) if prepared is None else prepared
        return self.select(state.done, fresh._replace(context=state.context + 1), state)

    def select(self, done: jax.Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)


def seen_of(env: Walk, state: State) -> tuple[np.ndarray, np.ndarray]:
    """What policy and critic see."""
    if env.shown == "both":
        return np.asarray(state.obs["policy"]), np.asarray(state.obs["critic"])
    obs = state.obs
    one = np.concatenate([obs["a"], obs["b"]]) if env.shown == "parts" else np.asarray(obs)
    return one, one
