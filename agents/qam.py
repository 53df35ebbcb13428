"""Q-learning with adjoint matching (QAM: Li and Levine 2026, arXiv:2601.14234): a flow is tuned to
draw a plan the likelier the more it is worth, by regressing its velocity on what a step of a
stochastic way would have gained, told back along the flow that imitates (adjoint matching:
Domingo-Enrich et al. 2024, arXiv:2409.08861); no gradient passes through the tuned one's steps.

Which times a step asks its velocities at is as in the authors' code.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import chunks, samples
from rl.chunks import Chunks, Macro
from rl.critics import Critic, Critics
from rl.generative import Flow
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Any  # the flow that imitates, its own
    net: Trainable  # that which is tuned
    critic: Critic  # of what is done of plans
    updates: Array  # [] int32


@dataclass(frozen=True)
class QAM:
    """Hyperparameters of adjoint matching."""

    base: Any = None  # the flow: that of a run, or one that learns from nothing
    passes: int = 0  # of its network for a plan; 0: as many as it was made with
    sharpness: float = 1.0  # how much likelier a plan is by what it is worth: exp(sharpness Q)
    critics: Critics = Critics()
    doubt: float = 0.5  # stds over the critics that targets are below their mean
    lr: float = 3e-4  # of the flow that is tuned
    max_grad_norm: float = 1.0
    gamma: float = 0.99  # of a step, not a plan
    warm: int = 2_500  # updates before critics tune the flow

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the flow's own"),
            sharpness=(self.sharpness >= 0, "a number of at least 0"),
            doubt=(self.doubt >= 0, "a number of at least 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            warm=(self.warm >= 0, "a count of at least 0"),
        )
        chunks.require(self, "leap", "a flow, whose velocity it tunes")
        if self.base is not None and not isinstance(self.base.flow, Flow):
            raise ValueError("QAM tunes a flow's velocity at every time, and a shortcut leaps.")

    @property
    def chunks(self) -> Chunks:
        """It plans as the flow does."""
        return self.base.chunks

    @property
    def delay(self) -> int:
        return 1

    @property
    def ahead(self) -> int:
        """Steps of a window beside one."""
        return self.chunks.ahead

    @property
    def flow(self) -> Flow:
        return self.base.settled(self.passes).flow

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(self.lr))

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of a flow that
        has learned, and what is tuned begins as that."""
        base_key, key = jax.random.split(key)
        own = chunks.learner(self.base, base_key, obs, action, base)
        plan = jnp.zeros((self.chunks.execute, *action.shape))
        critic = self.critics.init(key, samples.views(obs).critic, plan)
        return State(own, trainable(own.slow, self.tx), critic, jnp.int32(0))

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, a flow that draws its plans in either case."""
        return self.base.settled(self.passes).policy(explore, action_dim)

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the flow that imitates."""
        return self.base.policy(True, action_dim), self.base.deploy(state.base)

    def deploy(self, state: State) -> Params:
        """All a policy needs: what was tuned, and what the flow measures by."""
        return {"net": state.net.params, "scales": state.base.scales}

    def q(self, params: Params, state: State, obs: Array, plan: Array) -> Array:
        """Every critic's value [E, B] of what is done of plans [B, H, A]."""
        return self.critics.q(params, state.critic.obs, obs, plan[:, : self.chunks.execute])

    def backup(self, state: State, macro: Macro, key: Key) -> Array:
        """Target [B]: what slow critics make of the next plan that would be drawn now."""
        noise_key, key = jax.random.split(key)
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        ends = chunks.bounds(state.base.scales.action)
        flow = self.base.settled(self.passes)
        plan = flow.draw(self.deploy(state), noise, macro.next_seen, key, ends)
        q = self.q(state.critic.slow, state, macro.next_obs, plan)
        return macro.reward + macro.discount * (q.mean(0) - self.doubt * q.std(0))

    def velocity(self, params: Params, x: Array, seen: Array, time: Array) -> Array:
        """Towards plans of what is partly noise [B, H, A], at a time [] from 0, noise, to 1."""
        when = jnp.full(len(x), self.flow.time(time))
        return self.flow.sign * self.base.field(params, x, seen, when)

    def spread(self, time: Array) -> Array:
        """Std of the noise of a step, for which where it ends tells nothing of where it began."""
        h = 1 / self.flow.steps
        return jnp.sqrt(2 * (1 - time + h) / (time + h))

    def wander(self, params: Params, slow: Params, seen: Array, noise: Array, key: Key) -> Array:
        """States [K + 1, B, H, A] of the tuned flow's stochastic way from noise; the last step is
        the imitating flow's, and adds none."""
        h = 1 / self.flow.steps
        times = jnp.arange(self.flow.steps - 1) * h

        def move(x: Array, now: tuple[Array, Key]) -> tuple[Array, Array]:
            time, key = now
            drift = 2 * self.velocity(params, x, seen, time) - x / (time + h)
            more = jnp.sqrt(h) * self.spread(time) * jax.random.normal(key, x.shape)
            x = x + h * drift + more
            return x, x

        x, states = jax.lax.scan(move, noise, (times, jax.random.split(key, len(times))))
        last = x + h * self.velocity(slow, x, seen, jnp.float32(1 - h))
        return jnp.concatenate([noise[None], states, last[None]])

    def adjoints(self, slow: Params, seen: Array, states: Array, last: Array) -> Array:
        """What a change of each state [K, B, H, A] but the last does to what `last` [B, H, A] is
        the slope of, along the imitating flow."""
        h = 1 / self.flow.steps
        later = jnp.arange(1, self.flow.steps + 1) * h

        def back(after: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
            x, time = now
            drift = lambda x: 2 * self.velocity(slow, x, seen, time) - x / time  # noqa: E731
            (pulled,) = jax.vjp(drift, x)[1](after)
            return after + h * pulled, after + h * pulled

        return jax.lax.scan(back, last, (states[:-1], later), reverse=True)[1]

    def loss(self, params: Params, state: State, macro: Macro, key: Key) -> tuple[Array, Metrics]:
        """Adjoint matching: the mean over the batch of squares summed over steps and numbers."""
        noise_key, key = jax.random.split(key)
        seen, slow = macro.window.seen, state.base.slow
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        states = self.wander(jax.lax.stop_gradient(params), slow, seen, noise, key)
        ends = chunks.bounds(state.base.scales.action)

        def worth(plan: Array) -> Array:
            plan = jnp.clip(plan, *ends)
            return self.q(state.critic.slow, state, macro.obs, plan).mean(0).sum()

        last = -self.sharpness * jax.grad(worth)(states[-1])
        adjoints = self.adjoints(slow, seen, states, last)

        def off(x: Array, i: Array, adjoint: Array) -> Array:
            time = i / self.flow.steps
            change = self.velocity(params, x, seen, time) - self.velocity(slow, x, seen, time)
            spread = self.spread(time)
            return ((2 * change / spread + spread * adjoint) ** 2).sum((1, 2)).mean()

        each = states[:-1], jnp.arange(self.flow.steps), adjoints
        loss = jax.lax.map(lambda now: off(*now), each).sum()
        return loss, {"match_loss": loss, "slope": jnp.abs(last).mean()}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step of both flows and the critics, all as they were, on windows [1, B, ...]; of the
        tuned flow only once critics are warm."""
        base_key, next_key, key = jax.random.split(key, 3)
        windows = jax.tree.map(lambda x: x[0], batch)
        macro = self.chunks.macro(state.base.scales, windows, self.gamma)
        target = self.backup(state, macro, next_key)
        done = macro.window.chunk[:, : self.chunks.execute]
        tuned, m1 = descend(self.tx, self.loss, state.net, state, macro, key)
        warm = state.updates >= self.warm
        net = jax.tree.map(lambda new, old: jnp.where(warm, new, old), tuned, state.net)
        critic, m2 = self.critics.step(state.critic, macro.obs, done, target)
        base, m3 = self.base.learn(state.base, macro.window, base_key)
        return State(base, net, critic, state.updates + 1), m1 | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics; a flow goes on measuring by
        what it saw first."""
        base = chunks.measured(self.base, state.base, seen)
        return state._replace(base=base, critic=self.critics.observe(state.critic, seen))
