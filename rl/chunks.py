"""Policies that plan some actions at a time: what they learn of, in which units, and how they act.

rl/executors.py and rl/realtime.py have what becomes of their plans.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from rl import executors, norm, realtime, samples
from rl.policy import Policy
from rl.returns import n_step, within
from rl.train import sound
from rl.types import Array, Key, Obs, Params, Transition

LEAST = 0.05  # std of an action, that it is measured by: a still joint's noise is no signal

# Of parameters, noise [1, H, A], what was seen [1, h, O], a key, and bounds [A], in those units; if
# it may be led, of the rl.realtime.Lead of a plan that is late too.
Draw = Callable[..., Array]
Begin = Callable[[Params], tuple[Array, Array]]  # what was seen and planned before anything was


def require(agent: Any, ability: str, what: str) -> None:
    """Raise ValueError unless an agent's base, if it has one, is able, does its plans one after
    another, and draws them in as many passes."""
    base, who = agent.base, type(agent).__name__
    if base is None:
        return
    if not (hasattr(base, "draw") and hasattr(base, ability)):
        mend = "name such a run with --base, or another agent with --agent"
        if hasattr(base, "base"):
            mend = "it was learned above a base itself, which may be named with --base"
        raise ValueError(f"{who} needs {what}, and {type(base).__name__} is none: {mend}.")
    if base.chunks.decay is not None or base.chunks.late:
        which = "late" if base.chunks.late else "decay"
        raise ValueError(
            f"{who} learns what a plan comes to that is done alone; its base was made with "
            f"--agent.chunks.{which}, so that plans overlap: imitate without."
        )
    try:
        base.settled(passes := getattr(agent, "passes", 0))
    except ValueError as error:
        raise ValueError(f"--agent.passes is {passes}: for this base {error}") from error


def learner(imitator: Any, key: Key, obs: Obs, action: Array, params: Params) -> Any:
    """Its state for one example of `obs` and `action` [A]: with `deploy`'s `params`, if any."""
    state = imitator.init(key, obs, action)
    return state if params is None else imitator.warm(state, params)


class Window(NamedTuple):
    """What to learn from steps that follow one another."""

    seen: Array  # [B, h, O] up to the present; before an episode began, its first again
    chunk: Array  # [B, H, A] from the present on; after it ended, its last again
    kept: Array  # [B, H] bool: the episode had come so far


def begun(over: Array) -> Array:
    """Where the episode [B, 1] began that goes on after steps [B, n], of which some were `over`."""
    rows = jnp.where(over, jnp.arange(over.shape[1]) + 1, 0)
    return rows.max(1, initial=0, keepdims=True)


def window(steps: Transition, history: int) -> Window:
    """Of windows [B, h - 1 + H, ...], whose present is their step h - 1: nothing of another
    episode."""
    obs, now = samples.views(steps.obs).policy, history - 1
    over = steps.terminated | steps.truncated
    length = jnp.arange(over.shape[1])
    rows = jnp.maximum(length[:history], begun(over[:, :now]))
    ended = jnp.cumsum(over[:, now:], 1) - over[:, now:]
    kept = ended == 0
    last = now + kept.sum(1) - 1
    taken = jnp.minimum(length[now:], last[:, None])
    return Window(
        jnp.take_along_axis(obs, rows[..., None], 1),
        jnp.take_along_axis(steps.action, taken[..., None], 1),
        kept,
    )


class Macro(NamedTuple):
    """The part of a plan that is done as one action of a longer step."""

    window: Window
    reward: Array  # [B] over the steps that were made, discounted
    discount: Array  # [B] of what comes after them: gamma to the power of their number, or 0
    next_seen: Array  # [B, h, O]
    obs: Array  # [B, O'] what the critic sees, not scaled
    next_obs: Array  # [B, O']


class Scales(NamedTuple):
    """What observations and actions are measured by."""

    obs: norm.Stats  # of what the policy sees [O]
    action: norm.Stats  # [A]


def scales(obs: Obs, action: Array) -> Scales:
    """Those of one example, before any is seen."""
    return Scales(norm.init(samples.views(obs).policy), norm.init(action))


def counted(before: Scales, seen: Transition) -> Scales:
    """With transitions [T, N, ...] counted."""
    obs = norm.update(before.obs, samples.views(seen.obs).policy)
    return Scales(obs, norm.update(before.action, seen.action))


def measured(agent: Any, state: Any, seen: Transition) -> Any:
    """An imitator's state with transitions [T, N, ...] counted in its scales, if these are none."""
    fresh, first = agent.observe(state, seen).scales, state.scales.obs.count < 1
    pick = lambda new, old: jnp.where(first, new, old)  # noqa: E731
    return state._replace(scales=jax.tree.map(pick, fresh, state.scales))


def unit(stats: norm.Stats) -> tuple[Array, Array]:
    """Mean and std [A] of actions."""
    return stats.mean, jnp.maximum(jnp.sqrt(stats.var), LEAST)


def bounds(stats: norm.Stats) -> tuple[Array, Array]:
    """Where actions end [A], in units of that."""
    mean, std = unit(stats)
    return (-1 - mean) / std, (1 - mean) / std


@dataclass(frozen=True)
class Chunks:
    """How an agent plans."""

    history: int = 1  # observations that it plans by
    horizon: int = 8  # actions in a plan
    execute: int = 4  # of these before the next plan; all of them: open loop
    decay: float | None = None  # plan at every tick and act as all plans do, exp(-decay i) the i-th
    late: int = 0  # ticks that a plan takes, at most; flows are then led on by the plan before

    def __post_init__(self) -> None:
        spare = self.horizon - self.execute if self.decay is None else 0
        sound(
            self,
            history=(self.history > 0, "a count of at least 1"),
            horizon=(self.horizon > 0, "a count of at least 1"),
            execute=(0 < self.execute <= self.horizon, "a count of at most the horizon"),
            decay=(self.decay is None or self.decay >= 0, "a number of at least 0, or None"),
            late=(
                0 <= self.late <= spare,
                f"a count from 0 to {spare}, horizon - execute, or 0 where decay is set",
            ),
        )

    @property
    def ahead(self) -> int:
        """Steps of a window beside one."""
        return self.history - 1 + self.horizon - 1

    def begin(self, measures: Scales) -> tuple[Array, Array]:
        """What was seen [h, O] and planned [H, A] before anything was."""
        seen, action = measures.obs.mean, measures.action.mean
        return jnp.zeros((self.history, *seen.shape)), jnp.zeros((self.horizon, *action.shape))

    def window(self, measures: Scales, steps: Transition) -> Window:
        """What to learn from windows [B, h - 1 + H or more, ...], in those units."""
        found = window(jax.tree.map(lambda x: x[:, : self.ahead + 1], steps), self.history)
        mean, std = unit(measures.action)
        return found._replace(
            seen=norm.normalise(measures.obs, found.seen), chunk=(found.chunk - mean) / std
        )

    def macro(self, measures: Scales, steps: Transition, gamma: float) -> Macro:
        """What to learn of values from the same windows, in those units."""
        now, end = self.history - 1, self.history - 1 + self.execute
        done = jax.tree.map(lambda x: x[:, now:end], steps)
        reward, discount, after = n_step(done, gamma)
        made = within(done).sum(1, keepdims=True)  # [B, 1]
        over = (steps.terminated | steps.truncated)[:, :now]
        before, later = (samples.views(x).policy for x in (steps.obs, done.next_obs))
        path = jnp.concatenate([before[:, : self.history], later], 1)
        rows = jnp.maximum(made + jnp.arange(self.history), begun(over))
        seen = jnp.take_along_axis(path, rows[..., None], 1)
        first = jax.tree.map(lambda x: x[:, 0], done.obs)
        return Macro(
            self.window(measures, steps),
            reward,
            discount,
            norm.normalise(measures.obs, seen),
            samples.views(first).critic,
            samples.views(after).critic,
        )

    def policy(self, draw: Draw, led: bool = False) -> Policy:
        """The policy of parameters with "scales" that draws its plans; late ones `led` or not."""

        def plan(params: Params, seen: Array, key: Key, *leads: Any) -> Array:
            mean, std = unit(params["scales"].action)
            noise_key, key = jax.random.split(key)
            noise = jax.random.normal(noise_key, (1, self.horizon, *mean.shape))
            ends = bounds(params["scales"].action)
            told = [x._replace(chunk=(x.chunk - mean) / std) for x in leads if led]
            return mean + std * draw(params, noise, seen[None], key, ends, *told)[0]

        return self.executed(plan, lambda params: self.begin(params["scales"]))

    def executed(self, plan: Callable[..., Array], begin: Begin) -> Policy:
        """The policy of parameters with "scales" that does what is planned."""

        def look(params: Params, obs: Obs) -> Array:
            return norm.normalise(params["scales"].obs, samples.views(obs).policy)

        if self.decay is not None:
            return executors.ensembled(plan, look, begin, self.decay)
        if self.late:
            return realtime.late(plan, look, begin, self.execute, self.late)
        return executors.receding(plan, look, begin, self.execute)
