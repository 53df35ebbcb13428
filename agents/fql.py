"""Flow Q-learning (FQL: Park et al. 2025, arXiv:2502.02538), over plans: with as many actions done
of each it is QC-FQL (Li et al. 2025, arXiv:2507.07969).

A flow imitates what is in the data; a student makes in one pass what the flow makes of the same
noise, or better by the critics.  The authors' target critics average those of a step before.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import chunks, samples
from rl.chunks import Chunks, Macro
from rl.critics import Critic, Critics
from rl.generative import Bounds
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Any  # the flow's own
    student: Trainable
    critic: Critic  # of what is done of plans


@dataclass(frozen=True)
class FQL:
    """Hyperparameters of flow Q-learning."""

    base: Any = None  # the flow: that of a run, or one that learns from nothing
    passes: int = 0  # of the flow that the student follows; 0: as many as it was made with
    alpha: float = 10.0  # what it costs the student to plan otherwise than the flow
    normalise_q: bool = True  # alpha is in units of what actions are worth
    critics: Critics = Critics()
    least: Literal["mean", "min"] = "mean"  # of the critics, that targets believe
    lr: float = 3e-4  # of the student
    gamma: float = 0.99  # of a step, not a plan

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the flow's own"),
            alpha=(self.alpha >= 0, "a number of at least 0"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
        )
        chunks.require(self, "leap", "a flow, whose plans its student makes in one step")

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
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of a flow that
        has learned, and the student then begins as a single step of it."""
        base_key, key = jax.random.split(key)
        flow = chunks.learner(self.base, base_key, obs, action, base)
        plan = jnp.zeros((self.chunks.execute, *action.shape))
        critic = self.critics.init(key, samples.views(obs).critic, plan)
        return State(flow, trainable(flow.slow, self.tx), critic)

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which draws its plans in either case."""

        def draw(params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
            return jnp.clip(self.plan(params["net"], noise, seen), *bounds)

        return self.chunks.policy(draw)

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the flow."""
        return self.base.policy(True, action_dim), self.base.deploy(state.base)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the student, and what the flow measures by."""
        return {"net": state.student.params, "scales": state.base.scales}

    def plan(self, params: Params, noise: Array, seen: Array) -> Array:
        """The student's plans [B, H, A] of noise, by what was seen [B, h, O], not clipped."""
        return self.base.leap(params, noise, seen)

    def q(self, params: Params, state: State, obs: Array, plan: Array) -> Array:
        """Every critic's value [E, B] of what is done of plans [B, H, A]."""
        return self.critics.q(params, state.critic.obs, obs, plan[:, : self.chunks.execute])

    def backup(self, state: State, macro: Macro, key: Key) -> Array:
        """Target [B]: what the student plans next is worth to the target critics."""
        noise = jax.random.normal(key, macro.window.chunk.shape)
        plan = self.plan(state.student.params, noise, macro.next_seen)
        plan = jnp.clip(plan, *chunks.bounds(state.base.scales.action))
        q = self.q(state.critic.slow, state, macro.next_obs, plan)
        return macro.reward + macro.discount * (q.min(0) if self.least == "min" else q.mean(0))

    def student_loss(
        self, params: Params, state: State, macro: Macro, key: Key
    ) -> tuple[Array, Metrics]:
        """What its plans are worth, and their distance from the flow's of the same noise."""
        noise_key, key = jax.random.split(key)
        ends, seen = chunks.bounds(state.base.scales.action), macro.window.seen
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        flow, own = self.base.settled(self.passes), self.base.deploy(state.base)
        taught = flow.draw(own, noise, seen, key, ends)
        plan = self.plan(params, noise, seen)
        far = ((plan - jax.lax.stop_gradient(taught)) ** 2).mean()
        q = self.q(state.critic.net.params, state, macro.obs, jnp.clip(plan, *ends))
        unit = jax.lax.stop_gradient(jnp.abs(q.mean(0)).mean()) if self.normalise_q else 1.0
        loss = self.alpha * far - q.mean() / unit
        return loss, {"student_loss": loss, "off_flow": far}

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """A step of flow, critics and student, all as they were, on windows [1, B, ...]."""
        base_key, next_key, key = jax.random.split(key, 3)
        windows = jax.tree.map(lambda x: x[0], batch)
        macro = self.chunks.macro(state.base.scales, windows, self.gamma)
        base, m1 = self.base.update(state.base, batch, base_key)
        done = macro.window.chunk[:, : self.chunks.execute]
        target = self.backup(state, macro, next_key)
        critic, m2 = self.critics.step(state.critic, macro.obs, done, target)
        student, m3 = descend(self.tx, self.student_loss, state.student, state, macro, key)
        return State(base, student, critic), m1 | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics; a flow goes on measuring by
        what it saw first."""
        base = chunks.measured(self.base, state.base, seen)
        return state._replace(base=base, critic=self.critics.observe(state.critic, seen))
