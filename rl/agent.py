"""What an agent is to those who train, judge and deploy it: hyperparameters with pure methods.

An agent is a frozen dataclass, and what it learns a NamedTuple of arrays, its state.  Nobody
inherits from these; agents/ has one to a file.
"""

from typing import Any, Protocol

from rl.policy import Policy
from rl.types import Array, Key, Metrics, Obs, Params, Transition


class Agent(Protocol):
    """What any agent has."""

    def init(self, key: Key, obs: Obs, action: Array) -> Any:
        """A fresh state, for one example of an observation and of an action [A]."""
        ...

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of what `deploy` gives: to learn with, or, without `explore`, to be judged."""
        ...

    def deploy(self, state: Any) -> Params:
        """All that the policy needs of a state, a normaliser included, and no more."""
        ...

    def update(self, state: Any, batch: Transition, key: Key) -> tuple[Any, Metrics]:
        """The state after learning from a batch, and what it tells of that, each [].

        A metric whose name ends in "loss" stops a run when it is no number.
        """
        ...


class FromReplay(Agent, Protocol):
    """What experiments/off_policy.py needs besides.

    `update` is given `delay` batches of windows of n steps, [delay, B, n, ...], before which stand
    as many as its `history` says, if it has one: what it remembers as it acts.  Where it tells a
    metric "q", what it believes returns to be on average (of actions or of states), a run stops
    when that explodes.
    """

    @property
    def gamma(self) -> float:
        """Discount of a step."""
        ...

    @property
    def delay(self) -> int:
        """Batches, one for each step of a critic, that an update learns from."""
        ...

    def observe(self, state: Any, seen: Transition) -> Any:
        """The state once fresh transitions [T, N, ...] are counted in its statistics."""
        ...
