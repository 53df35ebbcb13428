"""The environment contract: pure functions over one explicit state, written for one robot.

Callers vmap.  `terminated` and `truncated` are apart everywhere, and nothing resets by
itself: the rollout records a transition first and restarts after, so the observation in
which an episode really ended is always at hand.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from rl.types import Array, Key, Metrics, Obs, PyTree


class State(NamedTuple):
    """Everything an episode carries.  A restart replaces all of it but `context`."""

    sim: Any  # the environment's own pytree: physics, memory, randomised parameters
    context: PyTree  # terrain level, command range: the only thing that outlives an episode
    obs: Obs
    reward: Array  # [] float32
    terminated: Array  # [] bool, the task ended (success or failure)
    truncated: Array  # [] bool, the clock ran out, or the simulation failed
    metrics: Metrics  # each [] float32, of this step
    t: Array  # [] int32, control steps since the episode began
    key: Key

    @property
    def done(self) -> Array:
        """[] bool, the episode is over for whatever reason."""
        return self.terminated | self.truncated


# How worlds begin again: a few of them in a call, all in each call, or all from states prepared
# in advance because a reset is dear.
Restarts = Literal["few", "all", "prepared"]


class Env(Protocol):
    """A frozen description of a task on a physics."""

    @property
    def action_dim(self) -> int: ...
    @property
    def horizon(self) -> int: ...  # control steps until an episode is cut
    @property
    def control_dt(self) -> float: ...  # s
    @property
    def restarts(self) -> Restarts: ...

    def reset(self, key: Key, context: PyTree = None) -> State:
        """A fresh episode; `context` None is the task's own."""
        ...

    def step(self, state: State, action: Array) -> State:
        """One control step; `action` [A]."""
        ...

    def restart(self, state: State, prepared: State | None = None) -> State:
        """A fresh episode if `state` ended one, else `state` unchanged.

        Its context is the ended one's, moved on if the task has a curriculum.  Where restarts
        are prepared the episode is `prepared`, begun earlier in the context of then.
        """
        ...

    def select(self, done: Array, fresh: State, state: State) -> State:
        """`fresh` where `done` [], else `state`."""
        ...


@dataclass(frozen=True, eq=False)
class Sized:
    """What is around another environment, and as large and as fast."""

    env: Env

    @property
    def action_dim(self) -> int:
        return self.env.action_dim

    @property
    def horizon(self) -> int:
        return self.env.horizon

    @property
    def control_dt(self) -> float:
        return self.env.control_dt

    @property
    def restarts(self) -> Restarts:
        return self.env.restarts
