"""Advantage-weighted actor-critic (Nair et al. 2020, arXiv:2006.09359).

Critics are of the policy, as SAC's without entropy; the policy imitates actions in the data that
are better than its own.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.nets import Q, TanhMean, apply, normal, normal_logp
from rl.policy import Policy, memoryless
from rl.samples import Sample
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    critic: Trainable  # leaves of the parameters [2, ...]
    target: Params  # of the critics
    obs: norm.Stats  # of both views


@dataclass(frozen=True)
class AWAC:
    """Hyperparameters of AWAC."""

    hidden: tuple[int, ...] = (256, 256, 256)  # of every network
    beta: float = 3.0  # how much better actions are preferred, per unit of advantage
    most: float = 100.0  # that an action may count
    lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005  # share of the critics that their targets take on a step
    normalise: bool = False  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            beta=(self.beta >= 0, "a number of at least 0"),
            most=(self.most > 0, "a number above 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
        )

    @property
    def delay(self) -> int:
        return 1

    def actor(self, action_dim: int) -> TanhMean:
        return TanhMean(action_dim, self.hidden)

    @property
    def critic(self) -> Q:
        return Q(self.hidden)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key = jax.random.split(key)
        seen = samples.views(obs)
        actor = self.actor(action.shape[-1]).init(actor_key, seen.policy)
        critic_keys = jax.random.split(critic_key, 2)
        critic = jax.vmap(self.critic.init, (0, None, None))(critic_keys, seen.critic, action)
        return State(
            actor=trainable(actor, self.tx),
            critic=trainable(critic, self.tx),
            target=critic,
            obs=norm.init(seen),
        )

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

    def q(self, params: Params, obs: Array, action: Array) -> Array:
        """Both critics' values [2, ...]."""
        return jax.vmap(lambda params: apply(self.critic, params, obs, action)[..., 0])(params)

    def act(self, params: Params, obs: Array, action_dim: int, key: Key) -> Array:
        """Sampled action [..., A]; `obs` is scaled already."""
        action, _ = normal(key, *apply(self.actor(action_dim), params, obs))
        return jnp.clip(action, -1, 1)

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B]: the lower of both target critics."""
        dim = sample.action.shape[-1]
        action = self.act(state.actor.params, sample.next_obs.policy, dim, key)
        after = self.q(state.target, sample.next_obs.critic, action).min(0)
        return sample.reward + sample.discount * after

    def actor_loss(
        self, params: Params, state: State, sample: Sample, key: Key
    ) -> tuple[Array, Metrics]:
        """Eq. 13: imitation, weighted by how much better than the policy's an action is."""
        mean, log_std = apply(self.actor(sample.action.shape[-1]), params, sample.obs.policy)
        own = jax.lax.stop_gradient(jnp.clip(normal(key, mean, log_std)[0], -1, 1))
        q, own_q = (
            self.q(state.critic.params, sample.obs.critic, x).min(0) for x in (sample.action, own)
        )
        weight = jnp.minimum(jnp.exp(self.beta * (q - own_q)), self.most)
        logp = normal_logp(sample.action, mean, log_std)
        loss = -(weight * logp).mean()
        return loss, {"actor_loss": loss, "weight": weight.mean(), "bc_logp": logp.mean()}

    def critic_loss(self, params: Params, sample: Sample, target: Array) -> tuple[Array, Metrics]:
        """Sum over both critics of the mean over the batch; `target` [B] is of `backup`."""
        q = self.q(params, sample.obs.critic, sample.action)
        loss = ((q - target) ** 2).mean(1).sum()
        return loss, {"critic_loss": loss, "q": q.mean()}

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...]."""
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs))

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step of the critics, of their targets and of the actor, on windows [1, B, n, ...]."""
        target_key, actor_key = jax.random.split(key)
        sample = self.sample(state, jax.tree.map(lambda x: x[0], batch))
        target = self.backup(state, sample, target_key)
        critic, m1 = descend(self.tx, self.critic_loss, state.critic, sample, target)
        target = optax.incremental_update(critic.params, state.target, self.tau)
        state = state._replace(critic=critic, target=target)
        actor, m2 = descend(self.tx, self.actor_loss, state.actor, state, sample, actor_key)
        return state._replace(actor=actor), m1 | m2

    def believed(self, state: State, obs: Obs, action: Array) -> Array:
        """What the lower critic believes returns of actions [B, A] to be [B], `obs` as recorded."""
        seen = self.scaled(state.obs, samples.views(obs))
        return self.q(state.critic.params, seen.critic, action).min(0)

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
