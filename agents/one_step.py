"""A plan in one pass: a student learns which plan its teacher makes of the same noise (the one-step
policy of flow Q-learning, Park et al. 2025, arXiv:2502.02538, without its critic).
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import optax
from tyro.conf import Suppress

from rl import chunks
from rl.chunks import Chunks
from rl.denoisers import Dense, Net
from rl.generative import Bounds
from rl.nets import apply
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Params  # as they were given
    net: Trainable
    slow: Params  # an average of the net's, which acts


@dataclass(frozen=True)
class OneStep:
    """Hyperparameters of a student that plans in one pass."""

    base: Suppress[Any] = None  # its teacher, the agent of --base RUN
    net: Net = Dense()
    lr: float = 3e-4
    average: float = 0.999  # share of the average that a step leaves as it was
    spread: float = 0.3  # std of noise on what was seen, in its units: it is taught there too

    def __post_init__(self) -> None:
        sound(
            self,
            lr=(self.lr >= 0, "a number of at least 0"),
            average=(0 <= self.average < 1, "a share in [0, 1)"),
            spread=(self.spread >= 0, "a number of at least 0"),
        )
        able = hasattr(self.base, "draw") and not isinstance(self.base, OneStep)
        if self.base is not None and not able:
            name = type(self.base).__name__
            raise ValueError(f"OneStep learns from a flow or a diffusion, and {name} is neither.")

    @property
    def chunks(self) -> Chunks:
        """It plans as its teacher does."""
        return self.base.chunks

    @property
    def delay(self) -> int:
        return 1

    @property
    def ahead(self) -> int:
        """Steps of a window beside one."""
        return self.chunks.ahead

    @property
    def gamma(self) -> float:
        """No return is looked at."""
        return 1.0

    def settled(self, passes: int = 0) -> Self:
        """Itself: noise and what was seen tell all of a plan, in one pass."""
        return self

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, key = jax.random.split(key)
        base = base or self.base.deploy(self.base.init(base_key, obs, action))
        seen, noise = (x[None] for x in self.chunks.begin(base["scales"]))
        params = self.net.module.init(key, noise, jnp.zeros(1), seen)
        return State(base, trainable(params, self.tx), params)

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which draws its plans in either case."""
        return self.chunks.policy(self.draw)

    def draw(self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        """Plans that noise [B, H, A] becomes, of `deploy`'s parameters, by what was seen [B, h, O];
        all in their units."""
        return jnp.clip(self.plan(params["net"], noise, seen), *bounds)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the averaged net, and what its teacher measures by."""
        return {"net": state.slow, "scales": state.base["scales"]}

    def plan(self, params: Params, noise: Array, seen: Array) -> Array:
        """Plans [B, H, A] of noise, by what was seen [B, h, O], not clipped."""
        return apply(self.net.module, params, noise, jnp.zeros(len(noise)), seen)

    def loss(
        self, params: Params, noise: Array, seen: Array, taught: Array
    ) -> tuple[Array, Metrics]:
        """Mean squared error of plans [B, H, A] in the teacher's units."""
        loss = ((self.plan(params, noise, seen) - taught) ** 2).mean()
        return loss, {"distill_loss": loss}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step on windows [1, B, h - 1 + H, ...], of which only what is seen counts."""
        scales = state.base["scales"]
        window = self.chunks.window(scales, jax.tree.map(lambda x: x[0], batch))
        seen_key, noise_key, draw_key = jax.random.split(key, 3)
        seen = window.seen + self.spread * jax.random.normal(seen_key, window.seen.shape)
        noise = jax.random.normal(noise_key, window.chunk.shape)
        bounds = chunks.bounds(scales.action)
        taught = self.base.settled().draw(state.base, noise, seen, draw_key, bounds)
        net, metrics = descend(self.tx, self.loss, state.net, noise, seen, taught)
        slow = optax.incremental_update(net.params, state.slow, 1 - self.average)
        return state._replace(net=net, slow=slow), metrics

    def observe(self, state: State, seen: Transition) -> State:
        """As it was: it is measured by what its teacher saw."""
        return state
