"""Proximal policy optimisation with clipping (Schulman et al. 2017, arXiv:1707.06347).

The critic may see more than the policy (asymmetric: Pinto et al. 2018).  A time limit
bootstraps from the true last observation (Pardo et al. 2018).  Observations and value
targets are normalised by running statistics that are part of the state: frozen while a
batch is collected and learned from, then updated with it.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from tyro.conf import Suppress

from rl import norm, parallel
from rl.nets import (
    MLP,
    Gaussian,
    apply,
    flatten,
    normal,
    normal_entropy,
    normal_kl,
    normal_logp,
    tanh_mlp,
)  # fmt: skip
from rl.policy import Policy, memoryless
from rl.returns import gae
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition, view


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable
    critic: Trainable
    obs: norm.Stats  # of the policy's view
    critic_obs: norm.Stats
    returns: norm.Stats  # of the value targets []
    lr: Array  # []


class Sample(NamedTuple):
    """What one gradient step needs of a transition; leaves [B, ...]."""

    obs: Array
    critic_obs: Array
    action: Array
    old: dict[str, Array]  # log-density, mean and log_std of the policy that acted
    advantage: Array
    target: Array  # lambda-return in the critic's units


@dataclass(frozen=True)
class PPO:
    """Hyperparameters of PPO."""

    hidden: tuple[int, ...] = (64, 64)  # of the actor
    critic_hidden: tuple[int, ...] = (64, 64)
    lr: float = 3e-4
    gamma: float = 0.99
    lam: float = 0.95
    clip: float = 0.2  # of the probability ratio
    epochs: int = 10
    minibatches: int = 64
    entropy_cost: float = 0.0
    max_grad_norm: float = 0.5
    std: float = 1.0  # of actions, to begin with
    out_gain: float = 0.01  # of the actor's last layer, to begin with
    target_kl: float = 0.0  # mean KL of an epoch that the learning rate seeks; 0: leave it
    # A task's Mirror: left and right are alike to policy and critic.
    mirror: Suppress[Any] = field(default=None, metadata={"found": True})

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            lr=(self.lr > 0, "a number above 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            lam=(0 <= self.lam <= 1, "a number in [0, 1]"),
            clip=(self.clip > 0, "a number above 0"),
            epochs=(self.epochs > 0, "a count of at least 1"),
            minibatches=(self.minibatches > 0, "a count of at least 1"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
            std=(self.std > 0, "a number above 0"),
            target_kl=(self.target_kl >= 0, "a number above 0, or 0 for none"),
        )

    def actor(self, action_dim: int) -> Gaussian:
        return Gaussian(action_dim, self.hidden, self.std, self.out_gain)

    @property
    def critic(self) -> MLP:
        return tanh_mlp((*self.critic_hidden, 1), out_gain=1.0)

    def tx(self, lr: Array) -> optax.GradientTransformation:
        clip = optax.clip_by_global_norm(self.max_grad_norm)
        return optax.flatten(optax.chain(clip, optax.scale_by_adam(eps=1e-5), optax.scale(-lr)))

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        actor_key, critic_key = jax.random.split(key)
        seen, known = flatten(view(obs, "policy")), flatten(view(obs, "critic"))
        lr = jnp.float32(self.lr)
        return State(
            actor=trainable(self.actor(action.shape[-1]).init(actor_key, seen), self.tx(lr)),
            critic=trainable(self.critic.init(critic_key, known), self.tx(lr)),
            obs=norm.init(seen),
            critic_obs=norm.init(known),
            returns=norm.init(jnp.float32(0)),
            lr=lr,
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: sampled to learn, the mean to evaluate."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, dict[str, Array]]:
            seen = norm.normalise(params["obs"], flatten(view(obs, "policy")))
            mean, log_std = self.gaussian(params["actor"], seen, action_dim)
            if not explore:
                return mean, {}
            action, logp = normal(key, mean, log_std)
            return action, {"logp": logp, "mean": mean, "log_std": log_std}

        return memoryless(act)

    def warm(self, state: State, params: Params) -> State:
        """`state` with the mean of `deploy`'s `params`: who has learned hardly explores, so the
        std is as `state` has it, and its critic knows nothing yet."""
        std = {"log_std": state.actor.params["params"]["log_std"]}
        actor = {"params": params["actor"]["params"] | std}
        return state._replace(actor=trainable(actor, self.tx(state.lr)), obs=params["obs"])

    def gaussian(self, params: Params, obs: Array, action_dim: int) -> tuple[Array, Array]:
        """Mean and log_std [..., A]; `obs` [..., O] is normalised already."""
        net = self.actor(action_dim)
        mean, log_std = apply(net, params, obs)
        if self.mirror is None:
            return mean, log_std
        seen, back = self.mirror.obs["policy"], self.mirror.action
        image, _ = apply(net, params, seen(obs))
        return (mean + back(image)) / 2, (log_std + log_std[..., back.index]) / 2

    def scaled_value(self, params: Params, critic_obs: Array) -> Array:
        """Value [...], in the critic's units; `critic_obs` [..., O] is normalised already."""
        v = apply(self.critic, params, critic_obs)
        if self.mirror is not None:
            v = (v + apply(self.critic, params, self.mirror.obs["critic"](critic_obs))) / 2
        return v.squeeze(-1)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor and its normaliser."""
        return {"actor": state.actor.params, "obs": state.obs}

    def value(self, state: State, critic_obs: Array) -> Array:
        """Value [...], in the reward's units; `critic_obs` [..., O] is normalised already."""
        v = self.scaled_value(state.critic.params, critic_obs)
        return v * jnp.sqrt(state.returns.var) + state.returns.mean

    def policy_loss(self, params: Params, batch: Sample) -> tuple[Array, Metrics]:
        mean, log_std = self.gaussian(params, batch.obs, batch.action.shape[-1])
        log_ratio = normal_logp(batch.action, mean, log_std) - batch.old["logp"]
        ratio = jnp.exp(log_ratio)
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - self.clip, 1 + self.clip)
        gain = jnp.minimum(ratio * advantage, clipped * advantage).mean()
        entropy = normal_entropy(log_std).mean()
        metrics = {
            "policy_loss": -gain,
            "entropy": entropy,
            "kl": normal_kl(batch.old["mean"], batch.old["log_std"], mean, log_std).mean(),
            "clip_fraction": (jnp.abs(ratio - 1) > self.clip).mean(),
        }
        return -gain - self.entropy_cost * entropy, metrics

    def value_loss(self, params: Params, batch: Sample) -> tuple[Array, Metrics]:
        v = self.scaled_value(params, batch.critic_obs)
        loss = 0.5 * jnp.mean((v - batch.target) ** 2)
        return loss, {"value_loss": loss}

    def samples(self, state: State, batch: Transition) -> tuple[Sample, Array]:
        """What to learn from transitions [T, N, ...], of each of them, and lambda-returns."""
        known = norm.normalise(state.critic_obs, flatten(view(batch.obs, "critic")))
        after = norm.normalise(state.critic_obs, flatten(view(batch.next_obs, "critic")))
        value, next_value = self.value(state, known), self.value(state, after)
        advantage = gae(
            batch.reward, value, next_value, batch.terminated, batch.truncated,
            gamma=self.gamma, lam=self.lam,
        )  # fmt: skip
        returns = advantage + value
        sample = Sample(
            obs=norm.normalise(state.obs, flatten(view(batch.obs, "policy"))),
            critic_obs=known,
            action=batch.action,
            old=batch.aux,
            advantage=advantage,
            target=(returns - state.returns.mean) * jax.lax.rsqrt(state.returns.var),
        )
        return sample, returns

    def update(
        self, state: State, batch: Transition, key: Key, shards: int = 1
    ) -> tuple[State, Metrics]:
        """All epochs on one batch of transitions [T, N, ...] of `policy(explore=True)`, whose
        worlds lie in so many shards."""
        sample, returns = self.samples(state, batch)
        total = sample.advantage.size
        if total // shards // self.minibatches * shards < 2:
            # One advantage, normalised, is 0 and teaches nothing.
            raise ValueError(
                f"{total} transitions do not fill {self.minibatches} minibatches of 2 or more: "
                "collect more (--num-envs, --unroll) or lower --agent.minibatches."
            )

        def step(state: State, minibatch: Sample) -> tuple[State, Metrics]:
            tx = self.tx(state.lr)
            actor, m1 = descend(tx, self.policy_loss, state.actor, minibatch)
            critic, m2 = descend(tx, self.value_loss, state.critic, minibatch)
            return state._replace(actor=actor, critic=critic), m1 | m2

        def epoch(state: State, key: Key) -> tuple[State, Metrics]:
            dealt = parallel.deal(shards, key, sample, self.minibatches)
            state, seen = jax.lax.scan(step, state, dealt)
            return state._replace(lr=self.adapt(state.lr, seen["kl"].mean())), seen

        state, metrics = jax.lax.scan(epoch, state, jax.random.split(key, self.epochs))
        state = state._replace(
            obs=norm.update(state.obs, self.both(batch.obs, "policy")),
            critic_obs=norm.update(state.critic_obs, self.both(batch.obs, "critic")),
            returns=norm.update(state.returns, returns),
        )
        return state, jax.tree.map(jnp.mean, metrics) | {"target": returns.mean(), "lr": state.lr}

    def both(self, obs: Obs, who: str) -> Array:
        """A view of observations, and of their mirror images if those are to count as much."""
        seen = flatten(view(obs, who))
        return seen if self.mirror is None else jnp.stack([seen, self.mirror.obs[who](seen)])

    def adapt(self, lr: Array, kl: Array) -> Array:
        """Learning rate, in [1e-5, 1e-2], after an epoch of mean `kl` (Rudin et al. 2022,
        arXiv:2109.11978, whose PPO does so after each of its few minibatches)."""
        if not self.target_kl:
            return lr
        factor = jnp.where(kl > 2 * self.target_kl, 1 / 1.5, 1.0)
        factor = jnp.where(kl < self.target_kl / 2, 1.5, factor)
        return jnp.clip(lr * factor, 1e-5, 1e-2)
