"""MuJoCo Playground's environments as an Env: every episode a whole reset, every end a true one.

Playground's own wrapper for training begins each episode in the state that its slot began the
first one in, leaves `info` as it was, and gives the next episode's first observation in the place
of the last one's.  Here rl/env.py's contract holds: theirs are but `reset` and `step`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from rl.env import Restarts, State
from rl.types import Array, Key, Metrics, Obs, PyTree

NAMES = {"state": "policy", "privileged_state": "critic"}  # theirs, and ours: rl.types.view
Packed = tuple[Array, ...]


class Seen(NamedTuple):
    """What a step of theirs told."""

    obs: Obs
    reward: Array  # [] float32
    over: Array  # [] bool
    metrics: Metrics
    sound: Array  # [] bool, all of it and the pose are numbers


@dataclass(frozen=True, eq=False)
class FromPlayground:
    """`theirs`, an MjxEnv, under rl/env.py's contract; actions are clipped to [-1, 1].

    A state's `sim` is their state's arrays in a row, without those of no size, which checkpoints
    refuse.  Where Warp steps, what it alone knows is left out, too: it makes all of it anew in a
    step, some for all worlds in common, which nothing could select by world.
    """

    theirs: Any
    task: Any  # what is known to a record
    backend: str  # mjx or warp
    horizon: int
    repeat: int  # of their steps in one of ours: the config's action_repeat

    @property
    def low(self) -> np.ndarray:
        """What -1 stands for: itself."""
        return np.full(self.action_dim, -1.0)

    @property
    def high(self) -> np.ndarray:
        return -self.low

    @property
    def restarts(self) -> Restarts:
        return "prepared"

    @property
    def action_dim(self) -> int:
        return self.theirs.action_size

    @property
    def control_dt(self) -> float:
        return self.theirs.dt * self.repeat

    def reset(self, key: Key, context: PyTree = None) -> State:
        start_key, key = jax.random.split(key)
        sim, seen = self._begun(start_key)
        off = jnp.bool(False)
        return State(
            sim=sim,
            context=() if context is None else context,
            obs=seen.obs,
            reward=jnp.float32(0),
            terminated=off,
            truncated=off,
            metrics=_metrics(seen.metrics, off),
            t=jnp.int32(0),
            key=key,
        )

    def step(self, state: State, action: Array) -> State:
        if jnp.shape(action) != (self.action_dim,):
            raise ValueError(
                f"The action has shape {jnp.shape(action)}; one world takes "
                f"{(self.action_dim,)}, vmap makes it many."
            )
        sim, seen = self._held(state.sim, jnp.clip(action, -1, 1))
        failed, t = ~seen.sound, state.t + 1
        return State(
            sim=sim,
            context=state.context,
            # As a world of ours that blew up: the episode ends there, unrewarded.
            obs=jax.tree.map(lambda new, old: jnp.where(failed, old, new), seen.obs, state.obs),
            reward=jnp.where(failed, 0.0, seen.reward),
            terminated=seen.over & ~failed,
            truncated=(t >= self.horizon) | failed,
            metrics=_metrics(seen.metrics, failed),
            t=t,
            key=state.key,
        )

    def restart(self, state: State, prepared: State | None = None) -> State:
        fresh = self.reset(state.key) if prepared is None else prepared
        return self.select(state.done, fresh._replace(context=state.context), state)

    def select(self, done: Array, fresh: State, state: State) -> State:
        return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, state)

    def pose(self, state: State) -> Array:
        """qpos, and where mocap bodies are, in MuJoCo's order."""
        data = self._unpacked(state.sim).data
        parts = data.qpos, data.mocap_pos, data.mocap_quat
        return jnp.concatenate([jnp.ravel(x) for x in parts])

    def _begun(self, key: Key) -> tuple[Packed, Seen]:
        # TF32, an accelerator's default, is too coarse for dynamics.
        with jax.default_matmul_precision("highest"):
            found = self.theirs.reset(jax.random.key_data(key))
        return self._packed(found), _seen(found)

    def _held(self, sim: Packed, action: Array) -> tuple[Packed, Seen]:
        """Some of their steps, or as few as end the episode, their rewards summed."""
        sim, seen = self._once(sim, action)

        def tick(loop: tuple[Packed, Seen], _: None) -> tuple[tuple[Packed, Seen], None]:
            before, (sim, seen) = loop[1], self._once(loop[0], action)
            after = sim, seen._replace(reward=before.reward + seen.reward)
            over = before.over | ~before.sound
            return jax.tree.map(lambda old, new: jnp.where(over, old, new), loop, after), None

        if self.repeat > 1:
            (sim, seen), _ = jax.lax.scan(tick, (sim, seen), length=self.repeat - 1)
        return sim, seen

    def _once(self, sim: Packed, action: Array) -> tuple[Packed, Seen]:
        with jax.default_matmul_precision("highest"):
            found = self.theirs.step(self._unpacked(sim), action)
        return self._packed(found), _seen(found)

    @cached_property
    def _like(self) -> Any:
        """Their state after a step: shapes of what is carried, and what is the same ever after."""
        key, rest = jax.random.key_data(jax.random.key(0)), jnp.zeros(self.action_dim)
        like = jax.eval_shape(lambda: self.theirs.step(self.theirs.reset(key), rest))
        if self.backend == "warp":
            from mujoco import mjx  # slow to import

            sizes = {name: getattr(like.data._impl, name) for name in ("naconmax", "njmax")}
            with jax.ensure_compile_time_eval():  # kept: it must not be some trace's
                blank = mjx.make_data(self.theirs.mj_model, impl="warp", **sizes)
            like = like.replace(data=like.data.replace(_impl=blank._impl))
        return like

    def _packed(self, found: Any) -> Packed:
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(self._like), strict=True)
        return tuple(jnp.asarray(x, like.dtype) for x, like in pairs if _carried(like))

    def _unpacked(self, sim: Packed) -> Any:
        likes, shape = jax.tree.flatten(self._like)
        carried, rest = iter(sim), (jax.ShapeDtypeStruct,)
        leaves = [
            next(carried) if _carried(x) else jnp.zeros(x.shape, x.dtype) if isinstance(x, rest)
            else x
            for x in likes
        ]  # fmt: skip
        return jax.tree.unflatten(shape, leaves)


def _carried(like: Any) -> bool:
    return isinstance(like, jax.ShapeDtypeStruct) and like.size > 0


def _seen(found: Any) -> Seen:
    """What is told by their state."""
    obs, reward = found.obs, jnp.asarray(found.reward, jnp.float32)
    if isinstance(obs, Mapping):
        obs = {NAMES.get(name, name): x for name, x in obs.items()}
    told = *jax.tree.leaves(obs), found.data.qpos, found.data.qvel, reward
    sound = jnp.stack([jnp.isfinite(x).all() for x in told]).all()
    metrics = {name: jnp.asarray(x, jnp.float32) for name, x in found.metrics.items()}
    return Seen(obs, reward, jnp.asarray(found.done) > 0, metrics, sound)


def _metrics(metrics: Metrics, failed: Array) -> Metrics:
    alive = {name: jnp.where(failed, 0.0, x) for name, x in metrics.items()}
    return alive | {"failed": failed.astype(jnp.float32)}
