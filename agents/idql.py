"""Implicit diffusion Q-learning (IDQL: Hansen-Estruch et al. 2023, arXiv:2304.10573), over plans:
values are learned of what was done alone, as IQL learns them, a flow or a diffusion imitates it,
and which of its plans is done is all that values say.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import chunks
from rl.chunks import Chunks, Macro
from rl.critics import Critic, Critics
from rl.guidance import Best, Cdsa, Doit
from rl.nets import MLP, apply
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Any  # the imitator's own
    critic: Critic  # of what is done of plans, by what the policy sees
    value: Trainable  # of what it sees


@dataclass(frozen=True)
class IDQL:
    """Hyperparameters of implicit diffusion Q-learning."""

    base: Any = None  # a flow or a diffusion, that of a run, or one that learns from nothing
    passes: int = 0  # of its network for a plan; 0: as many as it was made with
    guide: Best | Doit | Cdsa = Best()  # how values choose what is done
    expectile: float = 0.7  # of what was done, that a value is
    critics: Critics = Critics(normalise=False)  # the base measures what is seen
    lr: float = 3e-4  # of the value
    gamma: float = 0.99  # of a step, not a plan

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the base's own"),
            expectile=(0 < self.expectile < 1, "a share in (0, 1)"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
        )
        self.critics.require_raw(self)
        chunks.require(self, "learn", "a flow or a diffusion, among whose plans it chooses")
        if self.base is not None:
            self.guide.require(self.base, self.passes)

    @property
    def chunks(self) -> Chunks:
        """It plans as its base does."""
        return self.base.chunks

    @property
    def delay(self) -> int:
        return 1

    @property
    def ahead(self) -> int:
        """Steps of a window beside one."""
        return self.chunks.ahead

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    @property
    def value(self) -> MLP:
        return MLP((*self.critics.hidden, 1))

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, value_key, key = jax.random.split(key, 3)
        own = chunks.learner(self.base, base_key, obs, action, base)
        seen, plan = self.chunks.begin(own.scales)
        value = self.value.init(value_key, seen.reshape(-1))
        critic = self.critics.init(key, seen.reshape(-1), plan[: self.chunks.execute])
        return State(own, critic, trainable(value, self.tx))

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which does what its guide finds in either case."""
        return self.chunks.policy(self.guide.guided(self.base, self.passes, self.worth))

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the base."""
        return self.base.policy(True, action_dim), self.base.deploy(state.base)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the base, what it measures by, and the slow critics, which choose."""
        return self.base.deploy(state.base) | {"critic": state.critic.slow}

    def worth(self, params: Params, seen: Array, plan: Array) -> Array:
        """The least that slow critics expect [B] of what is done of plans [B, H, A]."""
        done = plan[:, : self.chunks.execute]
        return self.critics.judged(params["critic"], seen, done).min(0)

    def v(self, params: Params, seen: Array) -> Array:
        """The value [B] of being where this was seen [B, h, O]."""
        return apply(self.value, params, seen.reshape(len(seen), -1))[..., 0]

    def value_loss(self, params: Params, macro: Macro, worth: Array) -> tuple[Array, Metrics]:
        """Eq. 5 of IQL; `worth` [B] is of what was done."""
        value = self.v(params, macro.window.seen)
        above = worth - value
        loss = (jnp.abs(self.expectile - (above < 0)) * above**2).mean()
        return loss, {"value_loss": loss, "v": value.mean()}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step of the value, of the critics by the new value, and of the base, on windows
        [1, B, ...]."""
        macro = self.chunks.macro(
            state.base.scales, jax.tree.map(lambda x: x[0], batch), self.gamma
        )
        seen, plan = macro.window.seen, macro.window.chunk
        worth = self.worth({"critic": state.critic.slow}, seen, plan)
        value, m1 = descend(self.tx, self.value_loss, state.value, macro, worth)
        target = macro.reward + macro.discount * self.v(value.params, macro.next_seen)
        flat, done = seen.reshape(len(seen), -1), plan[:, : self.chunks.execute]
        critic, m2 = self.critics.step(state.critic, flat, done, target)
        base, m3 = self.base.learn(state.base, macro.window, key)
        return State(base, critic, value), m1 | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted, if these are the first: it goes on measuring
        by what it saw then."""
        return state._replace(base=chunks.measured(self.base, state.base, seen))
