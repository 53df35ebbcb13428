"""Diffusion steering (DSRL: Wagenmaker et al. 2025, arXiv:2506.15799): a flow or diffusion stays as
it is, and what is learned is which noise to give it.

"aliased": critics learn of what was done, demonstrations too, and others of noise by asking the
base what it makes of it.  "noise": critics learn of the noise alone, as SAC would.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from tyro.conf import Suppress

from rl import chunks, samples, temperature
from rl.chunks import Chunks, Macro
from rl.critics import Critic, Critics
from rl.executors import Queue
from rl.nets import StateGaussian, apply, tanh_normal
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Params  # as they were given
    actor: Trainable
    critic: Critic  # of what is done, or of noise
    alias: Critic  # of noise, where that is of what is done, and else unused, as its slow ones are
    log_alpha: Trainable
    steered: Array  # [] bool, whether anything was learned


@dataclass(frozen=True)
class DSRL:
    """Hyperparameters of steering."""

    base: Suppress[Any] = None  # a flow or a diffusion, that of --base RUN
    critics_of: Literal["aliased", "noise"] = "aliased"  # what is done and noise, or noise alone
    passes: int = 0  # of the base's network for a plan; 0: as many as it was made with
    bound: float = 1.5  # of the noise, in stds of what the base learned with
    alike: bool = False  # one action's noise for all of a plan, as of large models
    hidden: tuple[int, ...] = (256, 256)  # of the actor
    critics: Critics = Critics()
    lr: float = 3e-4  # of actor and temperature
    gamma: float = 0.99  # of a step, not a plan
    delay: int = 4  # critic steps for each step of actor and temperature
    alpha: float = 0.01  # the temperature to begin with: more, and it forgets what the base can do
    target_entropy: float = 0.0  # nats, for each dimension of the noise
    entropy_backup: bool = True  # targets hold the entropy of noise to come

    def __post_init__(self) -> None:
        sound(
            self,
            passes=(0 <= self.passes <= 1_000, "a count up to 1,000, or 0 for the base's own"),
            bound=(self.bound > 0, "a number above 0"),
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            alpha=(self.alpha > 0, "a number above 0"),
        )
        chunks.require(self, "draw", "a flow or a diffusion, whose noise it chooses")

    @property
    def chunks(self) -> Chunks:
        """It plans as its base does."""
        return self.base.chunks

    @property
    def ahead(self) -> int:
        """Steps of a window beside one: within them another plan begins, whose noise is known."""
        begins = self.chunks.execute - 1 if self.critics_of == "noise" else 0
        return self.chunks.ahead + begins

    @property
    def tx(self) -> optax.GradientTransformation:
        return optax.adam(self.lr)

    def chosen(self, action_dim: int) -> tuple[int, int]:
        """Shape of the noise that is chosen [H, A], or of one action's [1, A]."""
        return 1 if self.alike else self.chunks.horizon, action_dim

    def actor(self, action_dim: int) -> StateGaussian:
        rows, columns = self.chosen(action_dim)
        return StateGaussian(rows * columns, self.hidden)

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, actor_key, critic_key, key = jax.random.split(key, 4)
        base = base or self.base.deploy(self.base.init(base_key, obs, action))
        known, dim = samples.views(obs).critic, action.shape[-1]
        seen, plan = self.chunks.begin(base["scales"])
        deed = self.told(plan) if self.critics_of == "noise" else self.done(plan)
        return State(
            base=base,
            actor=trainable(self.actor(dim).init(actor_key, seen.reshape(-1)), self.tx),
            critic=self.critics.init(critic_key, known, deed),
            alias=self.critics.init(key, known, self.told(plan)),
            log_alpha=trainable(jnp.log(self.alpha), self.tx),
            steered=jnp.bool(False),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: noise sampled to learn, its mode to be judged.

        Until it has learned the base acts, of noise from N(0, 1).  To learn of noise, it tells that
        of the plan in hand, and whether this is a new one.
        """
        shape, tells = (self.chunks.horizon, action_dim), explore and self.critics_of == "noise"

        def plan(params: Params, seen: Array, key: Key) -> Array:
            drawn_key, noise_key, key = jax.random.split(key, 3)
            mean, std = chunks.unit(params["scales"].action)
            mode, log_std = apply(self.actor(action_dim), params["actor"], seen.reshape(-1))
            raw = tanh_normal(drawn_key, mode, log_std)[0] if explore else jnp.tanh(mode)
            drawn = jax.random.normal(noise_key, self.chosen(action_dim))
            noise = jnp.broadcast_to(drawn, shape)
            noise = jnp.where(params["steered"], self.whole(raw[None], action_dim)[0], noise)
            plans = self.made(params["base"], noise[None], seen[None], key)
            return jnp.concatenate([mean + std * plans[0], noise], -1)

        def begin(params: Params) -> tuple[Array, Array]:
            return self.chunks.begin(params["scales"])[0], jnp.zeros((shape[0], 2 * action_dim))

        acting = self.chunks.executed(plan, begin)

        def step(params: Params, carry: Queue, obs: Obs, key: Key) -> tuple[Array, Queue, Any]:
            both, carry, _ = acting.step(params, carry, obs, key)
            told = {"noise": carry.chunk[:, action_dim:], "begins": carry.t == 0}
            return both[:action_dim], carry, told if tells else ()

        return acting._replace(step=step)

    def beginner(self, state: State, action_dim: int) -> tuple[Policy, Params]:
        """Who acts before it has learned: the base, and it tells of its noise."""
        return self.policy(True, action_dim), self.deploy(state) | {"steered": jnp.bool(False)}

    def deploy(self, state: State) -> Params:
        """All a policy needs: the base's parameters, the actor's, and what the base measures by."""
        parts = {"base": state.base, "scales": state.base["scales"], "steered": state.steered}
        return parts | {"actor": state.actor.params}

    def made(self, base: Params, noise: Array, seen: Array, key: Key) -> Array:
        """What the base makes of noise [B, H, A], the same each time; no gradient passes."""
        ends = chunks.bounds(base["scales"].action)
        return jax.lax.stop_gradient(
            self.base.settled(self.passes).draw(base, noise, seen, key, ends)
        )

    def whole(self, raw: Array, action_dim: int) -> Array:
        """Noise [B, H, A] of what the actor gives, within [-1, 1]."""
        chosen = self.bound * raw.reshape(-1, *self.chosen(action_dim))
        return jnp.broadcast_to(chosen, (len(raw), self.chunks.horizon, action_dim))

    def act(self, params: Params, seen: Array, action_dim: int, key: Key) -> tuple[Array, Array]:
        """Sampled noise [B, H, A] and the log-density [B] of what was chosen."""
        mean, log_std = apply(self.actor(action_dim), params, seen.reshape(len(seen), -1))
        raw, logp = tanh_normal(key, mean, log_std)
        return self.whole(raw, action_dim), logp - mean.shape[-1] * jnp.log(self.bound)

    def done(self, plan: Array) -> Array:
        """What is done of a plan [..., H, A]."""
        return plan[..., : self.chunks.execute, :]

    def told(self, noise: Array) -> Array:
        """What critics are told of noise [..., H, A]."""
        return noise[..., : self.chosen(noise.shape[-1])[0], :]

    def deed(self, state: State, noise: Array, seen: Array, key: Key) -> Array:
        """What the main critics judge where the base is given noise [B, H, A]."""
        if self.critics_of == "noise":
            return self.told(noise)
        return self.done(self.made(state.base, noise, seen, key))

    def backup(self, state: State, macro: Macro, key: Key) -> Array:
        """Target [B]: the least that target critics expect of what the actor chooses next."""
        act_key, key = jax.random.split(key)
        dim = macro.window.chunk.shape[-1]
        noise, logp = self.act(state.actor.params, macro.next_seen, dim, act_key)
        deed = self.deed(state, noise, macro.next_seen, key)
        q = self.critics.q(state.critic.slow, state.critic.obs, macro.next_obs, deed).min(0)
        alpha = jnp.exp(state.log_alpha.params) if self.entropy_backup else 0.0
        return macro.reward + macro.discount * (q - alpha * logp)

    def actor_loss(
        self, params: Params, state: State, macro: Macro, key: Key
    ) -> tuple[Array, Metrics]:
        """By the least that critics of noise expect."""
        critic = state.critic if self.critics_of == "noise" else state.alias
        noise, logp = self.act(params, macro.window.seen, macro.window.chunk.shape[-1], key)
        q = self.critics.q(critic.net.params, critic.obs, macro.obs, self.told(noise)).min(0)
        loss = (jnp.exp(state.log_alpha.params) * logp - q).mean()
        return loss, {"actor_loss": loss, "entropy": -logp.mean()}

    def begun(self, steps: Transition) -> Transition:
        """Windows [B, L, ...] from where a plan begins, `execute` - 1 shorter, if that is asked."""
        if self.critics_of == "aliased":
            return steps
        now, length = self.chunks.history - 1, steps.reward.shape[1]
        first = steps.aux["begins"][:, now : now + self.chunks.execute].argmax(1)
        rows = first[:, None] + jnp.arange(length - self.chunks.execute + 1)
        return jax.tree.map(jax.vmap(lambda x, i: x[i]), steps, jax.tree.map(lambda _: rows, steps))

    def taught(self, state: State, macro: Macro, key: Key) -> tuple[Critic, Metrics]:
        """A step of the critics of noise: it is worth what the base makes of it."""
        noise_key, key = jax.random.split(key)
        plan = macro.window.chunk
        chosen = jax.random.normal(noise_key, self.told(plan).shape)
        deed = self.deed(state, jnp.broadcast_to(chosen, plan.shape), macro.window.seen, key)
        worth = self.critics.q(state.critic.net.params, state.critic.obs, macro.obs, deed)
        alias, metrics = self.critics.step(state.alias, macro.obs, chosen, worth)
        return alias, {"alias_loss": metrics["critic_loss"]}

    def learn(self, state: State, now: tuple[Transition, Key]) -> tuple[State, Any]:
        """A step of all critics on windows [B, ...]."""
        steps, (next_key, key) = self.begun(now[0]), jax.random.split(now[1])
        macro = self.chunks.macro(state.base["scales"], steps, self.gamma)
        given = self.done(macro.window.chunk)
        if self.critics_of == "noise":
            given = self.told(steps.aux["noise"][:, self.chunks.history - 1])
        target = self.backup(state, macro, next_key)
        critic, metrics = self.critics.step(state.critic, macro.obs, given, target)
        state = state._replace(critic=critic)
        if self.critics_of == "aliased":
            alias, more = self.taught(state, macro, key)
            state, metrics = state._replace(alias=alias), metrics | more
        return state, (macro, metrics)

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, ...], then one of actor
        and temperature on the last."""
        *keys, key = jax.random.split(key, self.delay + 1)
        state, (macros, m1) = jax.lax.scan(self.learn, state, (batch, jnp.stack(keys)))
        last = jax.tree.map(lambda x: x[-1], macros)
        actor, m2 = descend(self.tx, self.actor_loss, state.actor, state, last, key)
        rows, columns = self.chosen(batch.action.shape[-1])
        wanted = self.target_entropy * rows * columns
        log_alpha, m3 = descend(self.tx, temperature.loss, state.log_alpha, m2["entropy"], wanted)
        state = state._replace(actor=actor, log_alpha=log_alpha, steered=jnp.bool(True))
        return state, jax.tree.map(jnp.mean, m1) | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in what the critics measure by."""
        critic, alias = (self.critics.observe(x, seen) for x in (state.critic, state.alias))
        return state._replace(critic=critic, alias=alias)
