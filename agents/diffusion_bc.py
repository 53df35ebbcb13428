"""Imitation by diffusion: chunks of actions are denoised out of noise, so that several ways of
doing a thing stay several (Diffusion Policy: Chi et al. 2023, arXiv:2303.04137).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import optax

from rl import chunks
from rl.chunks import Chunks, Scales, Window
from rl.denoisers import Dense, Net
from rl.diffusion import Diffusion
from rl.generative import Bounds
from rl.nets import apply
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    net: Trainable
    slow: Params  # an average of the net's, which acts
    scales: Scales


@dataclass(frozen=True)
class DiffusionBC:
    """Hyperparameters of imitation by diffusion."""

    chunks: Chunks = Chunks()
    net: Net = Dense()
    diffusion: Diffusion = Diffusion()
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
        """As DDIM has it, in so many passes: noise and what was seen tell all of a plan, of the
        same network."""
        steps = passes or self.diffusion.steps
        return replace(self, diffusion=replace(self.diffusion, eta=0.0, steps=steps))

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        scales = chunks.scales(obs, action)
        seen, chunk = (x[None] for x in self.chunks.begin(scales))
        params = self.net.module.init(key, chunk, jnp.zeros(1), seen)
        return State(trainable(params, self.tx), params, scales)

    def warm(self, state: State, params: Params) -> State:
        """`state` with the net and scales of `deploy`'s `params`."""
        net = trainable(params["net"], self.tx)
        return state._replace(net=net, slow=net.params, scales=params["scales"])

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which draws its plans in either case."""
        return self.chunks.policy(self.draw)

    def draw(self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        """Plans that noise [B, H, A] becomes, of `deploy`'s parameters, by what was seen [B, h, O];
        all in their units."""
        field = lambda x, level: self.field(params["net"], x, seen, level)  # noqa: E731
        return self.diffusion.sample(field, noise, key, bounds)

    def score(self, params: Params, seen: Array, plan: Array, blur: float) -> Array:
        """Where plans [B, H, A] are likelier by what was seen [B, h, O]: the slope of the
        log-density that those of the data have, noise of this std being added."""
        field = lambda x, level: self.field(params["net"], x, seen, level)  # noqa: E731
        return self.diffusion.score(field, plan, blur)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the averaged net and what it measures by."""
        return {"net": state.slow, "scales": state.scales}

    def field(self, params: Params, x: Array, seen: Array, level: Array) -> Array:
        """What is predicted of plans x [B, H, A] at levels of noise, by what was seen [B, h, O]."""
        return apply(self.net.module, params, x, level / self.diffusion.levels, seen)

    def loss(self, params: Params, window: Window, key: Key) -> tuple[Array, Metrics]:
        """Of the prediction for windows [B, ...], where they are of one episode."""
        field = lambda x, level: self.field(params, x, window.seen, level)  # noqa: E731
        loss = self.diffusion.loss(field, window.chunk, key, window.kept[..., None])
        return loss, {"diffusion_loss": loss}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step on windows [1, B, h - 1 + H, ...]."""
        window = self.chunks.window(state.scales, jax.tree.map(lambda x: x[0], batch))
        return self.learn(state, window, key)

    def learn(self, state: State, window: Window, key: Key) -> tuple[State, Metrics]:
        """A step on what is to be planned [B, ...], in its units."""
        net, metrics = descend(self.tx, self.loss, state.net, window, key)
        slow = optax.incremental_update(net.params, state.slow, 1 - self.average)
        return state._replace(net=net, slow=slow), metrics

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the scales."""
        return state._replace(scales=chunks.counted(state.scales, seen))
