"""Imitation by a flow: chunks of actions grow out of noise, so that several ways of doing a thing
stay several (Black et al. 2024, arXiv:2410.24164; flow matching as rl/generative.py has it).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import optax

from rl import chunks
from rl.chunks import Chunks, Scales, Window
from rl.denoisers import Dense, Net
from rl.generative import Bounds, Flow, Shortcut
from rl.nets import apply
from rl.policy import Policy
from rl.realtime import Lead, guided
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    net: Trainable
    slow: Params  # an average of the net's, which acts
    scales: Scales


@dataclass(frozen=True)
class FlowBC:
    """Hyperparameters of imitation by a flow."""

    chunks: Chunks = Chunks()
    net: Net = Dense()
    flow: Flow | Shortcut = Flow()
    lr: float = 3e-4
    average: float = 0.999  # share of the average that a step leaves as it was

    def __post_init__(self) -> None:
        sound(
            self,
            lr=(self.lr >= 0, "a number of at least 0"),
            average=(0 <= self.average < 1, "a share in [0, 1)"),
        )

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
        """One of whose plans noise and what was seen tell all: itself, or in so many passes."""
        return replace(self, flow=replace(self.flow, steps=passes or self.flow.steps))

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        scales = chunks.scales(obs, action)
        seen, chunk = (x[None] for x in self.chunks.begin(scales))
        size = jnp.zeros(1) if isinstance(self.flow, Shortcut) else None
        params = self.net.module.init(key, chunk, jnp.zeros(1), seen, size)
        return State(trainable(params, self.tx), params, scales)

    def warm(self, state: State, params: Params) -> State:
        """`state` with the net and scales of `deploy`'s `params`."""
        net = trainable(params["net"], self.tx)
        return state._replace(net=net, slow=net.params, scales=params["scales"])

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which draws its plans in either case."""
        return self.chunks.policy(self.draw, led=True)

    def draw(
        self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds, *leads: Lead
    ) -> Array:
        """Plans that noise [B, H, A] becomes, of `deploy`'s parameters, by what was seen [B, h, O];
        all in their units, led on by what leads them."""
        field = lambda x, *told: self.field(params["net"], x, seen, *told)  # noqa: E731
        if leads and isinstance(self.flow, Flow):
            led = guided(self.flow, field, *leads)
            return self.flow.sample(led, noise, key, bounds)
        return self.flow.sample(field, noise, key, bounds)

    def score(self, params: Params, seen: Array, plan: Array, blur: float) -> Array:
        """Where plans [B, H, A] are likelier by what was seen [B, h, O]: the slope of the
        log-density that those of the data have, noise of this std being added."""
        field = lambda x, *told: self.field(params["net"], x, seen, *told)  # noqa: E731
        return self.flow.score(field, plan, blur)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the averaged net and what it measures by."""
        return {"net": state.slow, "scales": state.scales}

    def field(
        self, params: Params, x: Array, seen: Array, time: Array, size: Array | None = None
    ) -> Array:
        """Velocity of plans x [B, H, A] that are partly noise, by what was seen [B, h, O]."""
        return apply(self.net.module, params, x, time, seen, size)

    def leap(self, params: Params, noise: Array, seen: Array) -> Array:
        """What noise [B, H, A] becomes in a single step, not clipped."""
        whole = jnp.ones(len(noise))
        if isinstance(self.flow, Shortcut):
            return noise + self.field(params, noise, seen, 0 * whole, whole)
        return noise + self.flow.sign * self.field(params, noise, seen, self.flow.time(0 * whole))

    def loss(self, params: Params, slow: Params, window: Window, key: Key) -> tuple[Array, Metrics]:
        """Of the velocity of windows [B, ...], where they are of one episode."""
        fast = lambda x, *told: self.field(params, x, window.seen, *told)  # noqa: E731
        kept = window.kept[..., None]
        if isinstance(self.flow, Shortcut):
            teacher = lambda x, *told: self.field(slow, x, window.seen[: len(x)], *told)  # noqa: E731
            loss = self.flow.loss(fast, teacher, window.chunk, key, kept)
        else:
            loss = self.flow.loss(fast, window.chunk, key, kept)
        return loss, {"flow_loss": loss}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step on windows [1, B, h - 1 + H, ...]."""
        window = self.chunks.window(state.scales, jax.tree.map(lambda x: x[0], batch))
        return self.learn(state, window, key)

    def learn(self, state: State, window: Window, key: Key) -> tuple[State, Metrics]:
        """A step on what is to be planned [B, ...], in its units."""
        net, metrics = descend(self.tx, self.loss, state.net, state.slow, window, key)
        slow = optax.incremental_update(net.params, state.slow, 1 - self.average)
        return state._replace(net=net, slow=slow), metrics

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the scales."""
        return state._replace(scales=chunks.counted(state.scales, seen))
