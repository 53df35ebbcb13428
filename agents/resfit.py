"""Residual off-policy fine-tuning of any policy (ResFiT: Ankile et al. 2025, arXiv:2509.19301).

A base that stays as it is, chunks and all, acts; at every step an actor that is shown what the base
does adds a little to it, and learns with RLPD's critics (arXiv:2302.02948) of the sums.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from tyro.conf import Suppress

from rl import norm, residual
from rl.heads import MSE, Head
from rl.nets import MLP, Q, apply
from rl.policy import Policy, memoryless
from rl.residual import BASE, Part
from rl.returns import n_step
from rl.samples import Views, views
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Params  # as they were given
    actor: Trainable
    target_actor: Params
    critic: Trainable  # leaves of the parameters [E, ...]
    target: Params  # leaves [E, ...]
    obs: norm.Stats  # of both views
    steps: Array  # [] int32 of the critics
    passed: Array  # [] bool, whether what is learned is added when nobody explores


class Sample(NamedTuple):
    """A window of steps as one: leaves [B, ...]."""

    obs: Views
    base: Array  # what the base did
    action: Array  # the sum that was asked for, not clipped
    reward: Array  # summed over the window
    discount: Array  # of what comes after it
    next_obs: Views
    next_base: Array


@dataclass(frozen=True)
class ResFiT:
    """Hyperparameters of residual fine-tuning."""

    base: Suppress[Any] = None  # an agent, that of --base RUN
    scale: float = 0.1  # of an action, that is added to the base's at most
    hidden: tuple[int, ...] = (256, 256)  # of the actor
    critic_hidden: tuple[int, ...] = (256, 256)
    critics: int = 2
    subset: int = 0  # critics drawn for each target, of which the lowest counts; 0: all
    head: Head = MSE()  # what of a return they predict
    lr: float = 1e-4  # of the actor
    critic_lr: float = 3e-4
    max_grad_norm: float = 1.0
    gamma: float = 0.97
    tau: float = 0.005  # share of the networks that their targets take on a step
    delay: int = 4  # critic steps for each step of the actor
    warm: int = 6_000  # critic steps before the actor's first
    l2: float = 0.1  # what the square of what is added costs the actor
    exploration: float = 0.05  # std of the noise on actions, at most: an episode's own share of it
    alone: float = 0.2  # share of the episodes in which the base acts without what is learned
    smoothing: float = 0.02  # std of the noise on the target's action
    smoothing_clip: float = 0.3
    normalise: bool = True  # observations, by running statistics

    def __post_init__(self) -> None:
        sound(
            self,
            scale=(0 < self.scale <= 2, "a share above 0, at most 2"),
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            critics=(self.critics > 0, "a count of at least 1"),
            subset=(0 <= self.subset <= self.critics, "a count of some critics, or 0 for all"),
            lr=(self.lr >= 0, "a number of at least 0"),
            critic_lr=(self.critic_lr >= 0, "a number of at least 0"),
            max_grad_norm=(self.max_grad_norm > 0, "a number above 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            warm=(self.warm >= 0, "a count of at least 0"),
            l2=(self.l2 >= 0, "a number of at least 0"),
            exploration=(self.exploration >= 0, "a number of at least 0"),
            alone=(0 <= self.alone < 1, "a share in [0, 1)"),
            smoothing=(self.smoothing >= 0, "a number of at least 0"),
            smoothing_clip=(self.smoothing_clip >= 0, "a number of at least 0"),
        )

    def actor(self, action_dim: int) -> MLP:
        """It adds nothing before it has learned."""
        return MLP((*self.hidden, action_dim), out_init=jax.nn.initializers.zeros)

    @property
    def critic(self) -> Q:
        return Q(self.critic_hidden, self.head.outputs, layer_norm=True)

    def tx(self, lr: float) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.max_grad_norm), optax.adam(lr))

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, actor_key, critic_key = jax.random.split(key, 3)
        seen = views(obs)
        actor = self.actor(action.shape[-1]).init(actor_key, residual.beside(seen, action).policy)
        critic_keys = jax.random.split(critic_key, self.critics)
        critic = jax.vmap(self.critic.init, (0, None, None))(critic_keys, seen.critic, action)
        return State(
            base=base or self.base.deploy(self.base.init(base_key, obs, action)),
            actor=trainable(actor, self.tx(self.lr)),
            target_actor=actor,
            critic=trainable(critic, self.tx(self.critic_lr)),
            target=critic,
            obs=norm.init(seen),
            steps=jnp.int32(0),
            passed=jnp.bool(self.alone == 0),
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: the base's actions and what is added."""
        base = self.base.policy(False, action_dim)
        return residual.residual(base, self.learned(explore, action_dim), self.scale)

    def learned(self, explore: bool, action_dim: int) -> Policy:
        """What is added, in units of `scale`, once it has passed.

        To explore, with noise: little in some episodes, so that a base which bears none succeeds in
        these (as worlds of FastTD3, arXiv:2505.22642); and with nothing learned in those `alone`.
        """

        def act(params: Params, obs: Obs, key: Key) -> tuple[Array, tuple[()]]:
            more = self.more(params["actor"], self.seen(params, obs), obs[BASE])
            return jnp.where(params["passed"], more, 0), ()

        def step(params: Params, part: Part, obs: Obs, key: Key) -> tuple[Array, Part, Any]:
            part_key, key = jax.random.split(key)
            part = residual.drawn(part, part_key, self.alone)
            more = self.more(params["actor"], self.seen(params, obs), obs[BASE])
            noise = part.level * self.exploration * jax.random.normal(key, more.shape)
            more = jnp.where(part.alone, 0, more) + noise / self.scale
            return more, part, {"alone": part.alone}

        return Policy(lambda params: residual.not_yet(), step) if explore else memoryless(act)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the base's parameters, the actor's and its normaliser."""
        stats = state.obs._replace(mean=state.obs.mean.policy, var=state.obs.var.policy)
        learned = {"actor": state.actor.params, "obs": stats, "passed": state.passed}
        return {"base": state.base, "learned": learned}

    def seen(self, params: Params, obs: Obs) -> Array:
        """What the actor sees [..., O] of an observation, by parameters that were deployed."""
        return self.scaled(params["obs"], views(obs).policy)

    def scaled(self, stats: norm.Stats, obs: Any) -> Any:
        return norm.normalise(stats, obs) if self.normalise else obs

    def more(self, params: Params, obs: Array, base: Array) -> Array:
        """What is added [..., A] to what the base does, in units of `scale`; `obs` is scaled."""
        net = self.actor(base.shape[-1])
        return jnp.tanh(apply(net, params, jnp.concatenate([obs, base], -1)))

    def q(self, params: Params, obs: Array, action: Array) -> Array:
        """Every critic's outputs [E, ..., K] of an action that the world takes."""
        action = jnp.clip(action, -1, 1)
        return jax.vmap(lambda params: apply(self.critic, params, obs, action))(params)

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B, ...] in the head's form: the lowest of a subset of the target critics."""
        draw_key, noise_key = jax.random.split(key)
        more = self.more(state.target_actor, sample.next_obs.policy, sample.next_base)
        noise = self.smoothing * jax.random.normal(noise_key, more.shape)
        noise = jnp.clip(noise, -self.smoothing_clip, self.smoothing_clip)
        target = state.target
        if self.subset:
            drawn = jax.random.choice(draw_key, self.critics, (self.subset,), replace=False)
            target = jax.tree.map(lambda x: x[drawn], target)
        action = sample.next_base + self.scale * more + noise
        outputs = self.q(target, sample.next_obs.critic, action)
        lowest = self.head.value(outputs).argmin(0)
        outputs = jnp.take_along_axis(outputs, lowest[None, :, None], axis=0)[0]
        none = jnp.zeros_like(sample.reward)
        return self.head.backup(outputs, sample.reward, sample.discount, none)

    def critic_loss(self, params: Params, sample: Sample, target: Array) -> tuple[Array, Metrics]:
        """Mean over critics and batch, as the paper has it; `target` is of `backup`."""
        outputs = self.q(params, sample.obs.critic, sample.action)
        loss = self.head.loss(outputs, target).mean()
        return loss, {"critic_loss": loss, "q": self.head.value(outputs).mean()}

    def actor_loss(self, params: Params, state: State, sample: Sample) -> tuple[Array, Metrics]:
        """What all critics make of the sum, and what it costs to add."""
        more = self.scale * self.more(params, sample.obs.policy, sample.base)
        q = self.head.value(self.q(state.critic.params, sample.obs.critic, sample.base + more))
        loss = self.l2 * (more**2).sum(-1).mean() - q.mean()
        return loss, {"actor_loss": loss, "added": jnp.abs(more).mean()}

    def sample(self, state: State, batch: Transition) -> Sample:
        """What to learn from windows of transitions [B, n, ...] of an `Assisted` world."""
        obs = jax.tree.map(lambda x: x[:, 0], batch.obs)
        reward, discount, after = n_step(batch, self.gamma)
        seen, then = (self.scaled(state.obs, views(x)) for x in (obs, after))
        action = batch.action[:, 0]
        return Sample(seen, obs[BASE], action, reward, discount, then, after[BASE])

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, n, ...], then one of
        the actor on the last, once the critics are `warm`."""
        every = jax.vmap(self.sample, (None, 0))(state, batch)

        def step(state: State, now: tuple[Sample, Key]) -> tuple[State, Metrics]:
            sample, key = now
            target = self.backup(state, sample, key)
            tx = self.tx(self.critic_lr)
            critic, metrics = descend(tx, self.critic_loss, state.critic, sample, target)
            slow = optax.incremental_update(critic.params, state.target, self.tau)
            return state._replace(critic=critic, target=slow, steps=state.steps + 1), metrics

        state, m1 = jax.lax.scan(step, state, (every, jax.random.split(key, self.delay)))
        last = jax.tree.map(lambda x: x[-1], every)
        actor, m2 = descend(self.tx(self.lr), self.actor_loss, state.actor, state, last)
        slow = optax.incremental_update(actor.params, state.target_actor, self.tau)
        ready = state.steps > self.warm
        learned, slow = jax.tree.map(
            lambda new, old: jnp.where(ready, new, old),
            (actor, slow),
            (state.actor, state.target_actor),
        )
        state = state._replace(actor=learned, target_actor=slow)
        return state, jax.tree.map(jnp.mean, m1) | m2

    def observe(self, state: State, seen: Transition) -> State:
        """With fresh transitions [T, N, ...] counted in the statistics."""
        if not self.normalise:
            return state
        return state._replace(obs=norm.update(state.obs, views(seen.obs)))
