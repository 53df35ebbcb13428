"""A task's own program as an agent that learns nothing: what a residual is learned above where
there are no demonstrations (Silver et al. 2018, arXiv:1812.06298; Johannink et al. 2019,
arXiv:1812.03201).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tyro.conf import Suppress

from rl.policy import Policy
from rl.train import sound
from rl.types import Array, Key, Obs, Params


@dataclass(frozen=True)
class Scripted:
    """How fast, shakily and mistakenly it acts (envs/manipulation/expert.py)."""

    way: int = -1  # of the task's ways (99 lists them); -1: drawn anew in each episode
    speed: float = 1.0  # share of the most that an action may move
    noise: float = 0.0  # std of what is added to each action
    mistake: float = 0.0  # m, std of how wrong it is about where things are, in an episode
    patience: float = 0.0  # s that it is close to there before it goes on anyhow; 0: for ever
    # Of a task and these settings; True: the task's, which is to be found.
    program: Suppress[Any] = field(default=True, metadata={"found": True})

    def __post_init__(self) -> None:
        sound(
            self,
            speed=(0 < self.speed <= 1, "a share above 0, at most 1"),
            noise=(0 <= self.noise < np.inf, "a number of at least 0"),
            mistake=(0 <= self.mistake < np.inf, "m of at least 0"),
            patience=(0 <= self.patience < np.inf, "s of at least 0"),
        )

    def init(self, key: Key, obs: Obs, action: Array) -> tuple[()]:
        """There is nothing to carry."""
        return ()

    def deploy(self, state: tuple[()]) -> Params:
        return ()

    def policy(self, explore: bool, action_dim: int) -> Policy:
        """The task's program; ValueError where none has been found (`cli.found`)."""
        if self.program is None or self.program is True:
            raise ValueError("A program is of a task, and this task has none.")
        return self.program(self)
