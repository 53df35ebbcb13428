"""Editing what an expressive policy plans (EXPO: Dong et al. 2025, arXiv:2507.07986): the policy
only imitates, a light Gaussian edits its plans by a little, and the best of plans and edited plans,
by the critics, is done: to act, and in what is learned of values.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import chunks, guidance, temperature
from rl.chunks import Chunks, Macro, Scales
from rl.critics import Critic, Critics
from rl.generative import Bounds
from rl.nets import StateGaussian, apply, tanh_normal
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Any  # the imitator's own
    edit: Trainable
    critic: Critic  # of what is done of plans, by what the policy sees
    log_alpha: Trainable


@dataclass(frozen=True)
class EXPO:
    """Hyperparameters of editing."""

    base: Any = None  # a flow or a diffusion, that of a run, or one that learns from nothing
    passes: int = 0  # of its network for a plan; 0: as many as it was made with
    candidates: int = 4  # plans, and as many that are edited, of which the best is done
    scale: float = 0.1  # of an action, that an edit changes it by at most
    hidden: tuple[int, ...] = (256, 256)  # of the editor
    critics: Critics = Critics(count=4, normalise=False)  # the base measures what is seen
    subset: int = 2  # critics drawn whenever plans are compared, of which the least counts
    lr: float = 3e-4  # of editor and temperature
    gamma: float = 0.99  # of a step, not a plan
    delay: int = 4  # critic steps for each step of base, editor and temperature
    alpha: float = 0.01  # the temperature to begin with
    target_entropy: float = -0.5  # nats, for each dimension of an edit

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the base's own"),
            candidates=(self.candidates > 0, "a count of at least 1"),
            scale=(0 < self.scale <= 2, "a share above 0, at most 2"),
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            subset=(0 < self.subset <= self.critics.count, "a count of some critics"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            alpha=(self.alpha > 0, "a number above 0"),
        )
        self.critics.require_raw(self)
        chunks.require(self, "learn", "a flow or a diffusion, whose plans it edits")

    @property
    def chunks(self) -> Chunks:
        """It plans as its base does."""
        return self.base.chunks

    @property
    def ahead(self) -> int:
        """Steps of a window beside one."""
        return self.chunks.ahead

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def editor(self, action_dim: int) -> StateGaussian:
        return StateGaussian(self.chunks.execute * action_dim, self.hidden)

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, edit_key, key = jax.random.split(key, 3)
        fresh = chunks.learner(self.base, base_key, obs, action, base)
        seen, plan = self.chunks.begin(fresh.scales)
        done = plan[: self.chunks.execute]
        told = jnp.concatenate([seen.reshape(-1), done.reshape(-1)])
        return State(
            base=fresh,
            edit=trainable(self.editor(action.shape[-1]).init(edit_key, told), self.tx),
            critic=self.critics.init(key, seen.reshape(-1), done),
            log_alpha=trainable(jnp.log(self.alpha), self.tx),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters, which does the best of some plans in either case."""
        return self.chunks.policy(self.best)

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the base."""
        return self.base.policy(True, action_dim), self.base.deploy(state.base)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the base, the editor, and the slow critics, which choose."""
        own = {"edit": state.edit.params, "critic": state.critic.slow}
        return self.base.deploy(state.base) | own

    def q(self, params: Params, seen: Array, plan: Array) -> Array:
        """Every critic's value [E, B] of what is done of plans [B, H, A] by what was seen."""
        return self.critics.judged(params, seen, plan[:, : self.chunks.execute])

    def some(self, params: Params, key: Key) -> Params:
        """A subset of the critics."""
        drawn = jax.random.choice(key, self.critics.count, (self.subset,), replace=False)
        return jax.tree.map(lambda x: x[drawn], params)

    def edited(
        self, params: Params, scales: Scales, seen: Array, plan: Array, key: Key
    ) -> tuple[Array, Array]:
        """Plans [B, H, A] of which what is done was edited, within bounds, and the log-density [B]
        of the edits, in units of actions."""
        done = plan[:, : self.chunks.execute]
        flat = [x.reshape(len(plan), -1) for x in (seen, done)]
        given = apply(self.editor(plan.shape[-1]), params, jnp.concatenate(flat, 1))
        raw, logp = tanh_normal(key, *given)
        edit = self.scale * raw.reshape(done.shape) / chunks.unit(scales.action)[1]
        moved = jnp.clip(done + edit, *chunks.bounds(scales.action))
        logp -= raw.shape[-1] * jnp.log(self.scale)
        return jnp.concatenate([moved, plan[:, self.chunks.execute :]], 1), logp

    def compared(
        self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds
    ) -> tuple[Array, Array]:
        """Plans, the base's and edited [2 n, B, H, A], and what each is worth [2 n, B]: the least
        that some critics expect."""
        draw_key, edit_key, key = jax.random.split(key, 3)
        draw = self.base.settled(self.passes).draw
        plans = guidance.candidates(draw, params, noise, seen, draw_key, bounds, self.candidates)

        def edit(plan: Array, key: Key) -> Array:
            return self.edited(params["edit"], params["scales"], seen, plan, key)[0]

        others = jax.vmap(edit)(plans, jax.random.split(edit_key, self.candidates))
        every, some = jnp.concatenate([plans, others]), self.some(params["critic"], key)
        return every, jax.lax.map(lambda plan: self.q(some, seen, plan).min(0), every)

    def best(self, params: Params, noise: Array, seen: Array, key: Key, bounds: Bounds) -> Array:
        """The best [B, H, A] of these."""
        return guidance.chosen(*self.compared(params, noise, seen, key, bounds))

    def backup(self, state: State, macro: Macro, key: Key) -> Array:
        """Target [B]: what the best of the next plans is worth, to those that chose it."""
        noise_key, key = jax.random.split(key)
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        ends = chunks.bounds(state.base.scales.action)
        _, worth = self.compared(self.deploy(state), noise, macro.next_seen, key, ends)
        return macro.reward + macro.discount * worth.max(0)

    def edit_loss(
        self, params: Params, state: State, macro: Macro, key: Key
    ) -> tuple[Array, Metrics]:
        """What all critics expect of edited plans of the base."""
        noise_key, draw_key, key = jax.random.split(key, 3)
        scales, seen = state.base.scales, macro.window.seen
        noise = jax.random.normal(noise_key, macro.window.chunk.shape)
        given, ends = self.base.deploy(state.base), chunks.bounds(scales.action)
        plan = self.base.settled(self.passes).draw(given, noise, seen, draw_key, ends)
        plan, logp = self.edited(params, scales, seen, jax.lax.stop_gradient(plan), key)
        q = self.q(state.critic.net.params, seen, plan).mean(0)
        loss = (jnp.exp(state.log_alpha.params) * logp - q).mean()
        return loss, {"edit_loss": loss, "entropy": -logp.mean()}

    def learn(self, state: State, now: tuple[Transition, Key]) -> tuple[State, Any]:
        """A step of the critics on windows [B, ...]."""
        macro = self.chunks.macro(state.base.scales, now[0], self.gamma)
        target, seen = self.backup(state, macro, now[1]), macro.window.seen
        done = macro.window.chunk[:, : self.chunks.execute]
        flat = seen.reshape(len(seen), -1)
        critic, metrics = self.critics.step(state.critic, flat, done, target)
        return state._replace(critic=critic), (macro, metrics)

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, ...], then one of base,
        editor and temperature on the last."""
        critic_key, base_key, key = jax.random.split(key, 3)
        keys = jax.random.split(critic_key, self.delay)
        state, (macros, m1) = jax.lax.scan(self.learn, state, (batch, keys))
        last = jax.tree.map(lambda x: x[-1], macros)
        base, m2 = self.base.update(state.base, jax.tree.map(lambda x: x[-1:], batch), base_key)
        edit, m3 = descend(self.tx, self.edit_loss, state.edit, state, last, key)
        wanted = self.target_entropy * self.chunks.execute * batch.action.shape[-1]
        log_alpha, m4 = descend(self.tx, temperature.loss, state.log_alpha, m3["entropy"], wanted)
        state = state._replace(base=base, edit=edit, log_alpha=log_alpha)
        return state, jax.tree.map(jnp.mean, m1) | m2 | m3 | m4

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted, if these are the first: it goes on measuring
        by what it saw then."""
        return state._replace(base=chunks.measured(self.base, state.base, seen))
