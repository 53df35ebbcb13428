"""Residual PPO above any policy (ResiP: Ankile et al. 2024, arXiv:2407.16677).

A base that stays as it is, chunks and all, acts; at every step a Gaussian that is shown what the
base does adds a little to it, and PPO learns of what it gave, before it was scaled.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
from tyro.conf import Suppress

from rl import residual
from rl.policy import Policy
from rl.residual import BASE
from rl.samples import views
from rl.train import sound
from rl.types import Array, Key, Metrics, Obs, Params, PyTree, Transition


class State(NamedTuple):
    """Arrays only: save it, vmap it over seeds, carry it through scan."""

    base: Params  # as they were given
    ppo: Any  # PPO's own


@dataclass(frozen=True)
class ResiP:
    """Hyperparameters of residual PPO."""

    base: Suppress[Any] = None  # an agent, that of --base RUN
    scale: float = 0.1  # of an action, that a unit of the Gaussian adds to the base's
    ppo: Any = None  # PPO, with its own hyperparameters

    def __post_init__(self) -> None:
        sound(self, scale=(0 < self.scale <= 2, "a share above 0, at most 2"))

    def init(self, key: Key, obs: Obs, action: Array, base: Params = None) -> State:
        """State for one example of `obs` and `action` [A]; `base` are the parameters of one that
        has learned."""
        base_key, key = jax.random.split(key)
        base = base or self.base.deploy(self.base.init(base_key, obs, action))
        return State(base, self.ppo.init(key, told(residual.shown(obs, action)), action))

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The policy of `deploy`'s parameters: the base's actions and what is added."""
        base = self.base.policy(False, action_dim)
        return residual.residual(base, self.learned(explore, action_dim), self.scale)

    def learned(self, explore: bool, action_dim: int) -> Policy:
        """What is added, in units of `scale`: sampled to learn, the mean to evaluate."""
        inner = self.ppo.policy(explore, action_dim)

        def step(params: Params, carry: Any, obs: Obs, key: Key) -> tuple[Array, Any, PyTree]:
            more, carry, aux = inner.step(params, carry, told(obs), key)
            return more, carry, aux | {"more": more}

        return Policy(inner.init, step)

    def deploy(self, state: State) -> Params:
        """All a policy needs: the base's parameters, the Gaussian's and its normaliser."""
        return {"base": state.base, "learned": self.ppo.deploy(state.ppo)}

    def update(
        self, state: State, batch: Transition, key: Key, shards: int = 1
    ) -> tuple[State, Metrics]:
        """All epochs on one batch of transitions [T, N, ...] of an `Assisted` world, of which so
        many shards lie apart."""
        batch = batch._replace(
            obs=told(batch.obs), next_obs=told(batch.next_obs), action=batch.aux["more"]
        )
        learner, metrics = self.ppo.update(state.ppo, batch, key, shards)
        return state._replace(ppo=learner), metrics


def told(obs: Obs) -> dict[str, Array]:
    """What actor and critic see: their views, and what the base does."""
    return residual.beside(views(obs), obs[BASE])._asdict()
