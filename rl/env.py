"""The environment contract: pure functions over one explicit state, written for one robot.

Callers vmap.  `terminated` and `truncated` are apart everywhere, and nothing resets by
itself: the rollout records a transition first and restarts after, so the observation in
which an episode really ended is always at hand.
"""

from typing import Any, NamedTuple, Protocol

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


class Env(Protocol):
    """A frozen description of a task on a physics."""

    @property
    def action_dim(self) -> int: ...
    @property
    def horizon(self) -> int: ...  # control steps until an episode is cut
    @property
    def control_dt(self) -> float: ...  # s
    @property
    def pooled(self) -> bool: ...  # a reset is dear: rollouts draw from a pool of prepared states

    def reset(self, key: Key, context: PyTree = None) -> State:
        """A fresh episode; `context` None is the task's own."""
        ...

    def step(self, state: State, action: Array) -> State:
        """One control step; `action` [A]."""
        ...

    def restart(self, state: State) -> State:
        """A fresh episode in `state.context` if `state` ended one, else `state` unchanged."""
        ...

    def select(self, done: Array, fresh: State, state: State) -> State:
        """`fresh` where `done` [], else `state`: how a pooled restart replaces a state."""
        ...
