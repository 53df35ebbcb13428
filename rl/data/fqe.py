"""Fitted-Q evaluation (Le, Voloshin, Yue 2019, arXiv:1903.08738): what a policy that never changes
is worth, from data alone.

Q is fitted to r + gamma Q(s', pi(s')), with the judged policy's action and not the data's.  Deep
and by a slowly moving target as in Voloshin et al. 2019 (arXiv:1911.06854) and Fu et al. 2021
(arXiv:2103.16596).  A clock that cuts an episode ends no value.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import norm, samples
from rl.nets import Q, apply
from rl.policy import Policy
from rl.samples import Sample
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition

ROWS = 4_096  # of data, that a policy acts on at a time


class State(NamedTuple):
    """Arrays only."""

    critic: Trainable  # leaves of the parameters [E, ...]
    target: Params  # a mean of the critics over their last updates, and what is asked for values
    obs: norm.Stats  # of the data, and fixed


@dataclass(frozen=True)
class FQE:
    """Hyperparameters of fitted-Q evaluation."""

    hidden: tuple[int, ...] = (256, 256)
    critics: int = 4  # that begin otherwise and learn from the same: their spread is no interval
    lr: float = 3e-4
    gamma: float = 0.99
    tau: float = 0.01  # share that targets take on a step: steps * tau is many 1 / (1 - gamma)
    normalise: bool = True  # observations, by the data's statistics
    layer_norm: bool = True  # in the critics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critics=(self.critics > 0, "a count of at least 1"),
            lr=(self.lr > 0, "a number above 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 < self.tau <= 1, "a number in (0, 1]"),
        )

    @property
    def critic(self) -> Q:
        return Q(self.hidden, layer_norm=self.layer_norm)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for all observations of the data (leaves [S, ...]) and one action [A]."""
        seen = samples.views(obs)
        example = jax.tree.map(lambda x: x[0], seen)
        keys = jax.random.split(key, self.critics)
        critic = jax.vmap(self.critic.init, (0, None, None))(keys, example.critic, action)
        stats = norm.init(example)
        if self.normalise:
            stats = norm.update(stats, seen)
        return State(trainable(critic, self.tx), critic, stats)

    def scaled(self, stats: norm.Stats, obs: PyTree) -> PyTree:
        return norm.normalise(stats, obs) if self.normalise else obs

    def q(self, params: Params, obs: Array, action: Array) -> Array:
        """Each critic's values [E, ...]; `obs` is scaled already."""
        return jax.vmap(lambda params: apply(self.critic, params, obs, action)[..., 0])(params)

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of one step [B, 1, ...]; more would be off the policy."""
        return samples.sample(batch, self.gamma, lambda obs: self.scaled(state.obs, obs))

    def backup(self, state: State, sample: Sample, after: Array) -> Array:
        """Target [E, B], each critic's own; `after` [B, A] is what the policy does next."""
        return sample.reward + sample.discount * self.q(state.target, sample.next_obs.critic, after)

    def loss(self, params: Params, sample: Sample, target: Array) -> tuple[Array, Metrics]:
        """Sum over the critics of the mean over the batch; `target` [E, B] is of `backup`."""
        q = self.q(params, sample.obs.critic, sample.action)
        loss = ((q - target) ** 2).mean(1).sum()
        return loss, {"loss": loss, "q": q.mean()}

    def update(self, state: State, batch: Transition, after: Array) -> tuple[State, Metrics]:
        """A step of the critics and their targets on windows [B, 1, ...]; `after` [B, A] is what
        the policy does in their next observations."""
        sample = self.sample(state, batch)
        target = self.backup(state, sample, after)
        critic, metrics = descend(self.tx, self.loss, state.critic, sample, target)
        moved = optax.incremental_update(critic.params, state.target, self.tau)
        return state._replace(critic=critic, target=moved), metrics

    def value(self, state: State, obs: Obs, action: Array) -> Array:
        """Of observations as recorded (leaves [B, ...]), where the policy does `action` [B, A]:
        what each critic believes that it is worth [E, B]."""
        seen = self.scaled(state.obs, samples.views(obs))
        return self.q(state.target, seen.critic, action)


def acts(policy: Policy, params: Params, obs: Obs) -> Array:
    """What a policy does on each observation (leaves [S, ...]), as a task clips it [S, A].

    ValueError of one with a memory: what it does is no function of an observation.
    """
    carry, key = policy.init(params), jax.random.key(0)
    one = jax.tree.map(lambda x: x[0], obs)
    step = jax.make_jaxpr(lambda carry: policy.step(params, carry, one, key)[1])(carry).jaxpr
    if step.outvars != step.invars:  # TD3's has a carry, and hands it on as it was
        raise ValueError(
            "This policy remembers: fitted-Q evaluation takes policies that see only the present."
        )

    def act(obs: Obs) -> Array:
        return jnp.clip(policy.step(params, carry, obs, key)[0], -1, 1)

    return jax.lax.map(act, obs, batch_size=ROWS)
