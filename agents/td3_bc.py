"""TD3 held to the data by imitation (TD3+BC: Fujimoto and Gu 2021, arXiv:2106.06860)."""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.nets import MLP, Q, apply
from rl.policy import Policy, memoryless
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
class TD3BC:
    """Hyperparameters of TD3+BC."""

    hidden: tuple[int, ...] = (256, 256)  # of every network
    alpha: float = 2.5  # what Q counts, in units of its mean size, beside imitation; 0: that alone
    lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.005  # share of the networks that their targets take on a step of the actor
    delay: int = 2  # critic steps for each step of the actor
    exploration: float = 0.1  # std of the noise on actions, online
    smoothing: float = 0.2  # std of the noise on the target's action
    smoothing_clip: float = 0.5
    normalise: bool = True  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            alpha=(self.alpha >= 0, "a number of at least 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            exploration=(self.exploration >= 0, "a number of at least 0"),
            smoothing=(self.smoothing >= 0, "a number of at least 0"),
            smoothing_clip=(self.smoothing_clip >= 0, "a number of at least 0"),
        )

    def actor(self, action_dim: int) -> MLP:
        return MLP((*self.hidden, action_dim))

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
            target_actor=actor,
            obs=norm.init(seen),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters; to explore, with noise."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, tuple[()]]:
            seen = self.scaled(params["obs"], samples.views(obs).policy)
            action = self.act(params["actor"], seen, action_dim)
            if explore:
                action = action + self.exploration * jax.random.normal(key, action.shape)
            return jnp.clip(action, -1, 1), ()

        return memoryless(act)

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
        """Both critics' values [2, ...]."""
        return jax.vmap(lambda params: apply(self.critic, params, obs, action)[..., 0])(params)

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B]: the lower of both target critics."""
        action = self.act(state.target_actor, sample.next_obs.policy, sample.action.shape[-1])
        noise = self.smoothing * jax.random.normal(key, action.shape)
        noise = jnp.clip(noise, -self.smoothing_clip, self.smoothing_clip)
        after = self.q(state.target, sample.next_obs.critic, jnp.clip(action + noise, -1, 1))
        return sample.reward + sample.discount * after.min(0)

    def critic_loss(self, params: Params, sample: Sample, target: Array) -> tuple[Array, Metrics]:
        """Sum over both critics of the mean over the batch; `target` [B] is of `backup`."""
        q = self.q(params, sample.obs.critic, sample.action)
        loss = ((q - target) ** 2).mean(1).sum()
        return loss, {"critic_loss": loss, "q": q.mean()}

    def actor_loss(self, params: Params, state: State, sample: Sample) -> tuple[Array, Metrics]:
        """Eqs. 3 and 5: what the first critic makes of an action, and how far off the data."""
        action = self.act(params, sample.obs.policy, sample.action.shape[-1])
        first = jax.tree.map(lambda x: x[:1], state.critic.params)
        q = self.q(first, sample.obs.critic, action)[0]
        scale = self.alpha / jnp.maximum(jax.lax.stop_gradient(jnp.abs(q).mean()), 1e-6)
        bc = ((action - sample.action) ** 2).mean()
        loss = bc - scale * q.mean()
        return loss, {"actor_loss": loss, "bc_loss": bc, "q_policy": q.mean()}

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...]."""
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs))

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, n, ...], then one of
        the actor on the last, and of all targets."""
        every = jax.vmap(self.sample, (None, 0))(state, batch)

        def step(state: State, now: tuple[Sample, Key]) -> tuple[State, Metrics]:
            sample, target_key = now
            target = self.backup(state, sample, target_key)
            critic, metrics = descend(self.tx, self.critic_loss, state.critic, sample, target)
            return state._replace(critic=critic), metrics

        state, m1 = jax.lax.scan(step, state, (every, jax.random.split(key, self.delay)))
        last = jax.tree.map(lambda x: x[-1], every)
        actor, m2 = descend(self.tx, self.actor_loss, state.actor, state, last)
        state = state._replace(
            actor=actor,
            target=optax.incremental_update(state.critic.params, state.target, self.tau),
            target_actor=optax.incremental_update(actor.params, state.target_actor, self.tau),
        )
        return state, jax.tree.map(jnp.mean, m1) | m2

    def believed(self, state: State, obs: Obs, action: Array) -> Array:
        """What the lower critic believes returns of actions [B, A] to be [B], `obs` as recorded."""
        seen = self.scaled(state.obs, samples.views(obs))
        return self.q(state.critic.params, seen.critic, action).min(0)

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, samples.views(seen.obs)))
