"""An environment of a third party, for the tests of the adapters."""

import gymnasium
import numpy as np
from gymnasium import spaces


class Slide(gymnasium.Env):
    """Slides in a plane until it has gone too far; float64, and images."""

    def __init__(self):
        self.action_space = spaces.Box(
            np.array([-2.0, 0.0]), np.array([2.0, 0.5]), dtype=np.float64
        )
        self.observation_space = spaces.Dict(
            {
                "at": spaces.Box(-np.inf, np.inf, (2,), np.float64),
                "image": spaces.Box(0, 255, (2, 2, 3), np.uint8),
            }
        )
        self.metadata = {"render_fps": 10}
        self.seeds, self.actions, self.at = [], [], np.zeros(2)

    def seen(self):
        shade = int(100 * abs(self.at[0])) % 256
        return {"at": self.at, "image": np.full((2, 2, 3), shade, np.uint8)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.at = self.np_random.normal(size=2) / 4
        return self.seen(), {}

    def step(self, action):
        self.actions.append(action)
        self.at += action  # in the array it has handed out before
        return self.seen(), float(self.at.sum()), bool(abs(self.at[0]) > 4), False, {}


def slide(steps=6):
    """One whose episodes are cut after `steps`."""
    return gymnasium.wrappers.TimeLimit(Slide(), steps)
