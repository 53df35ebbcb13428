"""CrossQ: SAC without target networks (Bhatt et al. 2024, arXiv:1902.05605).

Batch renormalisation, fed states and actions of now and next in one pass, takes their place.
Actor and temperature learn as in agents/sac.py, and are written out so that this file reads alone.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import samples
from rl.nets import LOG_STD, RenormMLP, renorm, tanh_normal
from rl.policy import Policy, memoryless
from rl.samples import Sample, Views
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    actor_stats: Params  # of its batch renormalisation
    critic: Trainable  # leaves of the parameters [E, ...]
    critic_stats: Params  # leaves [E, ...]
    log_alpha: Trainable


@dataclass(frozen=True)
class CrossQ:
    """Hyperparameters of CrossQ."""

    hidden: tuple[int, ...] = (256, 256)  # of the actor
    critic_hidden: tuple[int, ...] = (2048, 2048)
    critics: int = 2
    lr: float = 1e-3  # of actor and temperature
    critic_lr: float = 1e-3
    gamma: float = 0.99
    delay: int = 3  # critic steps for each step of actor and temperature
    alpha: float = 1.0  # the temperature to begin with
    target_entropy: float = -1.0  # nats, for each dimension of the action
    warm: int = 100_000  # passes of plain batch normalisation before it is corrected

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            critics=(self.critics > 0, "a count of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            critic_lr=(self.critic_lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            alpha=(self.alpha > 0, "a number above 0"),
        )

    def actor(self, action_dim: int) -> RenormMLP:
        return RenormMLP((*self.hidden, 2 * action_dim), self.warm)

    @property
    def critic(self) -> RenormMLP:
        return RenormMLP((*self.critic_hidden, 1), self.warm)

    def tx(self, lr: float) -> optax.GradientTransformation:
        return optax.adam(lr, b1=0.5)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key = jax.random.split(key)
        seen = samples.views(obs)
        known = jnp.concatenate([seen.critic, action])
        actor = self.actor(action.shape[-1]).init(actor_key, seen.policy[None])
        critic_keys = jax.random.split(critic_key, self.critics)
        critic = jax.vmap(self.critic.init, (0, None))(critic_keys, known[None])
        return State(
            actor=trainable(actor["params"], self.tx(self.lr)),
            actor_stats=actor["stats"],
            critic=trainable(critic["params"], self.tx(self.critic_lr)),
            critic_stats=critic["stats"],
            log_alpha=trainable(jnp.log(self.alpha), optax.adam(self.lr)),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: sampled to learn, the mode to evaluate."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, tuple[()]]:
            seen = samples.views(obs).policy
            mean, log_std, _ = self.gaussian(params["actor"], params["stats"], seen, action_dim)
            return (tanh_normal(key, mean, log_std)[0] if explore else jnp.tanh(mean)), ()

        return memoryless(act)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor and its running statistics."""
        return {"actor": state.actor.params, "stats": state.actor_stats}

    def gaussian(
        self, params: Params, stats: Params, obs: Array, action_dim: int, train: bool = False
    ) -> tuple[Array, Array, Params]:
        """Mean and log_std [..., A] before the tanh, and the statistics after this pass."""
        out, stats = renorm(self.actor(action_dim), params, stats, obs, train)
        mean, log_std = jnp.split(out, 2, axis=-1)
        return mean, jnp.clip(log_std, *LOG_STD), stats

    def q(
        self, params: Params, stats: Params, obs: Array, action: Array, train: bool = False
    ) -> tuple[Array, Params]:
        """Every critic's value [E, B], and the statistics after this pass."""
        x = jnp.concatenate([obs, action], axis=-1)

        def one(params: Params, stats: Params) -> tuple[Array, Params]:
            return renorm(self.critic, params, stats, x, train)

        out, stats = jax.vmap(one)(params, stats)
        return out[..., 0], stats

    def critic_loss(
        self, params: Params, state: State, sample: Sample, key: Key
    ) -> tuple[Array, tuple[Metrics, Params]]:
        """Sum over critics; both halves are one batch, and only the target is held still."""
        dim = sample.action.shape[-1]
        seen = sample.next_obs.policy
        mean, log_std, _ = self.gaussian(state.actor.params, state.actor_stats, seen, dim)
        action, logp = tanh_normal(key, mean, log_std)
        obs = jnp.concatenate([sample.obs.critic, sample.next_obs.critic])
        actions = jnp.concatenate([sample.action, action])
        both, stats = self.q(params, state.critic_stats, obs, actions, train=True)
        q, next_q = jnp.split(both, 2, axis=1)
        value = next_q.min(0) - jnp.exp(state.log_alpha.params) * logp
        target = jax.lax.stop_gradient(sample.reward + sample.discount * value)
        loss = 0.5 * ((q - target) ** 2).mean(1).sum()
        return loss, ({"critic_loss": loss, "q": q.mean()}, stats)

    def actor_loss(
        self, params: Params, state: State, sample: Sample, key: Key
    ) -> tuple[Array, tuple[Metrics, Params]]:
        dim = sample.action.shape[-1]
        mean, log_std, stats = self.gaussian(
            params, state.actor_stats, sample.obs.policy, dim, train=True
        )
        action, logp = tanh_normal(key, mean, log_std)
        q, _ = self.q(state.critic.params, state.critic_stats, sample.obs.critic, action)
        loss = (jnp.exp(state.log_alpha.params) * logp - q.min(0)).mean()
        return loss, ({"actor_loss": loss, "entropy": -logp.mean()}, stats)

    def alpha_loss(
        self, log_alpha: Array, entropy: Array, action_dim: int
    ) -> tuple[Array, Metrics]:
        alpha, wanted = jnp.exp(log_alpha), self.target_entropy * action_dim
        loss = alpha * (entropy - wanted)
        return loss, {"alpha_loss": loss, "alpha": alpha, "target_entropy": jnp.float32(wanted)}

    def sample(self, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...]."""

        def same(obs: Views) -> Views:  # the first batch renormalisation scales it
            return obs

        return samples.sample(batch, self.gamma, same)

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, n, ...], then one of
        actor and temperature on the last."""
        critic_key, actor_key = jax.random.split(key)
        every = jax.vmap(self.sample)(batch)

        def step(state: State, now: tuple[Sample, Key]) -> tuple[State, Any]:
            tx = self.tx(self.critic_lr)
            critic, (metrics, stats) = descend(tx, self.critic_loss, state.critic, state, *now)
            return state._replace(critic=critic, critic_stats=stats), metrics

        state, m1 = jax.lax.scan(step, state, (every, jax.random.split(critic_key, self.delay)))
        last, tx = jax.tree.map(lambda x: x[-1], every), self.tx(self.lr)
        actor, (m2, stats) = descend(tx, self.actor_loss, state.actor, state, last, actor_key)
        log_alpha, m3 = descend(
            optax.adam(self.lr), self.alpha_loss, state.log_alpha, m2["entropy"],
            batch.action.shape[-1],
        )  # fmt: skip
        state = state._replace(actor=actor, actor_stats=stats, log_alpha=log_alpha)
        return state, jax.tree.map(jnp.mean, m1) | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        """As it is: statistics are of what is learned from."""
        return state
