"""What on-policy agents have beside their policy: a critic that says how much better what was done
is than what was to be expected, and epochs of minibatches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, parallel
from rl.nets import MLP, apply, tanh_mlp
from rl.returns import gae
from rl.samples import views
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Params, PyTree, Transition


class Value(NamedTuple):
    """What is learned."""

    net: Trainable
    obs: norm.Stats  # of what is seen [O]
    returns: norm.Stats  # of value targets []


class Judged(NamedTuple):
    """What a batch came to; leaves [...]."""

    known: Array  # [..., O] what the critic saw, scaled
    advantage: Array
    returns: Array  # lambda-returns
    target: Array  # these in the critic's units


@dataclass(frozen=True)
class Baseline:
    """Hyperparameters of such a critic."""

    hidden: tuple[int, ...] = (256, 256)
    lr: float = 1e-3
    gamma: float = 0.99  # of a step, which may be a whole plan
    lam: float = 0.95
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            lam=(0 <= self.lam <= 1, "a number in [0, 1]"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
        )

    @property
    def net(self) -> MLP:
        return tanh_mlp((*self.hidden, 1), out_gain=1.0)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(self.lr))

    def init(self, key: Key, obs: Array) -> Value:
        """Of an example of what is seen [O]."""
        net = trainable(self.net.init(key, obs), self.tx)
        return Value(net, norm.init(obs), norm.init(jnp.float32(0)))

    def judge(self, value: Value, batch: Transition) -> Judged:
        """What a batch [T, N, ...] came to: generalised advantages; a time limit goes on."""
        known, after = (
            norm.normalise(value.obs, views(x).critic) for x in (batch.obs, batch.next_obs)
        )
        mean, std = value.returns.mean, jnp.sqrt(value.returns.var)
        now, then = (mean + std * self.scaled(value.net.params, x) for x in (known, after))
        advantage = gae(
            batch.reward, now, then, batch.terminated, batch.truncated,
            gamma=self.gamma, lam=self.lam,
        )  # fmt: skip
        returns = advantage + now
        return Judged(known, advantage, returns, (returns - mean) / std)

    def scaled(self, params: Params, known: Array) -> Array:
        """Value [...] in the critic's units."""
        return apply(self.net, params, known).squeeze(-1)

    def loss(self, params: Params, known: Array, target: Array) -> tuple[Array, Metrics]:
        """Half the mean squared error."""
        loss = 0.5 * ((self.scaled(params, known) - target) ** 2).mean()
        return loss, {"value_loss": loss}

    def step(self, value: Value, known: Array, target: Array) -> tuple[Value, Metrics]:
        net, metrics = descend(self.tx, self.loss, value.net, known, target)
        return value._replace(net=net), metrics

    def observe(self, value: Value, batch: Transition, judged: Judged) -> Value:
        """With a batch counted, once it is learned from."""
        obs = norm.update(value.obs, views(batch.obs).critic)
        returns = norm.update(value.returns, judged.returns)
        net = value.net._replace(params=self.rescaled(value.net.params, value.returns, returns))
        return Value(net, obs, returns)

    def rescaled(self, params: Params, before: norm.Stats, now: norm.Stats) -> Params:
        """`params` that mean in units of now what they meant before (PopArt: van Hasselt et al.
        2016, arXiv:1602.07714, prop. 1): values that grow with their unit run away."""
        ratio, shift = jnp.sqrt(before.var / now.var), before.mean - now.mean
        last = f"Dense_{len(self.hidden)}"
        kernel, bias = (params["params"][last][x] for x in ("kernel", "bias"))
        layer = {"kernel": ratio * kernel, "bias": ratio * bias + shift / jnp.sqrt(now.var)}
        return {"params": params["params"] | {last: layer}}


def normalised(advantage: Array) -> Array:
    """Advantages of a minibatch, to mean 0 and std 1."""
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def surrogate(logp: Array, old: Array, advantage: Array, clip: Array | float) -> Array:
    """PPO's loss [] of log-densities [B] (Schulman et al. 2017, arXiv:1707.06347, eq. 7)."""
    ratio = jnp.exp(logp - old)
    clipped = jnp.clip(ratio, 1 - clip, 1 + clip)
    return -jnp.minimum(ratio * advantage, clipped * advantage).mean()


def epochs(
    step: Callable[[Any, Any], tuple[Any, Metrics]],
    state: PyTree,
    sample: PyTree,
    key: Key,
    count: int,
    minibatches: int,
    shards: tuple[int, int] = (1, 1),
) -> tuple[PyTree, Metrics]:
    """`state` after steps on minibatches of a sample (leaves [B, ...]), shuffled in each epoch, and
    the means of what these tell; of `shards`, so many lie side by side in each of so many steps."""
    total, (apart, length) = len(jax.tree.leaves(sample)[0]), shards
    if total // apart // minibatches * apart < 2:  # one advantage is 0, normalised
        raise ValueError(
            f"{total} samples do not fill {minibatches} minibatches of 2 or more: "
            "collect more (--num-envs, --unroll) or lower --agent.minibatches."
        )

    rows = jax.tree.map(lambda x: x.reshape(length, total // length, *x.shape[1:]), sample)

    def epoch(state: PyTree, key: Key) -> tuple[PyTree, Metrics]:
        return jax.lax.scan(step, state, parallel.deal(apart, key, rows, minibatches))

    state, metrics = jax.lax.scan(epoch, state, jax.random.split(key, count))
    return state, jax.tree.map(jnp.mean, metrics)


def improve(
    agent: Any, state: Any, batch: Transition, key: Key, shards: int = 1
) -> tuple[Any, Metrics]:
    """A state with `actor`, `value` and `updates` after all epochs on one batch [T, N, ...], by the
    agent's `sample` and `loss`; while it is `warm` the critic alone learns."""
    judged = agent.baseline.judge(state.value, batch)
    cold = state.updates < agent.warm

    def step(state: Any, few: Any) -> tuple[Any, Metrics]:
        actor, m1 = descend(agent.tx, agent.loss, state.actor, state, few)
        actor = jax.tree.map(lambda new, old: jnp.where(cold, old, new), actor, state.actor)
        value, m2 = agent.baseline.step(state.value, few.judged.known, few.judged.target)
        return state._replace(actor=actor, value=value), m1 | m2

    sample = agent.sample(state, batch, judged)
    lie = shards, len(batch.reward)
    state, metrics = epochs(step, state, sample, key, agent.epochs, agent.minibatches, lie)
    value = agent.baseline.observe(state.value, batch, judged)
    state = state._replace(value=value, updates=state.updates + 1)
    return state, metrics | {"target": judged.returns.mean()}
