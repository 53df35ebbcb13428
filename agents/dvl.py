"""f-DVL: values by the dual of a divergence from the data (Sikchi et al. 2024, arXiv:2302.08560).

As IQL, but for what a value is of the Q of actions in the data.  With "reverse_kl" it is XQL
(Garg et al. 2023, arXiv:2301.02328).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.nets import MLP, Q, TanhMean, apply, normal, normal_logp
from rl.policy import Policy, memoryless
from rl.samples import Sample
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition

HUBER = 20.0  # error of a value from which on it counts linearly


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    critic: Trainable  # leaves of the parameters [2, ...]
    target: Params  # of the critics
    value: Trainable
    obs: norm.Stats  # of both views


@dataclass(frozen=True)
class DVL:
    """Hyperparameters of f-DVL."""

    hidden: tuple[int, ...] = (256, 256)  # of every network
    dropout: float = 0.0  # in the actor, as it learns
    divergence: Literal["chi_square", "total_variation", "reverse_kl"] = "chi_square"
    weight: float = 1.0  # what Q above the value counts beside its fall, but for reverse_kl
    scale: float = 8.0  # of Q above the value, for reverse_kl
    clip: float = 5.0  # of the exponent, for reverse_kl
    beta: float = 3.0  # how much better actions are preferred, per unit of advantage
    most: float = 100.0  # that an action may count
    lr: float = 3e-4
    decay: int = 0  # updates in which the actor's lr falls to 0, as a cosine; 0: it stays
    gamma: float = 0.99
    tau: float = 0.005  # share of the critics that their targets take on a step
    normalise: bool = False  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            dropout=(0 <= self.dropout < 1, "a share in [0, 1)"),
            weight=(0 < self.weight <= 1, "a share in (0, 1]"),
            scale=(self.scale > 0, "a number above 0"),
            clip=(self.clip > 0, "a number above 0"),
            beta=(self.beta >= 0, "a number of at least 0"),
            most=(self.most > 0, "a number above 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            decay=(self.decay >= 0, "a count of updates, or 0 for none"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
        )

    @property
    def delay(self) -> int:
        return 1

    def actor(self, action_dim: int) -> TanhMean:
        return TanhMean(action_dim, self.hidden, self.dropout)

    @property
    def critic(self) -> Q:
        return Q(self.hidden)

    @property
    def value(self) -> MLP:
        return MLP((*self.hidden, 1), layer_norm=True)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    @property
    def actor_tx(self) -> optax.GradientTransformation:
        return optax.adam(
            optax.cosine_decay_schedule(self.lr, self.decay) if self.decay else self.lr
        )

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key, value_key = jax.random.split(key, 3)
        seen = samples.views(obs)
        actor = self.actor(action.shape[-1]).init(actor_key, seen.policy)
        critic_keys = jax.random.split(critic_key, 2)
        critic = jax.vmap(self.critic.init, (0, None, None))(critic_keys, seen.critic, action)
        return State(
            actor=trainable(actor, self.actor_tx),
            critic=trainable(critic, self.tx),
            target=critic,
            value=trainable(self.value.init(value_key, seen.critic), self.tx),
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

    def v(self, params: Params, obs: Array) -> Array:
        return apply(self.value, params, obs)[..., 0]

    def value_loss(self, params: Params, sample: Sample, q: Array) -> tuple[Array, Metrics]:
        """Section 5, and table 4; `q` [B] is of the lower target critic."""
        value = self.v(params, sample.obs.critic)
        above = q - value
        if self.divergence == "reverse_kl":
            z = jnp.minimum(above / self.scale, self.clip)
            most = jax.lax.stop_gradient(jnp.maximum(z.max(), -1))  # an adaptive step size
            loss = (jnp.exp(z - most) - (z + 1) * jnp.exp(-most)).mean()
        else:
            curve = above + above**2 / 4 if self.divergence == "chi_square" else above
            loss = (self.weight * jnp.maximum(curve, 0) - (1 - self.weight) * above).mean()
        return loss, {"value_loss": loss, "v": value.mean()}

    def actor_loss(
        self, params: Params, sample: Sample, advantage: Array, key: Key
    ) -> tuple[Array, Metrics]:
        """Weighted imitation; `advantage` [B] is of the data's actions."""
        net = self.actor(sample.action.shape[-1])
        logp = normal_logp(sample.action, *apply(net, params, sample.obs.policy, key))
        weight = jnp.minimum(jnp.exp(self.beta * advantage), self.most)
        loss = -(weight * logp).mean()
        return loss, {"actor_loss": loss, "weight": weight.mean(), "bc_logp": logp.mean()}

    def critic_loss(self, params: Params, sample: Sample, target: Array) -> tuple[Array, Metrics]:
        """Huber's, summed over both critics; `target` [B]."""
        q = self.q(params, sample.obs.critic, sample.action)
        loss = optax.huber_loss(q, jnp.broadcast_to(target, q.shape), delta=HUBER).mean(1).sum()
        return loss, {"critic_loss": loss, "q": q.mean()}

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...]."""
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs))

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step of the value, of actor and critics by the new value, and of the targets, on
        windows [1, B, n, ...]."""
        sample = self.sample(state, jax.tree.map(lambda x: x[0], batch))
        q = self.q(state.target, sample.obs.critic, sample.action).min(0)
        value, m1 = descend(self.tx, self.value_loss, state.value, sample, q)
        advantage = q - self.v(value.params, sample.obs.critic)
        actor, m2 = descend(self.actor_tx, self.actor_loss, state.actor, sample, advantage, key)
        after = self.v(value.params, sample.next_obs.critic)
        target = sample.reward + sample.discount * after
        critic, m3 = descend(self.tx, self.critic_loss, state.critic, sample, target)
        state = state._replace(
            actor=actor,
            critic=critic,
            target=optax.incremental_update(critic.params, state.target, self.tau),
            value=value,
        )
        return state, m1 | m2 | m3

    def believed(self, state: State, obs: Obs, action: Array) -> Array:
        """What the lower critic believes returns of actions [B, A] to be [B], `obs` as recorded."""
        seen = self.scaled(state.obs, samples.views(obs))
        return self.q(state.critic.params, seen.critic, action).min(0)

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
