"""Ours as `gymnasium.Env`: one world, stepped on the host."""

import math
from functools import cached_property, partial
from typing import Any

import gymnasium
import jax
import mujoco
import numpy as np
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from envs.render import Painter, spectator
from envs.repeat import Repeat
from envs.simulation import Simulation
from rl.env import Env, State
from rl.types import Array, Key, PyTree

Info = dict[str, Any]


def to_gymnasium(env: Env, render_mode: str | None = None) -> "GymnasiumEnv":
    """`env` as a gymnasium.Env; a step's info holds its metrics, a reset's nothing."""
    return GymnasiumEnv(env, render_mode)


class GymnasiumEnv(gymnasium.Env[Any, np.ndarray]):
    """One world of `env`, whose current state is `state`.

    Actions are in [-1, 1], or in the task's own range where the task does not rescale them.
    """

    def __init__(self, env: Env, render_mode: str | None = None) -> None:
        self.env, self.render_mode, self.metadata = env, render_mode, metadata(env)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"Unknown render_mode {render_mode!r}; there is {self.metadata['render_modes']}."
            )
        self.action_space, self.observation_space = action_space(env), observation_space(env)
        self.state: State | None = None

    @property
    def dt(self) -> float:
        """Seconds in a step, under the name Gymnasium's robots have it."""
        return self.env.control_dt

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        if options:
            raise ValueError(f"reset takes no options here; it was given {sorted(options)}.")
        state = self.state = _reset(self.env, key_words(self.np_random))
        return to_host(state.obs), {}

    def step(self, action: np.ndarray) -> tuple[Any, float, bool, bool, Info]:
        if self.state is None:
            raise ResetNeeded("This environment has no episode yet: call reset() before step().")
        state = _step(self.env, self.state, checked(action, self.action_space))
        self.state = state
        obs, reward, terminated, truncated, metrics = seen(state)
        info = {name: float(x) for name, x in metrics.items()}
        return obs, float(reward), bool(terminated), bool(truncated), info

    def render(self) -> np.ndarray | None:
        """The picture [height, width, 3] uint8 of the current state."""
        if self.render_mode is None or self.state is None:
            return None
        pose = _below(self.env).physics.qpos(jax.device_get(self.state.sim.data))
        return self._painter.paint(pose, mujoco.mjtState.mjSTATE_QPOS)

    @cached_property
    def _painter(self) -> Painter:
        return spectator(_below(self.env).task.model())


def metadata(env: Env) -> Info:
    """What gymnasium calls the metadata of `env`."""
    modes = ["rgb_array"] if isinstance(_below(env), Simulation) else []
    rate = {} if math.isnan(env.control_dt) else {"render_fps": round(1 / env.control_dt)}
    return {"render_modes": modes} | rate


def action_space(env: Env) -> spaces.Box:
    """[-1, 1], or the task's own range where it does not rescale."""
    takes = _below(env)
    takes = takes.task.spec if isinstance(takes, Simulation) else takes
    if getattr(takes, "rescale", True):
        return spaces.Box(-1, 1, (env.action_dim,), np.float32)
    low, high = (np.asarray(getattr(takes, end), np.float32) for end in ("low", "high"))
    return spaces.Box(low, high, dtype=np.float32)


def observation_space(env: Env) -> spaces.Space:
    """A Box of each array's shape and dtype; a Dict where observations are dicts."""

    def space(obs: Any) -> spaces.Space:
        if isinstance(obs, dict):
            return spaces.Dict({name: space(x) for name, x in obs.items()})
        if np.issubdtype(obs.dtype, np.floating):
            return spaces.Box(-np.inf, np.inf, obs.shape, obs.dtype)
        info = np.iinfo(obs.dtype)
        return spaces.Box(info.min, info.max, obs.shape, obs.dtype)

    return space(jax.eval_shape(env.reset, jax.random.key(0)).obs)


def checked(action: Any, space: spaces.Space) -> np.ndarray:
    """`action` as float32, refused unless it has the space's shape."""
    action = np.asarray(action, np.float32)
    if action.shape != space.shape:
        raise ValueError(f"The action has shape {action.shape}; this takes {space.shape}.")
    return action


def _below(env: Env) -> Any:
    """What a Repeat repeats."""
    return _below(env.env) if isinstance(env, Repeat) else env


def key_words(generator: np.random.Generator) -> np.ndarray:
    """What `key_of` makes the next episode's key of: [2] uint32."""
    return generator.integers(2**32, size=2, dtype=np.uint32)


def key_of(words: Array) -> Key:
    """The key of `words` [2]."""
    return jax.random.fold_in(jax.random.key(words[0]), words[1])


def to_host(tree: PyTree) -> Any:
    """Writable numpy copies that nothing else holds."""
    return jax.tree.map(np.array, jax.device_get(tree))


def seen(state: State) -> Any:
    """obs, reward, terminated, truncated, metrics of `state`, on the host."""
    return to_host((state.obs, state.reward, state.terminated, state.truncated, state.metrics))


# The environment is static, so that adapters of the same one share what is compiled.


@partial(jax.jit, static_argnums=0)
def _reset(env: Env, words: Array) -> State:
    return env.reset(key_of(words))


@partial(jax.jit, static_argnums=0)
def _step(env: Env, state: State, action: Array) -> State:
    return env.step(state, action)
