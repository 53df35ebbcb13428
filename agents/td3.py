"""Twin delayed deep deterministic policy gradient (Fujimoto et al. 2018, arXiv:1802.09477).

FastTD3 (Seo et al. 2025, arXiv:2505.22642) is a setting of it: experiments/fast_td3.py.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax.linen.initializers import normal as normal_init

from rl import norm, samples
from rl.heads import MSE, Head
from rl.nets import LECUN, MLP, Q, apply
from rl.policy import Policy
from rl.samples import Sample
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    critic: Trainable  # leaves of the parameters [2, ...]
    target: Params  # of the critics
    target_actor: Params
    obs: norm.Stats  # of both views


@dataclass(frozen=True)
class TD3:
    """Hyperparameters of TD3."""

    hidden: tuple[int, ...] = (256, 256)  # of the actor
    critic_hidden: tuple[int, ...] = (256, 256)
    head: Head = MSE()  # what of a return the critics predict
    actor_q: Literal["first", "min", "mean"] = "first"  # what of the critics the actor maximises
    lr: float = 3e-4
    critic_lr: float = 3e-4
    weight_decay: float = 0.0  # of both
    gamma: float = 0.99
    tau: float = 0.005  # share of the networks that their targets take on a step of the actor
    eager: bool = False  # the critics' targets move on every step of theirs, before the actor's
    delay: int = 2  # critic steps for each step of the actor
    exploration: tuple[float, float] = (0.1, 0.1)  # std of the noise, drawn in each episode
    smoothing: float = 0.2  # std of the noise on the target's action
    smoothing_clip: float = 0.5
    target_actor: bool = True  # the target's action comes from a slow copy of the actor
    out_std: float = 0.0  # of the actor's last kernel at first; 0: as its other layers' are
    normalise: bool = False  # observations, by running statistics

    def __post_init__(self) -> None:
        low, high = self.exploration
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            critic_lr=(self.critic_lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            weight_decay=(self.weight_decay >= 0, "a number of at least 0"),
            out_std=(self.out_std >= 0, "a number of at least 0"),
            smoothing=(self.smoothing >= 0, "a number of at least 0"),
            smoothing_clip=(self.smoothing_clip >= 0, "a number of at least 0"),
            exploration=(0 <= low <= high, "two numbers of at least 0, the lower first"),
        )

    def actor(self, action_dim: int) -> MLP:
        last = normal_init(self.out_std) if self.out_std else LECUN
        return MLP((*self.hidden, action_dim), out_init=last)

    @property
    def critic(self) -> Q:
        return Q(self.critic_hidden, self.head.outputs)

    def tx(self, lr: float) -> optax.GradientTransformation:
        return optax.adamw(lr, weight_decay=self.weight_decay)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key = jax.random.split(key)
        seen = samples.views(obs)
        actor = self.actor(action.shape[-1]).init(actor_key, seen.policy)
        critic_keys = jax.random.split(critic_key, 2)
        critic = jax.vmap(self.critic.init, (0, None, None))(critic_keys, seen.critic, action)
        return State(
            actor=trainable(actor, self.tx(self.lr)),
            critic=trainable(critic, self.tx(self.critic_lr)),
            target=critic,
            target_actor=actor,
            obs=norm.init(seen),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters; to explore, with noise of an std that holds for an
        episode."""
        low, high = self.exploration

        def step(params: Params, std: Array, obs: Obs, key: Key) -> tuple[Array, Array, tuple[()]]:
            seen = self.scaled(params["obs"], samples.views(obs).policy)
            action = self.act(params["actor"], seen, action_dim)
            if explore:
                std_key, noise_key = jax.random.split(key)
                drawn = jax.random.uniform(std_key, (), minval=low, maxval=high)
                std = jnp.where(std < 0, drawn, std)
                action = action + std * jax.random.normal(noise_key, action.shape)
            return jnp.clip(action, -1, 1), std, ()

        return Policy(init=lambda params: jnp.float32(-1), step=step)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor and its normaliser."""
        stats = state.obs._replace(mean=state.obs.mean.policy, var=state.obs.var.policy)
        return {"actor": state.actor.params, "obs": stats}

    def scaled(self, stats: norm.Stats, obs: PyTree) -> PyTree:
        return norm.normalise(stats, obs) if self.normalise else obs

    def act(self, params: Params, obs: Array, action_dim: int) -> Array:
        """Action [..., A]; `obs` is scaled already."""
        return jnp.tanh(apply(self.actor(action_dim), params, obs))

    def q(self, params: Params, obs: Array, action: Array) -> Array:
        """Both critics' outputs [2, ..., K]."""
        return jax.vmap(lambda params: apply(self.critic, params, obs, action))(params)

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B, ...] in the head's form: the lower of both target critics."""
        actor = state.target_actor if self.target_actor else state.actor.params
        action = self.act(actor, sample.next_obs.policy, sample.action.shape[-1])
        noise = self.smoothing * jax.random.normal(key, action.shape)
        noise = jnp.clip(noise, -self.smoothing_clip, self.smoothing_clip)
        outputs = self.q(state.target, sample.next_obs.critic, jnp.clip(action + noise, -1, 1))
        backup = jax.vmap(self.head.backup, (0, None, None, None))
        targets = backup(outputs, sample.reward, sample.discount, jnp.zeros_like(sample.reward))
        lowest = self.head.mean(targets).argmin(0)
        return jnp.take_along_axis(targets, lowest[None, :, None], axis=0)[0]

    def critic_loss(self, params: Params, sample: Sample, target: Array) -> tuple[Array, Metrics]:
        """Sum over both critics of the mean over the batch; `target` is of `backup`."""
        outputs = self.q(params, sample.obs.critic, sample.action)
        loss = self.head.loss(outputs, target).mean(1).sum()
        return loss, {"critic_loss": loss, "q": self.head.value(outputs).mean()}

    def actor_loss(self, params: Params, state: State, sample: Sample) -> tuple[Array, Metrics]:
        action = self.act(params, sample.obs.policy, sample.action.shape[-1])
        q = self.head.value(self.q(state.critic.params, sample.obs.critic, action))
        chosen = {"first": q[0], "min": q.min(0), "mean": q.mean(0)}[self.actor_q]
        return -chosen.mean(), {"actor_loss": -chosen.mean()}

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...]."""
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs))

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, n, ...], then one of
        the actor on the last, and of all targets that have not moved."""
        slower = partial(optax.incremental_update, step_size=self.tau)
        every = jax.vmap(self.sample, (None, 0))(state, batch)

        def step(state: State, now: tuple[Sample, Key]) -> tuple[State, Metrics]:
            sample, target_key = now
            target, tx = self.backup(state, sample, target_key), self.tx(self.critic_lr)
            critic, metrics = descend(tx, self.critic_loss, state.critic, sample, target)
            slow = slower(critic.params, state.target) if self.eager else state.target
            return state._replace(critic=critic, target=slow), metrics

        state, m1 = jax.lax.scan(step, state, (every, jax.random.split(key, self.delay)))
        last = jax.tree.map(lambda x: x[-1], every)
        actor, m2 = descend(self.tx(self.lr), self.actor_loss, state.actor, state, last)
        state = state._replace(
            actor=actor,
            target=state.target if self.eager else slower(state.critic.params, state.target),
            target_actor=slower(actor.params, state.target_actor),
        )
        return state, jax.tree.map(jnp.mean, m1) | m2

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
