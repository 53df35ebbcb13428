"""PPO for diffusions (DPPO: Ren et al. 2024, arXiv:2409.00588): each step of denoising is an action
of its own, a Gaussian, and the last few of them are learned.

As the authors' code has it the log-density of a step is the mean over the numbers that are done,
each within limits.  Plans are drawn as DDIM has it, with noise to learn and without to be judged.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from tyro.conf import Suppress

from rl import baseline, chunks, generative, norm, samples
from rl.baseline import Baseline, Judged, Value
from rl.chunks import Chunks, Scales
from rl.diffusion import Diffusion
from rl.generative import Bounds
from rl.policy import Policy, memoryless
from rl.train import Trainable, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition

LIMITS = -5.0, 2.0  # of the log-density of a number


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable  # of the last steps
    first: Params  # of those before, as they were given
    value: Value
    scales: Scales  # of the diffusion
    updates: Array  # [] int32


class Sample(NamedTuple):
    """What a gradient step needs of a step of denoising; leaves [B, ...]."""

    seen: Array  # [B, h, O]
    x: Array  # [B, H, A] before it
    after: Array  # [B, H, A]
    rung: Array  # [B] int32, of those that are learned, the noisiest being 0
    old: Array  # log-density
    judged: Judged  # of the plan


@dataclass(frozen=True)
class DPPO:
    """Hyperparameters of PPO for diffusions."""

    base: Suppress[Any] = None  # a diffusion, that of --base RUN
    passes: int = 5  # of its network for a plan
    learned: int = 5  # of these, the last, that are learned
    least: float = 0.1  # std of the noise of a step, in units of the diffusion's actions
    baseline: Baseline = Baseline()  # of plans, within which rewards are summed
    lr: float = 3e-5
    denoising_gamma: float = 0.99  # what an earlier step's part of an advantage is less
    clip: float = 0.01  # of the probability ratio, at the last step
    base_clip: float = 0.001  # at the first that is learned; it grows exponentially between
    epochs: int = 5
    minibatches: int = 4
    max_grad_norm: float = 1.0
    warm: int = 2  # updates in which the critic alone learns

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 < self.passes <= 1_000, "a count from 1 to 1,000"),
            learned=(0 < self.learned <= self.passes, f"a count up to passes, {self.passes}"),
            least=(self.least > 0, "a number above 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            denoising_gamma=(0 <= self.denoising_gamma <= 1, "a number in [0, 1]"),
            clip=(self.clip > 0, "a number above 0"),
            base_clip=(0 < self.base_clip <= self.clip, f"a number up to clip, {self.clip}"),
            epochs=(self.epochs > 0, "a count of at least 1"),
            minibatches=(self.minibatches > 0, "a count of at least 1"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
            warm=(self.warm >= 0, "a count of at least 0"),
        )
        chunks.require(self, "diffusion", "a diffusion, whose steps have likelihoods")

    @property
    def chunks(self) -> Chunks:
        """It plans as the diffusion does."""
        return self.base.chunks

    @property
    def diffusion(self) -> Diffusion:
        """As it is drawn to learn."""
        return replace(self.base.diffusion, steps=self.passes, eta=1.0)

    @property
    def stairs(self) -> tuple[Array, Array]:
        """The levels that the learned steps come from and go to."""
        ladder = jnp.asarray(self.diffusion.ladder[-self.learned - 1 :])
        return ladder[:-1], ladder[1:]

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(self.lr))

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of a diffusion
        that has learned."""
        base_key, key = jax.random.split(key)
        base = base or self.base.deploy(self.base.init(base_key, obs, action))
        return State(
            actor=trainable(base["net"], self.tx),
            first=base["net"],
            value=self.baseline.init(key, samples.views(obs).critic),
            scales=base["scales"],
            updates=jnp.int32(0),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, a step of the world at a time, without noise on the
        way."""

        def draw(params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
            calm = replace(self.diffusion, eta=0.0)
            return calm.sample(self.field(params, seen), noise, key, bounds)

        return self.chunks.policy(draw)

    def deploy(self, state: State) -> Params:
        """All a policy needs: both networks, and what they measure by."""
        return {"net": state.actor.params, "first": state.first, "scales": state.scales}

    def planning(self, state: State) -> Params:
        """Parameters of `planner`."""
        return self.deploy(state)

    def planner(self) -> Policy:
        """What learns in a `Planned` world: plans [H, A], and what they went through."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, dict[str, Array]]:
            seen = norm.normalise(params["scales"].obs, samples.views(obs).policy)[None]
            mean, std = chunks.unit(params["scales"].action)
            ends = chunks.bounds(params["scales"].action)
            noise_key, key = jax.random.split(key)
            noise = jax.random.normal(noise_key, (1, self.chunks.horizon, *mean.shape))
            field = self.field(params, seen)
            states = self.diffusion.wander(field, noise, key, self.least, ends)[:, 0]
            states = states[-self.learned - 1 :]
            rungs, seen = jnp.arange(self.learned), jnp.repeat(seen, self.learned, 0)
            logp = self.logp(params["net"], ends, seen, states[:-1], states[1:], rungs)
            return mean + std * jnp.clip(states[-1], *ends), {"states": states, "logp": logp}

        return memoryless(act)

    def field(self, params: Params, seen: Array) -> Any:
        """What is predicted of plans [B, H, A] at a level: by the network as it was given above
        those that are learned."""
        highest = self.stairs[0][0]

        def field(x: Array, level: Array) -> Array:
            one = lambda net: lambda: self.base.field(net, x, seen, level)  # noqa: E731
            return jax.lax.cond(level[0] > highest, one(params["first"]), one(params["net"]))

        return field

    def logp(
        self, net: Params, ends: Bounds, seen: Array, x: Array, after: Array, rung: Array
    ) -> Array:
        """Log-density [B] of learned steps of denoising."""

        def one(seen: Array, x: Array, after: Array, rung: Array) -> Array:
            field = lambda x, level: self.base.field(net, x, seen[None], level)  # noqa: E731
            level, to = (stair[rung] for stair in self.stairs)
            mean, std = self.diffusion.step(field, x[None], level, to, ends)
            each = generative.logp(after, mean[0], jnp.maximum(std, self.least))
            return jnp.clip(each, *LIMITS)[: self.chunks.execute].mean()

        return jax.vmap(one)(seen, x, after, rung)

    def loss(self, params: Params, state: State, batch: Sample) -> tuple[Array, Metrics]:
        """PPO's of steps of denoising: the earlier the less they may change, and gain."""
        ends = chunks.bounds(state.scales.action)
        logp = self.logp(params, ends, batch.seen, batch.x, batch.after, batch.rung)
        left = self.learned - 1 - batch.rung
        advantage = baseline.normalised(batch.judged.advantage) * self.denoising_gamma**left
        share = jnp.expm1(3 * (1 - left / max(self.learned - 1, 1))) / jnp.expm1(3.0)
        clip = self.base_clip + (self.clip - self.base_clip) * share
        loss = baseline.surrogate(logp, batch.old, advantage, clip)
        off = jnp.abs(logp - batch.old)
        beyond = (jnp.abs(jnp.exp(logp - batch.old) - 1) > clip).mean()
        return loss, {"policy_loss": loss, "off": off.mean(), "clip_fraction": beyond}

    def sample(self, state: State, batch: Transition, judged: Judged) -> Sample:
        """Every learned step of denoising of plans [T, N, ...], flat [T * N * K', ...]."""
        seen = norm.normalise(state.scales.obs, samples.views(batch.obs).policy)
        states = batch.aux["states"]  # [T, N, K' + 1, H, A]
        many = lambda x: jnp.repeat(x[:, :, None], self.learned, 2)  # noqa: E731
        rungs = jnp.broadcast_to(jnp.arange(self.learned), batch.aux["logp"].shape)
        sample = Sample(
            many(seen), states[:, :, :-1], states[:, :, 1:], rungs, batch.aux["logp"],
            jax.tree.map(many, judged),
        )  # fmt: skip
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[3:]), sample)

    def update(
        self, state: State, batch: Transition, key: Key, shards: int = 1
    ) -> tuple[State, Metrics]:
        """All epochs on one batch of plans [T, N, ...] of `planner`, whose worlds lie in so many
        shards."""
        return baseline.improve(self, state, batch, key, shards)
