"""The worlds of third parties, on the host, which honours each move of one once."""

import secrets
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import gymnasium
import jax
import numpy as np
from gymnasium import spaces


class Ticket(NamedTuple):
    """The right to move one world once; leaves are JAX's outside the host and numpy's in it."""

    host: Any  # [] uint32, the host it lives on, another one in every process
    slot: Any  # [] int32, its place among the worlds
    clock: Any  # [] int32, how often it has been reset or stepped


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
