"""Behaviour cloning: the policy that most likely took the data's actions (Pomerleau 1989)."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.nets import TanhMean, apply, normal, normal_logp
from rl.policy import Policy, memoryless
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    obs: norm.Stats  # of both views


@dataclass(frozen=True)
class BC:
    """Hyperparameters of BC."""

    hidden: tuple[int, ...] = (256, 256)
    dropout: float = 0.0  # as it learns
    std: Literal["learned", "one"] = "learned"  # of actions; one: by squared error
    lr: float = 3e-4
    normalise: bool = True  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            dropout=(0 <= self.dropout < 1, "a share in [0, 1)"),
            lr=(self.lr >= 0, "a number of at least 0"),
        )

    @property
    def delay(self) -> int:
        return 1

    @property
    def gamma(self) -> float:
        """No return is looked at."""
        return 1.0

    def actor(self, action_dim: int) -> TanhMean:
        return TanhMean(action_dim, self.hidden, self.dropout)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        seen = samples.views(obs)
        actor = self.actor(action.shape[-1]).init(key, seen.policy)
        return State(trainable(actor, self.tx), norm.init(seen))

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: sampled to learn, the mean to evaluate."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, tuple[()]]:
            seen = self.scaled(params["obs"], samples.views(obs).policy)
            mean, log_std = apply(self.actor(action_dim), params["actor"], seen)
            action = normal(key, mean, log_std)[0] if explore else mean
            return jnp.clip(action, -1, 1), ()

        return memoryless(act)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor and its normaliser."""
        stats = state.obs._replace(mean=state.obs.mean.policy, var=state.obs.var.policy)
        return {"actor": state.actor.params, "obs": stats}

    def scaled(self, stats: norm.Stats, obs: PyTree) -> PyTree:
        return norm.normalise(stats, obs) if self.normalise else obs

    def loss(self, params: Params, obs: Array, action: Array, key: Key) -> tuple[Array, Metrics]:
        """Of actions [B, A] in scaled observations [B, O]."""
        mean, log_std = apply(self.actor(action.shape[-1]), params, obs, key)
        error = ((mean - action) ** 2).mean()
        logp = normal_logp(action, mean, log_std).mean()
        loss = error if self.std == "one" else -logp
        return loss, {"actor_loss": loss, "bc_loss": error, "bc_logp": logp}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step on the first of each window [1, B, n, ...]."""
        obs, action = jax.tree.map(lambda x: x[0, :, 0], (batch.obs, batch.action))
        obs = self.scaled(state.obs, samples.views(obs)).policy
        actor, metrics = descend(self.tx, self.loss, state.actor, obs, action, key)
        return state._replace(actor=actor), metrics

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
