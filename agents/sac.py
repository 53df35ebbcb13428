"""Soft actor-critic with an ensemble of critics (Haarnoja et al. 2018, arXiv:1812.05905).

Settings of it are REDQ (arXiv:2101.05982: critics 10, subset 2, delay 20, actor_q "mean"),
DroQ (arXiv:2110.02034: dropout 0.01, layer_norm, delay 20), RLPD's critic (arXiv:2302.02948:
critics 10, subset 2, layer_norm, actor_q "mean"), SimbaV2 (arXiv:2502.15280: experiments/
simbav2.py) and FastSAC (arXiv:2512.01996: experiments/fast_sac.py).  SimbaV2's authors update the
actor before the critic, and clip no observation; FastSAC's step their temperature with it.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.heads import MSE, Head
from rl.nets import Q, SquashedGaussian, StateGaussian, apply, tanh_normal
from rl.policy import Policy, memoryless
from rl.samples import Sample
from rl.simba import SimbaGaussian, SimbaQ, project
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    critic: Trainable  # leaves of the parameters [E, ...]
    target: Params  # leaves [E, ...]
    log_alpha: Trainable
    obs: norm.Stats  # of both views


@dataclass(frozen=True)
class SAC:
    """Hyperparameters of SAC."""

    nets: Literal["mlp", "simbav2", "fastsac"] = "mlp"  # fastsac's have SiLU, normalised layers
    hidden: tuple[int, ...] = (256, 256)  # of the actor: layers, or SimbaV2's blocks, all alike
    critic_hidden: tuple[int, ...] = (256, 256)
    critics: int = 2
    subset: int = 0  # critics drawn for each target, of which the lowest counts; 0: all
    target_q: Literal["min", "own"] = "min"  # own: each learns from its own target, subset or not
    layer_norm: bool = False  # in the critics, where nets are mlp
    dropout: float = 0.0  # in the same
    head: Head = MSE()  # what of a return they predict
    actor_q: Literal["min", "mean"] = "min"  # what of the critics the actor maximises
    lr: float = 3e-4  # of actor and temperature
    critic_lr: float = 3e-4
    beta2: float = 0.999  # how long Adam remembers squares of gradients
    decay: float = 0.0  # of weights, as AdamW's
    gamma: float = 0.99
    tau: float = 0.005  # share of the critic that its target takes on a step
    delay: int = 1  # critic steps for each step of actor and temperature
    alpha: float = 1.0  # the temperature to begin with
    target_entropy: float = -1.0  # nats, for each dimension of the action
    entropy_backup: bool = True  # targets hold the entropy of actions to come
    normalise: bool = False  # observations, by running statistics
    halve_lr: int = 0  # updates in which the learning rates fall to half, evenly; 0: they stay

    def __post_init__(self) -> None:
        mlp = self.nets == "mlp"
        alike = self.nets != "simbav2" or len({*self.hidden}) == len({*self.critic_hidden}) == 1
        sound(
            self,
            target_q=(self.target_q == "min" or not self.subset, "min with a subset"),
            beta2=(0 <= self.beta2 < 1, "a number in [0, 1)"),
            decay=(self.decay >= 0, "a number of at least 0"),
            nets=(alike, "hidden and critic_hidden of equal numbers, one for each block"),
            layer_norm=(mlp or not self.layer_norm, f"False with nets {self.nets}"),
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            critics=(self.critics > 0, "a count of at least 1"),
            subset=(0 <= self.subset <= self.critics, "a count of some critics, or 0 for all"),
            dropout=(
                0 <= self.dropout < 1 and (mlp or not self.dropout),
                f"a share in [0, 1), 0 with {self.nets}",
            ),
            lr=(self.lr >= 0, "a number of at least 0"),
            critic_lr=(self.critic_lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            alpha=(self.alpha > 0, "a number above 0"),
            halve_lr=(self.halve_lr >= 0, "a count of updates, or 0 for none"),
        )

    def actor(self, action_dim: int) -> StateGaussian | SimbaGaussian | SquashedGaussian:
        kinds = {"mlp": StateGaussian, "simbav2": SimbaGaussian, "fastsac": SquashedGaussian}
        return kinds[self.nets](action_dim, self.hidden)

    @property
    def critic(self) -> Q | SimbaQ:
        if self.nets == "simbav2":
            return SimbaQ(self.critic_hidden, self.head.outputs)
        if self.nets == "fastsac":
            return Q(self.critic_hidden, self.head.outputs, True, activation=jax.nn.silu)
        return Q(self.critic_hidden, self.head.outputs, self.layer_norm, self.dropout)

    def tx(self, lr: float) -> optax.GradientTransformation:
        falling = optax.linear_schedule(lr, lr / 2, self.halve_lr)
        rate = falling if self.halve_lr else lr
        if self.decay:
            return optax.adamw(rate, b2=self.beta2, weight_decay=self.decay)
        return optax.adam(rate, b2=self.beta2)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key = jax.random.split(key)
        seen = samples.views(obs)
        critic_keys = jax.random.split(critic_key, self.critics)
        critic = jax.vmap(self.critic.init, (0, None, None))(critic_keys, seen.critic, action)
        critic = self.kept(critic)
        actor = self.kept(self.actor(action.shape[-1]).init(actor_key, seen.policy))
        return State(
            actor=trainable(actor, self.tx(self.lr)),
            critic=trainable(critic, self.tx(self.critic_lr)),
            target=critic,
            log_alpha=trainable(jnp.log(self.alpha), self.tx(self.lr)),
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

    def kept(self, params: Params) -> Params:
        """Parameters as their networks want them after each step."""
        return project(params) if self.nets == "simbav2" else params

    def scaled(self, stats: norm.Stats, obs: PyTree) -> PyTree:
        return norm.normalise(stats, obs) if self.normalise else obs

    def act(self, params: Params, obs: Array, action_dim: int, key: Key) -> tuple[Array, Array]:
        """Sampled action [..., A] and its log-density [...]; `obs` is scaled already."""
        return tanh_normal(key, *apply(self.actor(action_dim), params, obs))

    def q(self, params: Params, obs: Array, action: Array, key: Key | None = None) -> Array:
        """Every critic's outputs [E, ..., K]."""
        count = len(jax.tree.leaves(params)[0])
        keys = None if key is None else jax.random.split(key, count)
        one = lambda params, key: apply(self.critic, params, obs, action, key)  # noqa: E731
        return jax.vmap(one)(params, keys)

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B, ...] in the head's form: the lowest of a subset of the target critics; or
        [E, B, ...], of each its own."""
        act_key, draw_key, drop_key = jax.random.split(key, 3)
        action, logp = self.act(
            state.actor.params, sample.next_obs.policy, sample.action.shape[-1], act_key
        )
        target = state.target
        if self.subset:
            drawn = jax.random.choice(draw_key, self.critics, (self.subset,), replace=False)
            target = jax.tree.map(lambda x: x[drawn], target)
        alpha = jnp.exp(state.log_alpha.params) if self.entropy_backup else 0.0
        outputs = self.q(target, sample.next_obs.critic, action, drop_key)
        backup = lambda x: self.head.backup(x, sample.reward, sample.discount, -alpha * logp)  # noqa: E731
        if self.target_q == "own":
            return jax.vmap(backup)(outputs)
        lowest = self.head.value(outputs).argmin(0)
        return backup(jnp.take_along_axis(outputs, lowest[None, :, None], axis=0)[0])

    def critic_loss(
        self, params: Params, sample: Sample, target: Array, key: Key
    ) -> tuple[Array, Metrics]:
        """Mean over critics and batch; `target` is of `backup`."""
        outputs = self.q(params, sample.obs.critic, sample.action, key)
        loss = self.head.loss(outputs, target).mean()
        return loss, {"critic_loss": loss, "q": self.head.value(outputs).mean()}

    def actor_loss(
        self, params: Params, state: State, sample: Sample, key: Key
    ) -> tuple[Array, Metrics]:
        act_key, drop_key = jax.random.split(key)
        action, logp = self.act(params, sample.obs.policy, sample.action.shape[-1], act_key)
        outputs = self.q(state.critic.params, sample.obs.critic, action, drop_key)
        q = self.head.value(outputs)
        q = q.min(0) if self.actor_q == "min" else q.mean(0)
        loss = (jnp.exp(state.log_alpha.params) * logp - q).mean()
        return loss, {"actor_loss": loss, "entropy": -logp.mean()}

    def alpha_loss(
        self, log_alpha: Array, entropy: Array, action_dim: int
    ) -> tuple[Array, Metrics]:
        alpha, wanted = jnp.exp(log_alpha), self.target_entropy * action_dim
        loss = alpha * (entropy - wanted)
        return loss, {"alpha_loss": loss, "alpha": alpha, "target_entropy": jnp.float32(wanted)}

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...]."""
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs))

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, n, ...], then one of
        actor and temperature on the last."""
        critic_key, actor_key = jax.random.split(key)
        every = jax.vmap(self.sample, (None, 0))(state, batch)

        def step(state: State, now: tuple[Sample, Key]) -> tuple[State, Metrics]:
            sample, (target_key, drop_key) = now[0], jax.random.split(now[1])
            target = self.backup(state, sample, target_key)
            tx = self.tx(self.critic_lr)
            critic, metrics = descend(tx, self.critic_loss, state.critic, sample, target, drop_key)
            critic = critic._replace(params=self.kept(critic.params))
            target = optax.incremental_update(critic.params, state.target, self.tau)
            return state._replace(critic=critic, target=target), metrics

        state, m1 = jax.lax.scan(step, state, (every, jax.random.split(critic_key, self.delay)))
        last, tx = jax.tree.map(lambda x: x[-1], every), self.tx(self.lr)
        actor, m2 = descend(tx, self.actor_loss, state.actor, state, last, actor_key)
        dim = batch.action.shape[-1]
        log_alpha, m3 = descend(tx, self.alpha_loss, state.log_alpha, m2["entropy"], dim)
        actor = actor._replace(params=self.kept(actor.params))
        state = state._replace(actor=actor, log_alpha=log_alpha)
        return state, jax.tree.map(jnp.mean, m1) | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
