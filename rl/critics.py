"""An ensemble that says what is worth what: of plans, or of the noise that they grow from.

Layer normalisation keeps it from believing too much of what it has not seen (RLPD: Ball et al.
2023, arXiv:2302.02948).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import optax

from rl import norm
from rl.nets import Q, apply
from rl.samples import views
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Params, Transition


class Critic(NamedTuple):
    """What is learned: leaves of the parameters [E, ...]."""

    net: Trainable
    slow: Params  # that targets are of
    obs: norm.Stats  # of what is seen [O]


@dataclass(frozen=True)
class Critics:
    """Hyperparameters of such an ensemble."""

    hidden: tuple[int, ...] = (256, 256)
    count: int = 2  # of them
    lr: float = 3e-4
    tau: float = 0.005  # share of them that targets take on a step
    normalise: bool = True  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            count=(self.count > 0, "a count of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
        )

    def require_raw(self, agent: Any) -> None:
        """Raise ValueError where they would measure what an agent's base has measured already."""
        if self.normalise:
            raise ValueError(
                f"{type(agent).__name__}'s critics see what its base has measured already: leave "
                "--agent.critics.normalise out."
            )

    @property
    def net(self) -> Q:
        return Q(self.hidden, layer_norm=True)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Array, given: Array) -> Critic:
        """Of an example of what is seen [O], and of what is judged, of any shape."""
        keys = jax.random.split(key, self.count)
        params = jax.vmap(self.net.init, (0, None, None))(keys, obs, given.reshape(-1))
        return Critic(trainable(params, self.tx), params, norm.init(obs))

    def q(self, params: Params, stats: norm.Stats, obs: Array, given: Array) -> Array:
        """The value [E, B] that each set of `params` gives what is judged [B, ...]; `obs` [B, O] is
        as it was seen."""
        seen = norm.normalise(stats, obs) if self.normalise else obs
        flat = given.reshape(len(given), -1)
        return jax.vmap(lambda params: apply(self.net, params, seen, flat)[..., 0])(params)

    def judged(self, params: Params, seen: Array, plan: Array) -> Array:
        """The value [E, B] of plans [B, H, A] where this was seen [B, h, O], as it is."""
        flat = seen.reshape(len(seen), -1)
        return self.q(params, norm.init(flat[0]), flat, plan)

    def loss(
        self, params: Params, stats: norm.Stats, obs: Array, given: Array, target: Array
    ) -> tuple[Array, Metrics]:
        """Mean squared error over ensemble and batch; `target` is [B], or [E, B] one for each."""
        q = self.q(params, stats, obs, given)
        loss = ((q - target) ** 2).mean()
        return loss, {"critic_loss": loss, "q": q.mean()}

    def step(
        self, critic: Critic, obs: Array, given: Array, target: Array
    ) -> tuple[Critic, Metrics]:
        """A step of its loss, and its targets' share of it."""
        net, metrics = descend(self.tx, self.loss, critic.net, critic.obs, obs, given, target)
        slow = optax.incremental_update(net.params, critic.slow, self.tau)
        return critic._replace(net=net, slow=slow), metrics

    def observe(self, critic: Critic, seen: Transition) -> Critic:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        return critic._replace(obs=norm.update(critic.obs, views(seen.obs).critic))
