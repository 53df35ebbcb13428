"""Imitation of a teacher in the states that the student comes to (DAgger: Ross et al. 2011,
arXiv:1011.0686).

The student sees less than the teacher; what it is told over time must make up for it, as in rapid
motor adaptation (RMA: Kumar et al. 2021, arXiv:2107.04034), here in one network from the history.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, parallel
from rl.nets import MLP, apply, flatten, tanh_mlp
from rl.policy import Policy, memoryless
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition, view


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    obs: norm.Stats


@dataclass(frozen=True)
class DAgger:
    """Hyperparameters of DAgger."""

    hidden: tuple[int, ...] = (256, 128)
    lr: float = 1e-3
    epochs: int = 2
    minibatches: int = 4
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            lr=(self.lr > 0, "a number above 0"),
            epochs=(self.epochs > 0, "a count of at least 1"),
            minibatches=(self.minibatches > 0, "a count of at least 1"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
        )

    def actor(self, action_dim: int) -> MLP:
        return tanh_mlp((*self.hidden, action_dim), out_gain=0.01)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(self.lr))

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        seen = flatten(view(obs, "policy"))
        params = self.actor(action.shape[-1]).init(key, seen)
        return State(trainable(params, self.tx), norm.init(seen))

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters; it explores by its own mistakes."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, tuple[()]]:
            seen = norm.normalise(params["obs"], flatten(view(obs, "policy")))
            return apply(self.actor(action_dim), params["actor"], seen), ()

        return memoryless(act)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor and its normaliser."""
        return {"actor": state.actor.params, "obs": state.obs}

    def loss(self, params: Params, obs: Array, wanted: Array) -> tuple[Array, Metrics]:
        """Mean squared error to the teacher's actions `wanted` [B, A]; `obs` is normalised."""
        actor = self.actor(wanted.shape[-1])
        error = jnp.mean((apply(actor, params, obs) - wanted) ** 2)
        return error, {"imitation_loss": error}

    def update(
        self, state: State, batch: Transition, key: Key, shards: int = 1
    ) -> tuple[State, Metrics]:
        """All epochs on transitions [T, N, ...] whose `aux` is what the teacher would have done,
        and whose worlds lie in so many shards."""
        raw = flatten(view(batch.obs, "policy"))
        rows = norm.normalise(state.obs, raw), batch.aux
        if batch.reward.size // shards < self.minibatches:
            raise ValueError(
                f"{batch.reward.size} transitions do not fill {self.minibatches} minibatches: "
                "collect more (--num-envs, --unroll) or lower --agent.minibatches."
            )

        def step(actor: Trainable, few: tuple[Array, Array]) -> tuple[Trainable, Metrics]:
            return descend(self.tx, self.loss, actor, *few)

        def epoch(actor: Trainable, key: Key) -> tuple[Trainable, Metrics]:
            return jax.lax.scan(step, actor, parallel.deal(shards, key, rows, self.minibatches))

        actor, metrics = jax.lax.scan(epoch, state.actor, jax.random.split(key, self.epochs))
        return State(actor, norm.update(state.obs, raw)), jax.tree.map(jnp.mean, metrics)
