"""Action repeat: each action held for several control steps of the environment below."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from rl.env import Sized, State
from rl.types import Array, Key, PyTree


@dataclass(frozen=True, eq=False)
class Repeat(Sized):
    """`env` with each action held for `times` of its steps, or until its episode ends.

    Rewards and metrics are sums over the steps made; a step of an ended episode makes none.
    `horizon`, `control_dt` [s] and a state's `t` count held actions.
    """

    times: int

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"Repeat holds an action for {self.times} steps; it needs 1 or more.")

    @property
    def horizon(self) -> int:
        return -(-self.env.horizon // self.times)

    @property
    def control_dt(self) -> float:
        return self.env.control_dt * self.times

    def reset(self, key: Key, context: PyTree = None) -> State:
        return self.env.reset(key, context)

    def restart(self, state: State, prepared: State | None = None) -> State:
        return self.env.restart(state, prepared)

    def select(self, done: Array, fresh: State, state: State) -> State:
        return self.env.select(done, fresh, state)

    def step(self, state: State, action: Array) -> State:
        def tick(state: State, _: None) -> tuple[State, tuple[Array, dict[str, Array]]]:
            after = self.env.step(state, action)
            seen = jax.tree.map(
                lambda x: jnp.where(state.done, 0, x), (after.reward, after.metrics)
            )
            return self.env.select(state.done, state, after), seen

        # Only an ended episode can stand between two held actions, and that one is not stepped.
        state = state._replace(t=state.t * self.times)
        state, seen = jax.lax.scan(tick, state, length=self.times)
        reward, metrics = jax.tree.map(lambda x: x.sum(0), seen)
        return state._replace(reward=reward, metrics=metrics, t=-(-state.t // self.times))
