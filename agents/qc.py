"""Q-chunking (QC: Li et al. 2025, arXiv:2507.07969): critics of plans choose among what a flow
draws, to act and to learn of what comes next.

QC-FQL, its sibling with a student in one pass, is agents/fql.py of plans.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax

from rl import chunks, guidance
from rl.chunks import Chunks, Draw, Macro
from rl.critics import Critic, Critics
from rl.policy import Policy
from rl.train import sound
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Any  # the flow's own
    critic: Critic  # of what is done of plans, by what the policy sees


@dataclass(frozen=True)
class QC:
    """Hyperparameters of Q-chunking."""

    base: Any = None  # the flow: that of a run, or one that learns from nothing
    passes: int = 0  # of its network for a plan; 0: as many as it was made with
    candidates: int = 8  # plans, of which the best is done
    critics: Critics = Critics(normalise=False)  # the flow measures what is seen
    gamma: float = 0.99  # of a step, not a plan

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the flow's own"),
            candidates=(self.candidates > 0, "a count of at least 1"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
        )
        self.critics.require_raw(self)
        chunks.require(self, "learn", "a flow or a diffusion, among whose plans it chooses")

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

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of a flow that
        has learned."""
        base_key, key = jax.random.split(key)
        flow = chunks.learner(self.base, base_key, obs, action, base)
        seen, plan = self.chunks.begin(flow.scales)
        done = plan[: self.chunks.execute]
        return State(flow, self.critics.init(key, seen.reshape(-1), done))

    @property
    def best(self) -> Draw:
        """The best of some plans, by what critics expect on average, of `deploy`'s parameters."""
        worth = lambda params, *what: self.q(params["critic"], *what).mean(0)  # noqa: E731
        return guidance.best_of(self.base.settled(self.passes).draw, worth, self.candidates)

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which does the best of some plans in either case."""
        return self.chunks.policy(self.best)

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the flow."""
        return self.base.policy(True, action_dim), self.base.deploy(state.base)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the flow, what it measures by, and the critics."""
        return self.base.deploy(state.base) | {"critic": state.critic.net.params}

    def q(self, params: Params, seen: Array, plan: Array) -> Array:
        """Every critic's value [E, B] of what is done of plans [B, H, A] by what was seen."""
        return self.critics.judged(params, seen, plan[:, : self.chunks.execute])

    def backup(self, state: State, macro: Macro, key: Key) -> Array:
        """Target [B]: what slow critics make of the next plan that would be done now."""
        noise_key, key = jax.random.split(key)
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        ends = chunks.bounds(state.base.scales.action)
        plan = self.best(self.deploy(state), noise, macro.next_seen, key, ends)
        q = self.q(state.critic.slow, macro.next_seen, plan).mean(0)
        return macro.reward + macro.discount * q

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step of flow and critics, both as they were, on windows [1, B, ...]."""
        base_key, key = jax.random.split(key)
        windows = jax.tree.map(lambda x: x[0], batch)
        macro = self.chunks.macro(state.base.scales, windows, self.gamma)
        base, m1 = self.base.update(state.base, batch, base_key)
        target = self.backup(state, macro, key)
        seen, done = macro.window.seen, macro.window.chunk[:, : self.chunks.execute]
        critic, m2 = self.critics.step(state.critic, seen.reshape(len(seen), -1), done, target)
        return State(base, critic), m1 | m2

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted, if these are the first: it goes on measuring
        by what it saw then."""
        return state._replace(base=chunks.measured(self.base, state.base, seen))
