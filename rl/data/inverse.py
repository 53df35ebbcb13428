"""Which action led from one observation to the next: inverse dynamics.

Learned where actions were recorded, it labels episodes that were recorded without (SS-ORL: Zheng
et al. 2023, arXiv:2210.06518).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from rl import norm
from rl.data import sampling
from rl.data.dataset import UNSEEN, Dataset
from rl.nets import TanhMean, apply, normal_logp
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, view


class Seen(NamedTuple):
    """What was seen around steps; leaves [B, ...]."""

    past: Array  # [B, O] a step earlier; zeros where there was none
    first: Array  # [B] bool, there was none
    obs: Array  # [B, O]
    next_obs: Array  # [B, O]


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    net: Trainable
    obs: norm.Stats
    change: norm.Stats  # of observations, in a step


@dataclass(frozen=True)
class InverseDynamics:
    """Hyperparameters of p(action | past, obs, next_obs), a Gaussian."""

    hidden: tuple[int, ...] = (1024, 1024)
    dropout: float = 0.1  # as it learns
    lr: float = 1e-4

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            dropout=(0 <= self.dropout < 1, "a share in [0, 1)"),
            lr=(self.lr >= 0, "a number of at least 0"),
        )

    def net(self, action_dim: int) -> TanhMean:
        return TanhMean(action_dim, self.hidden, self.dropout)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, seen: Seen, action: Array) -> State:
        """State for one example of `seen` and `action` [A]."""
        none = norm.init(seen.obs)
        inputs = self.inputs(none, none, seen)
        return State(trainable(self.net(action.shape[-1]).init(key, inputs), self.tx), none, none)

    def observe(self, state: State, seen: Seen) -> State:
        """With steps [B, ...] counted in the statistics."""
        change = norm.update(state.change, seen.next_obs - seen.obs)
        return state._replace(obs=norm.update(state.obs, seen.obs), change=change)

    def inputs(self, obs: norm.Stats, change: norm.Stats, seen: Seen) -> Array:
        """[..., 3 O + 1]: an observation and the changes around it, each in its own unit.

        The same as three observations, but for the unit: what a step changes is small beside what
        observations differ by.
        """
        first = seen.first[..., None]
        before = norm.normalise(change, seen.obs - seen.past)
        after = norm.normalise(change, seen.next_obs - seen.obs)
        here = norm.normalise(obs, seen.obs)
        return jnp.concatenate([jnp.where(first, 0, before), first, here, after], axis=-1)

    def loss(self, params: Params, inputs: Array, action: Array, key: Key) -> tuple[Array, Metrics]:
        """Of actions [B, A] by `inputs` [B, 3 O + 1]."""
        mean, log_std = apply(self.net(action.shape[-1]), params, inputs, key)
        loss = -normal_logp(action, mean, log_std).mean()
        return loss, {"loss": loss, "mse": ((mean - action) ** 2).mean()}

    def update(self, state: State, seen: Seen, action: Array, key: Key) -> tuple[State, Metrics]:
        """A step on a batch [B, ...]."""
        inputs = self.inputs(state.obs, state.change, seen)
        net, metrics = descend(self.tx, self.loss, state.net, inputs, action, key)
        return state._replace(net=net), metrics

    def predict(self, state: State, seen: Seen, action_dim: int) -> Array:
        """The mean action [B, A], within [-1, 1]."""
        inputs = self.inputs(state.obs, state.change, seen)
        return apply(self.net(action_dim), state.net.params, inputs)[0]


def around(data: Dataset, rows: np.ndarray) -> Seen:
    """What the policy saw around steps `rows` [B], each within its episode."""
    starts, lengths = data.starts, data.episodes["length"]
    episode = np.searchsorted(starts, rows, side="right") - 1
    first = rows == starts[episode]
    ends = rows == starts[episode] + lengths[episode] - 1
    obs, last = watched(data), watched(data, last=True)
    past = flat(obs, np.maximum(rows - 1, 0))
    after = flat(obs, np.minimum(rows + 1, len(data.steps["reward"]) - 1))
    return Seen(
        past=jnp.asarray(np.where(first[:, None], 0, past)),
        first=jnp.asarray(first),
        obs=jnp.asarray(flat(obs, rows)),
        next_obs=jnp.asarray(np.where(ends[:, None], flat(last, episode), after)),
    )


def recorded(data: Dataset) -> np.ndarray:
    """The steps after which something was seen."""
    unseen = data.facts.get("last_obs") == UNSEEN
    return np.flatnonzero(~data.steps["terminated"] | (not unseen))


def watched(data: Dataset, last: bool = False) -> Obs:
    """What the policy sees of steps, leaves [S, ...], or after the last ones [E, ...]."""
    arrays = data.episodes if last else data.steps
    own = {n.removeprefix("last_"): x for n, x in arrays.items() if n.startswith("last_") == last}
    parts = {n: x for n, x in own.items() if n.split("/")[0] == "obs"}
    return view(sampling.tree(parts, "obs"), "policy")


def flat(obs: Obs, rows: np.ndarray) -> np.ndarray:
    """Rows of an observation as vectors [B, O]."""
    leaves = [np.asarray(x[rows], np.float32) for x in jax.tree.leaves(obs)]
    return np.concatenate([x.reshape(len(rows), -1) for x in leaves], axis=-1)
