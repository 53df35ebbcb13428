"""Policy-agnostic RL (PA-RL: Mark et al. 2024, arXiv:2412.06685): what a policy plans is improved
by the critics, the best of some plans moved uphill, and the policy is taught the outcome as it was
taught demonstrations: nothing is asked of it but that it imitates and draws.

Critics are those of the other agents here, and learn from the world's steps and from data alike.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rl import chunks, guidance
from rl.chunks import Chunks, Macro, Window
from rl.critics import Critic, Critics
from rl.generative import Bounds
from rl.policy import Policy
from rl.train import sound
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Any  # the imitator's own
    critic: Critic  # of what is done of plans, by what the policy sees
    updates: Array  # [] int32


@dataclass(frozen=True)
class PARL:
    """Hyperparameters of policy-agnostic RL."""

    base: Any = None  # a flow or a diffusion, that of a run, or one that learns from nothing
    passes: int = 0  # of its network for a plan; 0: as many as it was made with
    candidates: int = 8  # plans that are drawn, at least 2
    kept: int = 2  # of these, the best, that are moved uphill; in lessons what was done is the last
    climbs: int = 5  # steps uphill
    climb: float = 3e-4  # of a step, for each unit of slope of what actions are worth
    critics: Critics = Critics(normalise=False)  # the base measures what is seen
    gamma: float = 0.99  # of a step, not a plan
    delay: int = 4  # critic steps for each step of the base
    warm: int = 2_500  # critic steps before lessons are theirs: till then they are what was done

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the base's own"),
            candidates=(self.candidates > 1, "a count of at least 2"),
            kept=(1 < self.kept <= self.candidates, f"a count from 2 to {self.candidates}"),
            climbs=(self.climbs >= 0, "a count of at least 0"),
            climb=(self.climb >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            warm=(self.warm >= 0, "a count of at least 0"),
        )
        self.critics.require_raw(self)
        chunks.require(self, "learn", "a flow or a diffusion, which is taught better plans")

    @property
    def chunks(self) -> Chunks:
        """It plans as its base does."""
        return self.base.chunks

    @property
    def ahead(self) -> int:
        """Steps of a window beside one."""
        return self.chunks.ahead

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, key = jax.random.split(key)
        own = chunks.learner(self.base, base_key, obs, action, base)
        seen, plan = self.chunks.begin(own.scales)
        done = plan[: self.chunks.execute]
        return State(own, self.critics.init(key, seen.reshape(-1), done), jnp.int32(0))

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which does the best of its plans in either case."""
        return self.chunks.policy(self.best)

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the base."""
        return self.base.policy(True, action_dim), self.base.deploy(state.base)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the base, what it measures by, and the critics."""
        return self.base.deploy(state.base) | {"critic": state.critic.net.params}

    def worth(self, params: Params, seen: Array, plan: Array) -> Array:
        """What critics expect on average [B] of what is done of plans [B, H, A]."""
        done = plan[:, : self.chunks.execute]
        return self.critics.judged(params["critic"], seen, done).mean(0)

    def several(self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        """The best plans [kept, B, H, A], best first, of those that the base draws."""
        draw = self.base.settled(self.passes).draw
        plans = guidance.candidates(draw, params, noise, seen, key, bounds, self.candidates)
        worth = lambda plan: self.worth(params, seen, plan)  # noqa: E731
        return guidance.top(plans, jax.lax.map(worth, plans), self.kept)

    def moved(
        self, params: Params, plans: Array, seen: Array, bounds: Bounds
    ) -> tuple[Array, Array]:
        """Plans [n, B, H, A] moved uphill, and what they are worth [n, B]."""
        worth = lambda plan: self.worth(params, seen, plan)  # noqa: E731
        # A step is of actions, and slopes are of these in the base's units.
        size = self.climb / chunks.unit(params["scales"].action)[1] ** 2
        return guidance.uphill(worth, plans, size, self.climbs, bounds)

    def best(self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        """The best [B, H, A] of the best, moved uphill."""
        plans = self.several(params, noise, seen, key, bounds)
        return guidance.chosen(*self.moved(params, plans, seen, bounds))

    def backup(self, state: State, macro: Macro, key: Key) -> Array:
        """Target [B]: what slow critics make of the next plan that would be done now."""
        noise_key, key = jax.random.split(key)
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        ends = chunks.bounds(state.base.scales.action)
        plan = self.best(self.deploy(state), noise, macro.next_seen, key, ends)
        worth = self.worth({"critic": state.critic.slow}, macro.next_seen, plan)
        return macro.reward + macro.discount * worth

    def lesson(self, state: State, window: Window, key: Key) -> Window:
        """What the base is to learn in a window's place: one of its best plans and of what was
        done, moved uphill, the likelier the more it is worth."""
        noise_key, draw_key, key = jax.random.split(key, 3)
        params, ends = self.deploy(state), chunks.bounds(state.base.scales.action)
        noise = jax.random.normal(noise_key, window.chunk.shape)
        plans = self.several(params, noise, window.seen, draw_key, ends)
        plans = plans.at[-1].set(window.chunk)
        plans, worth = self.moved(params, plans, window.seen, ends)
        pick = jax.random.categorical(key, worth, axis=0)
        plan = guidance.chosen(plans, jax.nn.one_hot(pick, self.kept, axis=0))
        own = (pick < self.kept - 1)[:, None]  # which no end of an episode has cut
        return window._replace(chunk=plan, kept=window.kept | own)

    def learn(self, state: State, now: tuple[Transition, Key]) -> tuple[State, Any]:
        """A step of the critics on windows [B, ...]."""
        macro = self.chunks.macro(state.base.scales, now[0], self.gamma)
        target, seen = self.backup(state, macro, now[1]), macro.window.seen
        done = macro.window.chunk[:, : self.chunks.execute]
        flat = seen.reshape(len(seen), -1)
        critic, metrics = self.critics.step(state.critic, flat, done, target)
        return state._replace(critic=critic), (macro, metrics)

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, ...], then one of the
        base on what is better than it where the last were, once they are warm."""
        critic_key, lesson_key, key = jax.random.split(key, 3)
        keys = jax.random.split(critic_key, self.delay)
        state, (macros, metrics) = jax.lax.scan(self.learn, state, (batch, keys))
        last = jax.tree.map(lambda x: x[-1], macros)
        taught = self.lesson(state, last.window, lesson_key)
        updates = state.updates + self.delay
        warm = updates > self.warm
        taught = jax.tree.map(lambda x, y: jnp.where(warm, x, y), taught, last.window)
        base, more = self.base.learn(state.base, taught, key)
        return state._replace(base=base, updates=updates), jax.tree.map(jnp.mean, metrics) | more

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted, if these are the first: it goes on measuring
        by what it saw then."""
        return state._replace(base=chunks.measured(self.base, state.base, seen))
