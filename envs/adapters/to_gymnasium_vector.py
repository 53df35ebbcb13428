"""Ours as `gymnasium.vector.VectorEnv`: worlds stepped together, in all three autoreset modes.

Each world draws the keys of its episodes from its own numpy generator, as a single one does,
so N worlds equal N environments of `to_gymnasium` with the same seeds; but a task's curriculum
goes on here from a world's episode to its next, where a single environment has none.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from envs.adapters import to_gymnasium as single
from envs.adapters.to_gymnasium import Info
from rl.env import Env, State
from rl.types import Array

Seeds = Sequence[int | None]


def to_gymnasium_vector(
    env: Env, num_envs: int, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP
) -> "GymnasiumVectorEnv":
    """`num_envs` worlds of `env`, whose episodes begin anew as `autoreset_mode` says.

    infos hold the metrics [N] of the worlds that were stepped, each with its `_` mask.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs is {num_envs}; it needs at least 1.")
    modes = {name: mode for mode in AutoresetMode for name in (mode, mode.value)}
    if autoreset_mode not in modes:
        raise ValueError(
            f"Unknown autoreset_mode {autoreset_mode!r}; there are "
            f"{', '.join(mode.value for mode in AutoresetMode)}."
        )
    return GymnasiumVectorEnv(env, num_envs, modes[autoreset_mode])


class GymnasiumVectorEnv(VectorEnv[Any, np.ndarray, np.ndarray]):
    """N worlds of `env`, whose current state is `state` (leaves [N, ...])."""

    def __init__(self, env: Env, num_envs: int, mode: AutoresetMode) -> None:
        self.env, self.num_envs, self.mode = env, num_envs, mode
        self.single_action_space = single.action_space(env)
        self.single_observation_space = single.observation_space(env)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.metadata = single.metadata(env) | {"autoreset_mode": mode}
        self.state: State | None = None
        self._generators, self._seeds = map(
            list, zip(*(seeding.np_random() for _ in range(num_envs)), strict=True)
        )
        self._ended = np.zeros(num_envs, bool)  # by the last step, and not begun anew since

    def reset(
        self, *, seed: int | Seeds | None = None, options: Info | None = None
    ) -> tuple[Any, Info]:
        """Begin every episode, or those of options["reset_mask"] ([N] bool).

        `seed` is one for each world, or the first world's, the next ones counting up.
        """
        options = dict(options or {})
        mask = options.pop("reset_mask", None)
        if options:
            raise ValueError(f"reset takes no options but reset_mask; it has {sorted(options)}.")
        begin = np.ones(self.num_envs, bool) if mask is None else self._checked_mask(mask)
        if seed is not None:
            self._seed(begin, seed)
        if mask is None:
            self.state = _reset(self.env, self._draw(begin))
        else:
            self._begin(begin)
        self._ended = self._ended & ~begin
        return single.to_host(self._running.obs), {}

    def step(self, actions: np.ndarray) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, Info]:
        if self.mode is AutoresetMode.DISABLED and self._ended.any():
            raise ResetNeeded(
                f"The episodes of worlds {np.flatnonzero(self._ended).tolist()} have ended: call "
                "reset(options={'reset_mask': ...}) for them before step()."
            )
        actions = single.checked(actions, self.action_space)
        self.state = _step(self.env, self._running, actions)
        begun = self._ended  # of worlds that are begun anew in this step, whatever their action
        self._begin(begun)
        obs, reward, terminated, truncated, metrics = single.seen(self._running)
        done = terminated | truncated
        if self.mode is AutoresetMode.SAME_STEP and done.any():
            infos = _infos(metrics, ~done) | _final(obs, _infos(metrics, done), done)
            self._begin(done)
            obs = single.to_host(self._running.obs)
        else:
            infos = _infos(metrics, ~begun)
        self._ended = done & (self.mode is not AutoresetMode.SAME_STEP)
        return obs, reward.astype(float), terminated, truncated, infos

    @property
    def np_random(self) -> tuple[np.random.Generator, ...]:  # pyright: ignore
        """Each world's generator, as gymnasium's own vector environments give them."""
        return tuple(self._generators)

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # pyright: ignore
        """Each world's seed."""
        return tuple(self._seeds)

    @property
    def _running(self) -> State:
        if self.state is None:
            raise ResetNeeded("These worlds have no episodes yet: call reset() first.")
        return self.state

    def _begin(self, mask: np.ndarray) -> None:
        """New episodes where `mask` [N]."""
        if mask.any():
            self.state = _restart(self.env, self._running, mask, self._draw(mask))

    def _draw(self, mask: np.ndarray) -> np.ndarray:
        """Words of keys [N, 2] for worlds in `mask`; the others' generators stay as they are."""
        words = np.zeros((self.num_envs, 2), np.uint32)
        for i in np.flatnonzero(mask):
            words[i] = single.key_words(self._generators[i])
        return words

    def _seed(self, mask: np.ndarray, seed: int | Seeds) -> None:
        if isinstance(seed, int | np.integer):
            seed = [int(seed) + i for i in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"There are {len(seed)} seeds for {self.num_envs} environments.")
        for i, own in enumerate(seed):
            if mask[i] and own is not None:
                self._generators[i], self._seeds[i] = seeding.np_random(own)

    def _checked_mask(self, mask: Any) -> np.ndarray:
        if not isinstance(mask, np.ndarray) or mask.dtype != bool:
            raise TypeError(f"reset_mask must be a numpy array of bool; it is {mask!r}.")
        if mask.shape != (self.num_envs,) or not mask.any():
            raise ValueError(f"reset_mask must be [{self.num_envs}] with a True; it is {mask}.")
        return mask


def _infos(metrics: dict[str, np.ndarray], mask: np.ndarray) -> Info:
    """Metrics [N] of the worlds in `mask` and zero elsewhere, each with its `_` mask."""
    if not mask.any():
        return {}
    infos: Info = {name: np.where(mask, x, 0).astype(float) for name, x in metrics.items()}
    return infos | {f"_{name}": mask.copy() for name in metrics}


def _final(obs: Any, info: Info, done: np.ndarray) -> Info:
    """How the episodes in `done` ended: an object array of observations, and their metrics."""
    final = np.full(len(done), None, object)
    for i in np.flatnonzero(done):
        final[i] = jax.tree.map(lambda x, i=i: x[i].copy(), obs)
    return {
        "final_obs": final, "_final_obs": done.copy(),
        "final_info": info, "_final_info": done.copy(),
    }  # fmt: skip


@partial(jax.jit, static_argnums=0)
def _reset(env: Env, words: Array) -> State:
    return jax.vmap(lambda w: env.reset(single.key_of(w)))(words)


@partial(jax.jit, static_argnums=0)
def _step(env: Env, state: State, actions: Array) -> State:
    return jax.vmap(env.step)(state, actions)


@partial(jax.jit, static_argnums=0)
def _restart(env: Env, state: State, mask: Array, words: Array) -> State:
    """Where `mask`, the episode that a reset with the key of `words` would begin."""
    key = jnp.where(mask, jax.vmap(single.key_of)(words), state.key)
    failed = mask & state.terminated  # which a curriculum hears of
    ended = state._replace(key=key, terminated=failed, truncated=mask & ~failed)
    return jax.vmap(env.restart)(ended)._replace(
        terminated=state.terminated & ~mask, truncated=state.truncated & ~mask
    )
