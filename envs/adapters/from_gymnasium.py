"""Third-party gymnasium.Envs as an Env: one batched host call a step, never out of order.

Their worlds live on the host and cannot be copied, so a state holds tickets to them.  The host
honours a ticket once: a step repeated, left out or made from an old state is an error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from envs.adapters.gymnasium_host import Host, Ticket
from envs.checks import check_host
from envs.task import rescale
from rl.env import Restarts, State
from rl.types import Array, Key, Obs, PyTree


def from_gymnasium(
    factory: Callable[[], gymnasium.Env],
    num_envs: int | None,
    *,
    horizon: int | None = None,
    control_dt: float | None = None,
    rescale: bool = True,
    tells: Mapping[str, str] = MappingProxyType({}),
    task: Any = None,
) -> "FromGymnasium":
    """Exactly `num_envs` worlds made by `factory`, with Box actions and Box or Dict observations;
    None: as many as each reset asks for.

    `horizon` (steps) and `control_dt` (s) default to what the environment says of itself.
    Actions in [-1, 1] are clipped and rescaled to its range, or passed on if not `rescale`.
    `tells` are metrics by the names of a step's info, 0 where it has no such number; `task` is what
    the worlds are of, for a record.
    """
    check_host()
    if (num_envs is not None and num_envs < 1) or not callable(factory):
        raise ValueError(f"Needed: a factory and num_envs >= 1; given: {factory!r}, {num_envs}.")
    host = Host(factory, num_envs)
    env, box = host.envs[0], host.envs[0].action_space
    if not isinstance(box, spaces.Box):
        raise ValueError(f"from_gymnasium takes environments with Box actions; this has {box}.")
    if rescale and not box.is_bounded():
        raise ValueError(f"Actions in {box} have no bounds to rescale to: pass rescale=False.")
    if horizon is None:
        horizon = env.spec.max_episode_steps if env.spec else None
    if horizon is None or horizon < 1:
        raise ValueError(f"An episode of {horizon} steps is none: pass horizon= of at least 1.")
    control_dt = _control_dt(env) if control_dt is None else control_dt
    low, high = box.low.ravel(), box.high.ravel()
    return FromGymnasium(host, horizon, control_dt, rescale, low, high, tells, task)


@dataclass(frozen=True, eq=False)
class FromGymnasium:
    """Worlds of `host` under rl/env.py's contract, but for exactly one vmap of all of them.

    A state is good for one step, and a reset makes every earlier state stale: evaluation needs
    an environment of its own.  A state saved by another process has lost its worlds: its
    episodes are cut at their next step, with a warning.
    """

    host: "Host"
    horizon: int
    control_dt: float  # s
    rescale: bool
    low: np.ndarray  # [A]
    high: np.ndarray  # [A]
    tells: Mapping[str, str]
    task: Any

    @property
    def backend(self) -> str:
        return "gymnasium"

    @property
    def restarts(self) -> Restarts:
        return "all"  # which come in the order reset gave them

    @property
    def action_dim(self) -> int:
        return len(self.low)

    def reset(self, key: Key, context: PyTree = None) -> State:
        seed_key, key = jax.random.split(key)
        ticket, obs = self._call(self.host.reset, self._begun(), _seed(seed_key))
        return self._first(ticket, obs, () if context is None else context, key)

    def restart(self, state: State, prepared: State | None = None) -> State:
        seed_key, key = jax.random.split(state.key)
        ticket, obs = self._call(
            self.host.restart, self._begun(), state.sim, state.done, _seed(seed_key)
        )
        fresh = self._first(ticket, obs, state.context, key)
        return self.select(state.done, fresh, state)

    def select(self, done: Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)

    def step(self, state: State, action: Array) -> State:
        """One step; an episode that is over stays as it is, unrewarded."""
        if jnp.shape(action) != self.low.shape:
            raise ValueError(f"The action has shape {jnp.shape(action)}, not {self.low.shape}.")
        if self.rescale:
            action = rescale(action, jnp.asarray(self.low), jnp.asarray(self.high))
        flag = jax.ShapeDtypeStruct((), jnp.bool)
        number = jax.ShapeDtypeStruct((), jnp.float32)
        shapes = (*self._begun(), number, flag, flag, flag, dict.fromkeys(self.tells, number))
        ticket, obs, reward, terminated, truncated, lost, told = self._call(
            partial(self.host.step, self.tells), shapes, state.sim, state.done, action
        )
        t = state.t + ~state.done
        return State(
            sim=ticket,
            context=state.context,
            obs=jax.tree.map(lambda new, old: jnp.where(lost, old, new), obs, state.obs),
            reward=reward,
            terminated=terminated | state.terminated,
            truncated=truncated | state.truncated | lost | (t >= self.horizon),
            metrics=told,
            t=t,
            key=state.key,
        )

    def close(self) -> None:
        for env in self.host.made:
            env.close()

    def _begun(self) -> tuple[Ticket, Obs]:
        count = jax.ShapeDtypeStruct((), jnp.int32)
        return Ticket(jax.ShapeDtypeStruct((), jnp.uint32), count, count), self.host.shapes

    def _call(self, host: Callable[..., Any], shapes: PyTree, *args: PyTree) -> Any:
        return jax.pure_callback(host, shapes, *args, vmap_method="broadcast_all")

    def _first(self, ticket: Ticket, obs: Obs, context: PyTree, key: Key) -> State:
        no = jnp.bool(False)
        told = {name: jnp.float32(0) for name in self.tells}
        return State(ticket, context, obs, jnp.float32(0), no, no, told, jnp.int32(0), key)


def _seed(key: Key) -> Array:
    """A seed [] that numpy's oldest generators still take."""
    return (jax.random.bits(key) >> 1).astype(jnp.int32)


def _control_dt(env: gymnasium.Env) -> float:
    """Seconds in a step, as Gymnasium's robots or the pictures' rate give it; NaN if unknown."""
    dt, fps = getattr(env.unwrapped, "dt", None), env.metadata.get("render_fps")
    if isinstance(dt, int | float):
        return float(dt)
    return 1 / fps if fps else float("nan")
