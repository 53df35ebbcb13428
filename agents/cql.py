"""Conservative Q-learning (Kumar et al. 2020, arXiv:2006.04779): SAC whose critics are pushed down
on actions of chance and of the policy, and up on the data's.  With `calibrated` it is Cal-QL
(arXiv:2303.05479): none is pushed below what the data came to (aux "return", by sampling.to_go).
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.nets import Q, StateGaussian, apply, tanh_normal
from rl.policy import Policy, memoryless
from rl.samples import Sample
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition

Loss = tuple[Array, Metrics]
Sampled = tuple[Array, Array]  # actions and their log-densities


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    critic: Trainable  # leaves of the parameters [E, ...]
    target: Params  # leaves [E, ...]
    log_alpha: Trainable
    log_weight: Trainable  # of what the penalty counts, where a gap is asked for
    obs: norm.Stats  # of both views


@dataclass(frozen=True)
class CQL:
    """Hyperparameters of CQL."""

    hidden: tuple[int, ...] = (256, 256)  # of the actor
    critic_hidden: tuple[int, ...] = (256, 256)
    critics: int = 2
    subset: int = 0  # critics drawn for each target, of which the lowest counts; 0: all
    layer_norm: bool = False  # in the critics
    penalty: float = 5.0  # what being conservative counts beside the squared error
    gap: float | None = None  # that the penalty is to be, its weight found (Lagrange); None: fixed
    actions: int = 10  # of chance, of the policy here and of it one step later, in each state
    temperature: float = 1.0  # of the soft maximum over these
    importance: bool = True  # weigh them by how likely they were drawn
    calibrated: bool = False  # Cal-QL
    max_backup: bool = False  # targets are of the best of so many next actions
    lr: float = 1e-4  # of actor and temperature
    critic_lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005  # share of the critics that their targets take on a step
    delay: int = 1  # critic steps for each step of actor and temperature
    target_entropy: float = -1.0  # nats, for each dimension of the action
    normalise: bool = False  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            critics=(self.critics > 0, "a count of at least 1"),
            subset=(0 <= self.subset <= self.critics, "a count of some critics, or 0 for all"),
            penalty=(self.penalty >= 0, "a number of at least 0"),
            actions=(self.actions > 0, "a count of at least 1"),
            temperature=(self.temperature > 0, "a number above 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            critic_lr=(self.critic_lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
        )

    def actor(self, action_dim: int) -> StateGaussian:
        return StateGaussian(action_dim, self.hidden)

    @property
    def critic(self) -> Q:
        return Q(self.critic_hidden, layer_norm=self.layer_norm)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key = jax.random.split(key)
        seen = samples.views(obs)
        actor = self.actor(action.shape[-1]).init(actor_key, seen.policy)
        critic_keys = jax.random.split(critic_key, self.critics)
        critic = jax.vmap(self.critic.init, (0, None, None))(critic_keys, seen.critic, action)
        return State(
            actor=trainable(actor, optax.adam(self.lr)),
            critic=trainable(critic, optax.adam(self.critic_lr)),
            target=critic,
            log_alpha=trainable(jnp.float32(0), optax.adam(self.lr)),
            log_weight=trainable(jnp.float32(1), optax.adam(self.critic_lr)),
            obs=norm.init(seen),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: sampled to learn, the mode to evaluate."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, tuple[()]]:
            seen = self.scaled(params["obs"], samples.views(obs).policy)
            mean, log_std = apply(self.actor(action_dim), params["actor"], seen)
            return (tanh_normal(key, mean, log_std)[0] if explore else jnp.tanh(mean)), ()

        return memoryless(act)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor and its normaliser."""
        stats = state.obs._replace(mean=state.obs.mean.policy, var=state.obs.var.policy)
        return {"actor": state.actor.params, "obs": stats}

    def scaled(self, stats: norm.Stats, obs: PyTree) -> PyTree:
        return norm.normalise(stats, obs) if self.normalise else obs

    def act(self, params: Params, obs: Array, dim: int, key: Key, count: int) -> Sampled:
        """Sampled actions [B, count, A] and their log-densities; `obs` [B, O] is scaled already."""
        mean, log_std = apply(self.actor(dim), params, obs)
        return tanh_normal(key, *(jnp.repeat(x[:, None], count, 1) for x in (mean, log_std)))

    def q(self, params: Params, obs: Array, action: Array) -> Array:
        """Every critic's values [E, B, n] of actions [B, n, A] in states [B, O]."""
        many = jnp.repeat(obs, action.shape[1], axis=0)  # rows of one matrix: a fifth faster
        given = many, action.reshape(len(many), -1)
        found = jax.vmap(lambda params: apply(self.critic, params, *given)[..., 0])(params)
        return found.reshape(-1, *action.shape[:2])

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B]: the lowest of a subset of the target critics, of one next action or the best
        of several."""
        act_key, draw_key = jax.random.split(key)
        count = self.actions if self.max_backup else 1
        obs, dim = sample.next_obs.policy, sample.action.shape[-1]
        action, _ = self.act(state.actor.params, obs, dim, act_key, count)
        target = state.target
        if self.subset:
            drawn = jax.random.choice(draw_key, self.critics, (self.subset,), replace=False)
            target = jax.tree.map(lambda x: x[drawn], target)
        after = self.q(target, sample.next_obs.critic, action).min(0)
        return sample.reward + sample.discount * after.max(1)

    def others(self, state: State, sample: Sample, key: Key) -> Sampled:
        """Actions [B, 3 n, A] that the critics are pushed down on, and their log-densities: of
        chance, of the policy, and of the policy one step later."""
        chance_key, here_key, later_key = jax.random.split(key, 3)
        shape = _, count, dim = len(sample.action), self.actions, sample.action.shape[-1]
        chance = jax.random.uniform(chance_key, shape, minval=-1, maxval=1)
        evenly = jnp.full(shape[:2], -dim * jnp.log(2.0))
        params, seen, then = state.actor.params, sample.obs.policy, sample.next_obs.policy
        here, here_logp = self.act(params, seen, dim, here_key, count)
        later, later_logp = self.act(params, then, dim, later_key, count)
        every = (chance, here, later), (evenly, here_logp, later_logp)
        return jnp.concatenate(every[0], 1), jnp.concatenate(every[1], 1)

    def weight(self, log_weight: Array) -> Array:
        """What the penalty counts."""
        found = jnp.clip(jnp.exp(log_weight), 0, 1e6) if self.gap is not None else 1.0
        return jnp.float32(self.penalty) * found

    def conservative(self, q_data: Array, q_others: Array, logp: Array, floor: Array) -> Array:
        """How far the critics [E] have others' actions above the data's: eq. 4, CQL(H).

        `q_data` [E, B], `q_others` [E, B, 3 n] with `logp` [B, 3 n]; none of the policy's counts as
        less than `floor` [B], where calibrated.
        """
        if self.calibrated:
            raised = jnp.maximum(q_others, floor[:, None])
            q_others = jnp.where(jnp.arange(q_others.shape[-1]) < self.actions, q_others, raised)
        if self.importance:
            q_others = q_others - logp
        else:
            q_others = jnp.concatenate([q_others, q_data[..., None]], -1)
        soft = jax.nn.logsumexp(q_others / self.temperature, -1) * self.temperature
        return (soft - q_data).mean(1)

    def critic_loss(
        self, params: Params, state: State, sample: Sample, target: Array, floor: Array, key: Key
    ) -> Loss:
        """Summed over critics: the mean squared error and what being conservative costs."""
        actions, logp = jax.lax.stop_gradient(self.others(state, sample, key))
        actions = jnp.concatenate([sample.action[:, None], actions], 1)
        q = self.q(params, sample.obs.critic, actions)
        error = ((q[..., 0] - target) ** 2).mean(1).sum()
        above = self.conservative(q[..., 0], q[..., 1:], logp, floor) - (self.gap or 0.0)
        loss = error + self.weight(state.log_weight.params) * above.sum()
        n, below = self.actions, (q[..., 1 + self.actions :] < floor[:, None]).mean()
        return loss, {
            "critic_loss": loss, "td_loss": error, "conservative": above.mean(),
            "q": q[..., 0].mean(), "q_chance": q[..., 1 : 1 + n].mean(),
            "q_policy": q[..., 1 + n : 1 + 2 * n].mean(), "below_return": below,
        }  # fmt: skip

    def weight_loss(self, log_weight: Array, above: Array) -> Loss:
        """The penalty's weight grows while it is above its gap."""
        return -(weight := self.weight(log_weight)) * above, {"penalty_weight": weight}

    def actor_loss(self, params: Params, state: State, sample: Sample, key: Key) -> Loss:
        action, logp = self.act(params, sample.obs.policy, sample.action.shape[-1], key, 1)
        q = self.q(state.critic.params, sample.obs.critic, action).min(0)
        loss = (jnp.exp(state.log_alpha.params) * logp - q).mean()
        return loss, {"actor_loss": loss, "entropy": -logp.mean()}

    def alpha_loss(self, log_alpha: Array, entropy: Array, dim: int) -> Loss:
        loss = (alpha := jnp.exp(log_alpha)) * (entropy - self.target_entropy * dim)
        return loss, {"alpha_loss": loss, "alpha": alpha}

    def sample(self, state: State, batch: Transition) -> tuple[Sample, Array]:
        """What to learn from windows of transitions [B, n, ...], and what the data came to from
        there [B], where it is told."""
        told = batch.aux["return"][:, 0] if self.calibrated else jnp.full(len(batch.reward), -1e9)
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs)), told

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, n, ...], then one of
        actor and temperature on the last."""
        critic_key, actor_key = jax.random.split(key)
        every = jax.vmap(self.sample, (None, 0))(state, batch)
        tx = optax.adam(self.critic_lr)

        def step(state: State, now: tuple[tuple[Sample, Array], Key]) -> tuple[State, Metrics]:
            (sample, floor), (target_key, key) = now[0], jax.random.split(now[1])
            given = state, sample, self.backup(state, sample, target_key), floor, key
            critic, metrics = descend(tx, self.critic_loss, state.critic, *given)
            if self.gap is not None:
                above = metrics["conservative"] * self.critics
                weight, more = descend(tx, self.weight_loss, state.log_weight, above)
                state, metrics = state._replace(log_weight=weight), metrics | more
            target = optax.incremental_update(critic.params, state.target, self.tau)
            return state._replace(critic=critic, target=target), metrics

        state, m1 = jax.lax.scan(step, state, (every, jax.random.split(critic_key, self.delay)))
        last, tx = jax.tree.map(lambda x: x[-1], every[0]), optax.adam(self.lr)
        actor, m2 = descend(tx, self.actor_loss, state.actor, state, last, actor_key)
        told = m2["entropy"], batch.action.shape[-1]
        log_alpha, m3 = descend(tx, self.alpha_loss, state.log_alpha, *told)
        return state._replace(actor=actor, log_alpha=log_alpha), jax.tree.map(
            jnp.mean, m1
        ) | m2 | m3

    def believed(self, state: State, obs: Obs, action: Array) -> Array:
        """What the lower critic believes returns of actions [B, A] to be [B], `obs` as recorded."""
        seen = self.scaled(state.obs, samples.views(obs))
        return self.q(state.critic.params, seen.critic, action[:, None])[..., 0].min(0)

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
