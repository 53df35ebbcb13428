"""Environments of a third party by their ids, for the tests of what is learned of their data."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class Slope(gymnasium.Env):
    """A ball that stays where it is put, if what is done is against the slope; numpy's own chance
    says where it begins."""

    action_space = spaces.Box(-2.0, 2.0, (1,), np.float32)
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    metadata: dict[str, Any] = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.x = np.array([self.np_random.normal(), np.random.normal()], np.float32)
        return self.x.copy(), {}

    def step(self, action: Any) -> Any:
        self.x[0] += 0.1 * (self.x[1] + action[0])
        near = abs(self.x[0]) < 0.1
        return self.x.copy(), -abs(float(self.x[0])), bool(abs(self.x[0]) > 3), False, {
            "is_success": near
        }  # fmt: skip

    def render(self) -> Any:
        shade = int(np.clip(100 + 50 * self.x[0], 0, 255))
        return np.full((32, 48, 3), shade, np.uint8)


class Unbounded(Slope):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Broken(Slope):
    def __init__(self) -> None:
        raise FileNotFoundError("arm.xml")


class Undrawn(Slope):
    def render(self) -> Any:
        raise ImportError("its pen\nis lost")


for kind in (Slope, Unbounded, Broken, Undrawn):
    gymnasium.register(f"{kind.__name__}-v0", f"slope:{kind.__name__}", max_episode_steps=30)
gymnasium.register("Endless-v0", "slope:Slope")
