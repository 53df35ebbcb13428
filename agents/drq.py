"""Soft actor-critic from pictures with random shifts (DrQ: Kostrikov et al. 2021,
arXiv:2004.13649).

Pictures are encoded by convolutions that the critics' loss alone moves; actor and critics each go
by a few features of these.  Pictures are shifted once (K = M = 1) and the actor learns of what the
critics have encoded, as in DrQ-v2 (Yarats et al. 2021, arXiv:2107.09645), whose actor is
deterministic.  Actor and critics also see what numbers there are beside pictures.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from rl import pixels, temperature
from rl.nets import Q, StateGaussian, apply, tanh_normal
from rl.pixels import Encoder, Sample, Seen, Trunk
from rl.policy import Policy
from rl.train import Trainable, descend, sound, trainable
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    actor: Trainable  # trunk and head
    critic: Trainable  # encoder, trunk and, leaves [E, ...], q
    target: Params  # of all of them
    log_alpha: Trainable
    blank: Array  # [frames - 1, H, W, C] uint8, what a policy remembers that has seen nothing


class Carry(NamedTuple):
    """What a policy remembers of its episode."""

    images: Array  # [frames - 1, H, W, C] uint8, oldest first
    begun: Array  # [] bool


@dataclass(frozen=True)
class DrQ:
    """Hyperparameters of DrQ."""

    frames: int = 3  # pictures, the newest among them, that are seen at once
    shift: int = 4  # pixels that pictures are moved by at most
    channels: tuple[int, ...] = (32, 32, 32, 32)  # of the encoder's convolutions
    strides: tuple[int, ...] = (2, 1, 1, 1)  # pixels between them, of each
    features: int = 50  # of the encoder's outputs that actor and critics go by
    hidden: tuple[int, ...] = (1024, 1024)
    critic_hidden: tuple[int, ...] = (1024, 1024)
    critics: int = 2
    lr: float = 1e-3  # of actor and temperature
    critic_lr: float = 1e-3  # of the encoder as well
    gamma: float = 0.99
    tau: float = 0.01  # share of critics and encoder that their targets take on a step
    delay: int = 2  # critic steps for each step of actor and temperature
    alpha: float = 0.1  # the temperature to begin with
    target_entropy: float = -1.0  # nats, for each dimension of the action

    def __post_init__(self) -> None:
        sound(
            self,
            frames=(self.frames > 0, "a count of at least 1"),
            shift=(self.shift >= 0, "a count of at least 0"),
            channels=(min(self.channels, default=0) > 0, "sizes of at least 1"),
            strides=(
                len(self.strides) == len(self.channels) and min(self.strides) > 0,
                "as many counts of at least 1 as channels has",
            ),
            features=(self.features > 0, "a count of at least 1"),
            hidden=(min(self.hidden, default=1) > 0, "sizes of at least 1"),
            critic_hidden=(min(self.critic_hidden, default=1) > 0, "sizes of at least 1"),
            critics=(self.critics > 0, "a count of at least 1"),
            lr=(self.lr >= 0, "a number of at least 0"),
            critic_lr=(self.critic_lr >= 0, "a number of at least 0"),
            gamma=(0 <= self.gamma <= 1, "a number in [0, 1]"),
            tau=(0 <= self.tau <= 1, "a number in [0, 1]"),
            delay=(self.delay > 0, "a count of at least 1"),
            alpha=(self.alpha > 0, "a number above 0"),
        )

    @property
    def history(self) -> int:
        """Steps before the first of a window, which are seen and not learned from."""
        return self.frames - 1

    @property
    def encoder(self) -> Encoder:
        return Encoder(self.channels, self.strides)

    @property
    def trunk(self) -> Trunk:
        return Trunk(self.features)

    @property
    def critic(self) -> Q:
        return Q(self.critic_hidden)

    def actor(self, action_dim: int) -> StateGaussian:
        return StateGaussian(action_dim, self.hidden)

    def init(self, key: Key, obs: Obs, action: Array) -> State:
        """State for one example of `obs` and `action` [A]."""
        keys, first = jax.random.split(key, 5), pixels.seen(obs)
        blank = jnp.zeros((self.history, *first.image.shape), jnp.uint8)
        image = pixels.stacked(jnp.concatenate([blank, first.image[None]]))
        encoder = self.encoder.init(keys[0], image)
        encoded = apply(self.encoder, encoder, image)
        known = jnp.concatenate([jnp.zeros(self.features), first.numbers])
        q_keys = jax.random.split(keys[1], self.critics)
        critic = {
            "encoder": encoder,
            "trunk": self.trunk.init(keys[2], encoded),
            "q": jax.vmap(self.critic.init, (0, None, None))(q_keys, known, action),
        }
        head = self.actor(action.shape[-1]).init(keys[3], known)
        actor = {"trunk": self.trunk.init(keys[4], encoded), "head": head}
        return State(
            actor=trainable(actor, optax.adam(self.lr)),
            critic=trainable(critic, optax.adam(self.critic_lr)),
            target=critic,
            log_alpha=trainable(jnp.log(self.alpha), optax.adam(self.lr)),
            blank=blank,
        )

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: sampled to learn, the mode to evaluate."""

        def step(params: Params, carry: Carry, obs: Obs, key: Key) -> tuple[Array, Carry, tuple]:
            now = pixels.seen(obs)
            before = jnp.where(carry.begun, carry.images, now.image)
            images = jnp.concatenate([before, now.image[None]])
            encoded = apply(self.encoder, params["encoder"], pixels.stacked(images))
            mean, log_std = self.outputs(params["actor"], encoded, now.numbers, action_dim)
            action = tanh_normal(key, mean, log_std)[0] if explore else jnp.tanh(mean)
            return action, Carry(images[1:], jnp.bool(True)), ()

        return Policy(lambda params: Carry(params["blank"], jnp.bool(False)), step)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the actor, the encoder and the shape of what it remembers."""
        encoder = state.critic.params["encoder"]
        return {"actor": state.actor.params, "encoder": encoder, "blank": state.blank}

    def outputs(
        self, params: Params, encoded: Array, numbers: Array, action_dim: int
    ) -> tuple[Array, Array]:
        """The actor's mean and log_std [..., A] of what is encoded [..., F]."""
        known = jnp.concatenate([apply(self.trunk, params["trunk"], encoded), numbers], -1)
        return apply(self.actor(action_dim), params["head"], known)

    def q(self, params: Params, encoded: Array, numbers: Array, action: Array) -> Array:
        """Every critic's value [E, ...] of what is encoded [..., F]."""
        known = jnp.concatenate([apply(self.trunk, params["trunk"], encoded), numbers], -1)
        one = lambda params: apply(self.critic, params, known, action)[..., 0]  # noqa: E731
        return jax.vmap(one)(params["q"])

    def encode(self, params: Params, obs: Seen) -> Array:
        return apply(self.encoder, params["encoder"], obs.image)

    def backup(self, state: State, sample: Sample, key: Key) -> Array:
        """Target [B]: the lowest of the target critics, which have their own encoder."""
        after, dim = sample.next_obs, sample.action.shape[-1]
        encoded = self.encode(state.critic.params, after)
        outputs = self.outputs(state.actor.params, encoded, after.numbers, dim)
        action, logp = tanh_normal(key, *outputs)
        q = self.q(state.target, self.encode(state.target, after), after.numbers, action).min(0)
        value = q - jnp.exp(state.log_alpha.params) * logp
        return sample.reward + sample.discount * value

    def critic_loss(
        self, params: Params, sample: Sample, target: Array
    ) -> tuple[Array, tuple[Array, Metrics]]:
        """Mean over critics and batch; also what is encoded [B, F], for the actor."""
        encoded = self.encode(params, sample.obs)
        q = self.q(params, encoded, sample.obs.numbers, sample.action)
        loss = jnp.square(q - target).mean()
        return loss, (encoded, {"critic_loss": loss, "q": q.mean()})

    def actor_loss(
        self, params: Params, state: State, sample: Sample, encoded: Array, key: Key
    ) -> tuple[Array, Metrics]:
        """Of what is `encoded` [B, F] already: nothing of it reaches the encoder."""
        numbers = sample.obs.numbers
        outputs = self.outputs(params, encoded, numbers, sample.action.shape[-1])
        action, logp = tanh_normal(key, *outputs)
        q = self.q(state.critic.params, encoded, numbers, action).min(0)
        loss = (jnp.exp(state.log_alpha.params) * logp - q).mean()
        return loss, {"actor_loss": loss, "entropy": -logp.mean()}

    def sample(self, batch: Transition, key: Key) -> Sample:
        """What to learn from windows of transitions [B, history + n, ...], pictures shifted."""
        found = pixels.sample(batch, self.history, self.gamma)
        keys = jax.random.split(key)
        obs, after = (
            x._replace(image=pixels.shift(k, x.image, self.shift))
            for x, k in zip((found.obs, found.next_obs), keys, strict=True)
        )
        return found._replace(obs=obs, next_obs=after)

    def update(self, state: State, batch: Transition, key: Key) -> tuple[State, Metrics]:
        """`delay` steps of the critics, one on each window batch [delay, B, history + n, ...], then
        one of actor and temperature on the last."""
        critic_key, actor_key = jax.random.split(key)

        def step(state: State, now: tuple[Transition, Key]) -> tuple[State, tuple]:
            shift_key, target_key = jax.random.split(now[1])
            sample = self.sample(now[0], shift_key)
            target, tx = self.backup(state, sample, target_key), optax.adam(self.critic_lr)
            critic, aux = descend(tx, self.critic_loss, state.critic, sample, target)
            target = optax.incremental_update(critic.params, state.target, self.tau)
            return state._replace(critic=critic, target=target), (sample, *aux)

        keys = jax.random.split(critic_key, self.delay)
        state, (samples, encoded, m1) = jax.lax.scan(step, state, (batch, keys))
        last, encoded = jax.tree.map(lambda x: x[-1], (samples, encoded))
        tx, dim = optax.adam(self.lr), batch.action.shape[-1]
        actor, m2 = descend(tx, self.actor_loss, state.actor, state, last, encoded, actor_key)
        told = m2["entropy"], self.target_entropy * dim
        log_alpha, m3 = descend(tx, temperature.loss, state.log_alpha, *told)
        state = state._replace(actor=actor, log_alpha=log_alpha)
        return state, jax.tree.map(jnp.mean, m1) | m2 | m3

    def observe(self, state: State, seen: Transition) -> State:
        return state
