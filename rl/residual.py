"""Doing what another policy does, and a little more (Johannink et al. 2019, arXiv:1812.03201;
Silver et al. 2018, arXiv:1812.06298).

`residual` is such a policy, for evaluator and robot.  `Assisted` is where its learned part learns:
an environment that shows what the base does next, at the end of an episode as well.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rl.env import Sized, State
from rl.policy import Carry, Policy
from rl.samples import Views
from rl.types import Array, Key, Obs, Params, PyTree

BASE = "base"  # the entry of an observation: what the base does [A]; no view has it
FEWEST = 10  # episodes of each kind, at least, that tell which is better
LATELY = 40  # episodes with what is learned, about: it changes, the base does not
ERRORS = 2  # standard errors of the difference that it is to be better by
FOLD = 3  # of a state's key, for the base: its halves and 2 are the environment's


class Both(NamedTuple):
    """What two policies carry."""

    base: Carry
    learned: Carry


def shown(obs: Obs, action: Array) -> Obs:
    """An observation and what the base does there."""
    return (obs if isinstance(obs, dict) else {"policy": obs}) | {BASE: action}


def hidden(obs: Obs) -> Obs:
    """The observation as it is without that."""
    left = {name: x for name, x in obs.items() if name != BASE}
    return left["policy"] if [*left] == ["policy"] else left


def beside(seen: Views, base: Array) -> Views:
    """Both views, with what the base does [..., A] behind them."""
    return Views(*(jnp.concatenate([x, base], -1) for x in seen))


def above(learned: Policy, scale: float) -> Policy:
    """What learns in an `Assisted` world: the base's action, and `scale` of what `learned` gives.

    The sum is not clipped: an agent is to learn of what it asked for.
    """

    def step(params: Params, carry: Carry, obs: Obs, key: Key) -> tuple[Array, Carry, PyTree]:
        more, carry, aux = learned.step(params, carry, obs, key)
        return obs[BASE] + scale * more, carry, aux

    return Policy(learned.init, step)


def residual(base: Policy, learned: Policy, scale: float) -> Policy:
    """The policy of parameters {"base", "learned"}: what any `base` does, and `scale` of what
    `learned` gives, which is shown both, within [-1, 1].  No gradient reaches the base.

    What it tells besides has what the base does as BASE."""
    added = above(learned, scale)

    def init(params: Params) -> Both:
        return Both(base.init(params["base"]), learned.init(params["learned"]))

    def step(params: Params, carry: Both, obs: Obs, key: Key) -> tuple[Array, Both, PyTree]:
        base_key, key = jax.random.split(key)
        frozen = jax.lax.stop_gradient(params["base"])
        action, then, _ = base.step(frozen, carry.base, obs, base_key)
        seen = shown(obs, jax.lax.stop_gradient(action))
        total, after, aux = added.step(params["learned"], carry.learned, seen, key)
        told = (aux if isinstance(aux, dict) else {}) | {BASE: action}
        return jnp.clip(total, -1, 1), Both(then, after), told

    return Policy(init, step)


class Sim(NamedTuple):
    """What an episode with a base carries."""

    own: Any  # of the environment
    carry: Carry  # of the base

    @property
    def told(self) -> Any:
        return self.own.told

    @property
    def command(self) -> Any:
        return self.own.command


@dataclass(frozen=True, eq=False)
class Assisted(Sized):
    """`env` with what `base` does next in its observations; its actions are sums, clipped here."""

    base: Policy
    params: Params  # the base's

    def reset(self, key: Key, context: PyTree = None) -> State:
        return self._shown(self.env.reset(key, context), self.base.init(self.params))

    def step(self, state: State, action: Array) -> State:
        after = self.env.step(self._own(state), jnp.clip(action, -1, 1))
        return self._shown(after, state.sim.carry)

    def restart(self, state: State, prepared: State | None = None) -> State:
        if prepared is not None:
            after = self.env.restart(self._own(state), self._own(prepared))
            begun = prepared.sim.carry, prepared.obs[BASE]
        else:
            after = self.env.restart(self._own(state))
            first = self._shown(after, self.base.init(self.params))
            begun = first.sim.carry, first.obs[BASE]
        kept = state.sim.carry, state.obs[BASE]
        carry, action = _chosen(state.done, begun, kept)
        return after._replace(sim=Sim(after.sim, carry), obs=shown(after.obs, action))

    def select(self, done: Array, fresh: State, state: State) -> State:
        own = self.env.select(done, self._own(fresh), self._own(state))
        carry, action = _chosen(
            done, (fresh.sim.carry, fresh.obs[BASE]), (state.sim.carry, state.obs[BASE])
        )
        return own._replace(sim=Sim(own.sim, carry), obs=shown(own.obs, action))

    def _own(self, state: State) -> State:
        return state._replace(sim=state.sim.own, obs=hidden(state.obs))

    def _shown(self, state: State, carry: Carry) -> State:
        """The environment's `state` once the base, carrying this, has told what it does there."""
        key = jax.random.fold_in(state.key, FOLD)
        action, carry, _ = self.base.step(self.params, carry, state.obs, key)
        return state._replace(sim=Sim(state.sim, carry), obs=shown(state.obs, action))


def _chosen(done: Array, fresh: PyTree, kept: PyTree) -> PyTree:
    return jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, kept)


class Part(NamedTuple):
    """How an episode is explored, drawn at its first step."""

    level: Array  # [] share of the noise; -1: not drawn yet
    alone: Array  # [] bool, the base acts without what is learned


def not_yet() -> Part:
    return Part(jnp.float32(-1), jnp.bool(False))


def drawn(part: Part, key: Key, alone: float) -> Part:
    """An episode's part: any share of the noise, and this share of the episodes alone."""
    level_key, key = jax.random.split(key)
    fresh = Part(jax.random.uniform(level_key), jax.random.uniform(key) < alone)
    return jax.tree.map(lambda new, old: jnp.where(part.level < 0, new, old), fresh, part)


class Trial(NamedTuple):
    """What episodes come to with what is learned, and without, explored alike."""

    sums: Array  # [N] of the episode in progress
    means: Array  # [2] without, of all; with, of late
    squares: Array  # [2] means of squares, likewise
    counts: Array  # [2] int32 episodes

    @property
    def passed(self) -> Array:
        """[] bool, it is better with it by standard errors of the two means' difference."""
        of = jnp.clip(self.counts, 1, jnp.array([jnp.iinfo(jnp.int32).max, 2 * LATELY - 1]))
        error2 = jnp.maximum(self.squares - self.means**2, 0) / of
        better = self.means[1] - self.means[0] >= ERRORS * jnp.sqrt(error2.sum())
        return (self.counts >= FEWEST).all() & better


def trial(worlds: int) -> Trial:
    return Trial(jnp.zeros(worlds), jnp.zeros(2), jnp.zeros(2), jnp.zeros(2, jnp.int32))


def tried(before: Trial, worth: Array, ended: Array, alone: Array) -> Trial:
    """With what fresh steps [T, N] of episodes that were `alone` or not are worth."""

    def step(now: Trial, seen: tuple[Array, Array, Array]) -> tuple[Trial, None]:
        worth, ended, alone = seen
        sums = now.sums + worth
        kinds = jnp.stack([ended & alone, ended & ~alone])  # [2, N]
        more = kinds.sum(1)
        counts = now.counts + more
        rate = more / jnp.maximum(counts, 1)
        rate = rate.at[1].max(more[1] / LATELY)  # as noisy as a mean of twice as many, less one

        def moved(mean: Array, of: Array) -> Array:
            fresh = jnp.where(kinds, of, 0).sum(1) / jnp.maximum(more, 1)
            return mean + jnp.minimum(rate, 1) * (fresh - mean)

        means, squares = moved(now.means, sums), moved(now.squares, sums**2)
        return Trial(jnp.where(ended, 0, sums), means, squares, counts), None

    return jax.lax.scan(step, before, (worth, ended, alone))[0]


def followed(base: Policy, params: Params, obs: Obs, key: Key) -> Array:
    """What the base would have done [T, A] along an episode's observations (leaves [T, ...])."""

    def tick(carry: Carry, now: tuple[Obs, Key]) -> tuple[Carry, Array]:
        action, carry, _ = base.step(params, carry, *now)
        return carry, action

    keys = jax.random.split(key, len(jax.tree.leaves(obs)[0]))
    return jax.lax.scan(tick, base.init(params), (obs, keys))[1]
