"""Third-party gymnasium.Envs as an Env: one batched host call a step, never out of order.

Their worlds live on the host and cannot be copied, so a state holds tickets to them.  The host
honours a ticket once: a step repeated, left out or made from an old state is an error.
"""

import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from envs.task import rescale
from rl.env import Restarts, State
from rl.types import Array, Key, Obs, PyTree


class Ticket(NamedTuple):
    """The right to move one world once; leaves are JAX's outside the host and numpy's in it."""

    host: Any  # [] uint32, the host it lives on, another one in every process
    slot: Any  # [] int32, its place among the worlds
    clock: Any  # [] int32, how often it has been reset or stepped


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


class Host:
    """The worlds themselves.  Its methods take all of them at once, and see numpy only."""

    def __init__(self, factory: Callable[[], gymnasium.Env], num_envs: int | None) -> None:
        self.made = [factory() for _ in range(num_envs or 1)]
        self.more = None if num_envs else factory  # where each reset may ask for another number
        self.envs = self.made
        self.shapes = _shapes(self.envs[0].observation_space)
        self.id = np.uint32(secrets.randbits(32))
        self.clock = np.zeros(len(self.envs), np.int32)
        self.obs: list[Any] = [_blank(self.shapes)] * len(self.envs)  # the last of each
        self._lock = threading.Lock()

    def reset(self, seed: Any) -> Any:
        seed = np.asarray(seed)
        with self._lock:
            if self.more and seed.ndim == 1:
                self._have(len(seed), self.more)
            self._count(seed.shape)
            self._begin(range(len(self.envs)), seed)
            return self._tickets(), self._seen()

    def restart(self, ticket: Any, done: Any, seed: Any) -> Any:
        ticket, done = Ticket(*map(np.asarray, ticket)), np.asarray(done)
        with self._lock:
            self._lost(ticket)
            self._begin(np.flatnonzero(done), np.asarray(seed))
            return self._tickets(), self._seen()

    def step(self, tells: Mapping[str, str], ticket: Any, done: Any, action: Any) -> Any:
        ticket, done, action = Ticket(*map(np.asarray, ticket)), np.asarray(done), np.array(action)
        worlds, box = len(self.envs), self.envs[0].action_space
        reward, ended = np.zeros(worlds, np.float32), np.zeros((2, worlds), bool)
        told = {name: np.zeros(worlds, np.float32) for name in tells}
        with self._lock:
            lost = self._lost(ticket)
            if lost.any():
                warnings.warn(
                    "This state's worlds were in another process or environment and cannot be "
                    "resumed: their episodes are cut here and begin anew.", stacklevel=2,
                )  # fmt: skip
            for i in np.flatnonzero(~done & ~lost):
                self.clock[i] += 1  # first, so that a step that raises is not made again
                act = action[i].reshape(box.shape).astype(box.dtype)
                self.obs[i], reward[i], ended[0, i], ended[1, i], info = self.envs[i].step(act)
                for name, theirs in tells.items():
                    told[name][i] = info.get(theirs, 0)
            return self._tickets(), self._seen(), reward, *ended, lost, told

    def _have(self, count: int, more: Callable[[], gymnasium.Env]) -> None:
        """So many worlds, whose earlier states are stale."""
        self.made += [more() for _ in range(count - len(self.made))]
        self.envs = self.made[:count]
        self.clock = np.full(count, self.clock.max(), np.int32)
        self.obs = [_blank(self.shapes)] * count

    def _begin(self, slots: Iterable[int], seed: np.ndarray) -> None:
        for i in slots:
            self.clock[i] += 1
            self.obs[i], _ = self.envs[i].reset(seed=int(seed[i]))

    def _tickets(self) -> Ticket:
        slot = np.arange(len(self.envs), dtype=np.int32)
        return Ticket(np.full(len(slot), self.id), slot, self.clock.copy())

    def _seen(self) -> Any:
        return _stack(self.shapes, self.obs)

    def _lost(self, ticket: Ticket) -> np.ndarray:
        """[N] worlds that are not here at all; raises where a ticket of this host is not good."""
        self._count(ticket.slot.shape)
        ours = ticket.host == self.id
        slots = np.arange(len(self.envs))
        if (ticket.slot != slots)[ours].any():
            raise RuntimeError(
                f"Worlds came out of order, as {ticket.slot.tolist()}: from_gymnasium needs them "
                "in the order in which reset gave them."
            )
        wrong = slots[ours & (ticket.clock != self.clock)]
        if wrong.size:
            i = wrong[0]
            raise RuntimeError(
                f"World {i} was stepped twice or out of order: its state is from move "
                f"{ticket.clock[i]}, but it has made {self.clock[i]}; go on from the newest state, "
                "and give evaluation an environment of its own."
            )
        return ~ours

    def _count(self, shape: tuple[int, ...]) -> None:
        if shape != (len(self.envs),):
            raise ValueError(
                f"from_gymnasium made {len(self.envs)} worlds and got a batch of shape {shape}: "
                "vmap once, over exactly all worlds (no vmap over seeds)."
            )


def _seed(key: Key) -> Array:
    """A seed [] that numpy's oldest generators still take."""
    return (jax.random.bits(key) >> 1).astype(jnp.int32)


def _shapes(space: spaces.Space) -> Any:
    if isinstance(space, spaces.Dict):
        return {name: _shapes(sub) for name, sub in space.items()}
    if not isinstance(space, spaces.Box):
        raise ValueError(f"from_gymnasium takes Box and Dict observations; this has {space}.")
    return jax.ShapeDtypeStruct(space.shape, jax.dtypes.canonicalize_dtype(space.dtype))


def _stack(shapes: Any, obs: list[Any]) -> Any:
    if isinstance(shapes, dict):
        return {name: _stack(sub, [x[name] for x in obs]) for name, sub in shapes.items()}
    return np.stack([np.asarray(x, shapes.dtype) for x in obs])


def _blank(shapes: Any) -> Any:
    return jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), shapes)


def _control_dt(env: gymnasium.Env) -> float:
    """Seconds in a step, as Gymnasium's robots or the pictures' rate give it; NaN if unknown."""
    dt, fps = getattr(env.unwrapped, "dt", None), env.metadata.get("render_fps")
    if isinstance(dt, int | float):
        return float(dt)
    return 1 / fps if fps else float("nan")
