"""PPO for flows (ReinFlow: Zhang et al. 2025, arXiv:2505.22094): a network that learns how much
noise to add to each of a flow's steps makes of them Gaussians, whose likelihoods are known.

As the authors' code has it the log-density of a plan is the mean over its steps and numbers.  Times
are the flow's own where plans are drawn and where they are learned from.  Judged and driven, a flow
wanders no more.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from tyro.conf import Suppress

from rl import baseline, chunks, norm, samples
from rl.baseline import Baseline, Judged, Value
from rl.chunks import Chunks, Scales
from rl.generative import Flow, Spread
from rl.nets import MLP, apply
from rl.policy import Policy, memoryless
from rl.train import Trainable, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable  # of the flow and of its noise
    first: Params  # the flow as it was
    value: Value
    scales: Scales  # of the flow
    updates: Array  # [] int32


class Sample(NamedTuple):
    """What a gradient step needs of a plan; leaves [B, ...]."""

    seen: Array  # [B, h, O]
    states: Array  # [B, K + 1, H, A] from noise to plan
    old: Array  # log-density
    judged: Judged


@dataclass(frozen=True)
class ReinFlow:
    """Hyperparameters of PPO for flows."""

    base: Suppress[Any] = None  # a flow, that of --base RUN
    passes: int = 4  # of its network for a plan
    least: float = 0.05  # std of the noise of a step, in units of the flow's actions
    most: float = 0.15  # and at most
    hidden: tuple[int, ...] = (64, 64)  # of the noise
    lr: float = 1e-4  # of flow and noise
    baseline: Baseline = Baseline()  # of plans, within which rewards are summed
    clip: float = 0.01  # of the probability ratio
    epochs: int = 5
    minibatches: int = 8
    entropy_cost: float = 0.0  # of the noise, for each of its numbers
    stay: float = 0.0  # what the square of its distance from the flow as it was costs
    max_grad_norm: float = 1.0
    warm: int = 2  # updates in which the critic alone learns

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 < self.passes <= 1_000, "a count from 1 to 1,000"),
            least=(self.least > 0, "a number above 0"),
            most=(self.most >= self.least, f"a number of at least {self.least}, the least"),
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            clip=(self.clip > 0, "a number above 0"),
            epochs=(self.epochs > 0, "a count of at least 1"),
            minibatches=(self.minibatches > 0, "a count of at least 1"),
            stay=(self.stay >= 0, "a number of at least 0"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
            warm=(self.warm >= 0, "a count of at least 0"),
        )
        chunks.require(self, "leap", "a flow, whose steps have likelihoods once noise is added")
        if self.base is not None and not isinstance(self.base.flow, Flow):
            raise ValueError("ReinFlow goes a flow's steps, and a shortcut is told theirs.")

    @property
    def chunks(self) -> Chunks:
        """It plans as the flow does."""
        return self.base.chunks

    @property
    def flow(self) -> Flow:
        return self.base.settled(self.passes).flow

    def noise(self, horizon: int, action_dim: int) -> MLP:
        return MLP((*self.hidden, horizon * action_dim), jax.nn.swish)

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(self.lr))

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of a flow that
        has learned."""
        base_key, noise_key, key = jax.random.split(key, 3)
        base = base or self.base.deploy(self.base.init(base_key, obs, action))
        seen, plan = self.chunks.begin(base["scales"])
        told = jnp.concatenate([jnp.zeros(1), seen.reshape(-1)])
        actor = {"flow": base["net"], "noise": self.noise(*plan.shape).init(noise_key, told)}
        return State(
            actor=trainable(actor, self.tx),
            first=base["net"],
            value=self.baseline.init(key, samples.views(obs).critic),
            scales=base["scales"],
            updates=jnp.int32(0),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, a step of the world at a time: the flow's plans,
        without noise on the way."""
        return self.base.settled(self.passes).policy(explore, action_dim)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the flow, and what it measures by."""
        return {"net": state.actor.params["flow"], "scales": state.scales}

    def planner(self) -> Policy:
        """What learns in a `Planned` world, of parameters {"actor", "scales"}: plans [H, A], and
        what they went through."""

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, dict[str, Array]]:
            seen = norm.normalise(params["scales"].obs, samples.views(obs).policy)[None]
            mean, std = chunks.unit(params["scales"].action)
            ends = chunks.bounds(params["scales"].action)
            noise_key, key = jax.random.split(key)
            noise = jax.random.normal(noise_key, (1, self.chunks.horizon, *mean.shape))
            field, spread = self.fields(params["actor"], seen)
            states = self.flow.wander(field, spread, noise, key, ends)
            logp = self.mean(self.flow.densities(field, spread, states, ends))
            plan = mean + std * jnp.clip(states[-1, 0], *ends)
            return plan, {"states": states[:, 0], "logp": logp[0]}

        return memoryless(act)

    def planning(self, state: State) -> Params:
        """Parameters of `planner`."""
        return {"actor": state.actor.params, "scales": state.scales}

    def fields(self, params: Params, seen: Array) -> tuple[Any, Spread]:
        """The velocity, and the std of the noise, of plans x [B, H, A] at times [B], by what was
        seen [B, h, O]."""

        def spread(x: Array, time: Array) -> Array:
            told = jnp.concatenate([time[:, None], seen.reshape(len(seen), -1)], 1)
            raw = apply(self.noise(*x.shape[1:]), params["noise"], told).reshape(x.shape)
            low, high = jnp.log(self.least), jnp.log(self.most)
            return jnp.exp(low + (high - low) * (jnp.tanh(raw) + 1) / 2)

        return lambda x, time: self.base.field(params["flow"], x, seen, time), spread

    def mean(self, logp: Array) -> Array:
        """Log-density [B] of a plan: the mean of its steps' and of the numbers that are done."""
        return logp[:, :, : self.chunks.execute].mean((0, 2, 3))

    def likelihood(self, params: Params, scales: Scales, batch: Sample) -> tuple[Array, Array]:
        """Log-density [B] of plans, and the stds [K, B, H, A] of their noise."""
        ends, states = chunks.bounds(scales.action), jnp.swapaxes(batch.states, 0, 1)
        field, spread = self.fields(params, batch.seen)
        times = self.flow.time(jnp.arange(self.passes) / self.passes)
        std = jax.vmap(lambda x, t: spread(x, jnp.full(len(x), t)))(states[:-1], times)
        return self.mean(self.flow.densities(field, spread, states, ends)), std

    def loss(self, params: Params, state: State, batch: Sample) -> tuple[Array, Metrics]:
        """PPO's of the plans' likelihoods, less the noise's entropy; and the way from where the
        flow began, of the same noise."""
        logp, std = self.likelihood(params, state.scales, batch)
        advantage = baseline.normalised(batch.judged.advantage)
        loss = baseline.surrogate(logp, batch.old, advantage, self.clip)
        entropy = (jnp.log(std) + 0.5 * jnp.log(2 * jnp.pi * jnp.e)).mean()
        off = jnp.abs(logp - batch.old)
        metrics = {"policy_loss": loss, "entropy": entropy, "std": std.mean(), "off": off.mean()}
        metrics["clip_fraction"] = (jnp.abs(jnp.exp(logp - batch.old) - 1) > self.clip).mean()
        if self.stay:
            ways = [self.arrived(x, state, batch) for x in (params["flow"], state.first)]
            loss += self.stay * ((ways[0] - ways[1]) ** 2).mean()
        return loss - self.entropy_cost * entropy, metrics

    def arrived(self, net: Params, state: State, batch: Sample) -> Array:
        """Plans that a flow makes of the same noise without wandering."""
        given, ends = {"net": net, "scales": state.scales}, chunks.bounds(state.scales.action)
        flow, key = self.base.settled(self.passes), jax.random.key(0)
        return flow.draw(given, batch.states[:, 0], batch.seen, key, ends)

    def sample(self, state: State, batch: Transition, judged: Judged) -> Sample:
        """Every plan of [T, N, ...], flat [T * N, ...]."""
        seen = norm.normalise(state.scales.obs, samples.views(batch.obs).policy)
        sample = Sample(seen, batch.aux["states"], batch.aux["logp"], judged)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), sample)

    def update(
        self, state: State, batch: Transition, key: Key, shards: int = 1
    ) -> tuple[State, Metrics]:
        """All epochs on one batch of plans [T, N, ...] of `planner`, whose worlds lie in so many
        shards."""
        return baseline.improve(self, state, batch, key, shards)
