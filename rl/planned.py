"""An environment whose action is a plan, so that who draws plans is learned on-policy as any other:
one step of it is all that is done of a plan (DPPO's and ReinFlow's environments)."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rl.env import Sized, State
from rl.executors import recent
from rl.samples import views
from rl.types import Array, Key, Obs, PyTree


class Sim(NamedTuple):
    """What an episode of plans carries."""

    own: Any  # of the environment
    obs: Obs  # its own
    seen: Array  # [h, O] lately, the newest last

    @property
    def told(self) -> Any:
        return self.own.told

    @property
    def command(self) -> Any:
        return self.own.command


@dataclass(frozen=True, eq=False)
class Planned(Sized):
    """`env` with the first `execute` actions of a plan [H, A] in each step, or as many as its
    episode has left; they are clipped here.

    The policy's view is what was seen lately [h, O].  Rewards are sums over the steps made, metrics
    those of the last.  `horizon`, `control_dt` [s] and a state's `t` count plans.
    """

    execute: int
    history: int = 1

    @property
    def horizon(self) -> int:
        return -(-self.env.horizon // self.execute)

    @property
    def control_dt(self) -> float:
        return self.env.control_dt * self.execute

    def reset(self, key: Key, context: PyTree = None) -> State:
        return self._begun(self.env.reset(key, context))

    def restart(self, state: State, prepared: State | None = None) -> State:
        own = None if prepared is None else self._own(prepared)
        after = self._begun(self.env.restart(self._own(state), own))
        return self._chosen(state.done, after, state, after)

    def select(self, done: Array, fresh: State, state: State) -> State:
        own = self.env.select(done, self._own(fresh), self._own(state))
        return self._chosen(done, fresh, state, self._begun(own))

    def step(self, state: State, action: Array) -> State:
        def tick(now: tuple[State, Array, Array], action: Array) -> tuple[Any, None]:
            own, seen, total = now
            after = self.env.step(own, jnp.clip(action, -1, 1))
            latest = recent(seen, views(after.obs).policy, jnp.bool(False))
            seen = jnp.where(own.done, seen, latest)
            total = total + jnp.where(own.done, 0, after.reward)
            return (self.env.select(own.done, own, after), seen, total), None

        # Only an ended episode can stand between two actions, and that one is not stepped.
        begin = self._own(state), state.sim.seen, jnp.float32(0)
        (own, seen, total), _ = jax.lax.scan(tick, begin, action[: self.execute])
        return self._shown(own._replace(reward=total), seen)

    def _begun(self, own: State) -> State:
        now = views(own.obs).policy
        return self._shown(own, jnp.broadcast_to(now, (self.history, *now.shape)))

    def _shown(self, own: State, seen: Array) -> State:
        """The environment's `own` state, of which this was seen."""
        obs = {"policy": seen, "critic": views(own.obs).critic}
        sim = Sim(own.sim, own.obs, seen)
        return own._replace(sim=sim, obs=obs, t=-(-own.t // self.execute))

    def _own(self, state: State) -> State:
        sim = state.sim
        return state._replace(sim=sim.own, obs=sim.obs, t=state.t * self.execute)

    def _chosen(self, done: Array, fresh: State, state: State, mixed: State) -> State:
        """`mixed`, having seen what the one of the two has that it is."""
        seen = jnp.where(done, fresh.sim.seen, state.sim.seen)
        return self._shown(self._own(mixed), seen)
