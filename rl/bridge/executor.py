"""Plans that are made elsewhere while the robot moves: rl/realtime.py's executor without JAX."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

RECENT = 10  # plans by whose delays the next one's is told (arXiv:2506.07339, algorithm 1)


class Request(NamedTuple):
    """What a plan is to be made of.  `rl.realtime.lead(chunk, delay, gone)` leads it."""

    seen: tuple[Any, ...]  # observations lately, the newest last; before an episode, its first
    chunk: np.ndarray  # [H, A] that plays meanwhile
    gone: int  # ticks since it was asked for; H where there is none
    delay: int  # ticks that the new one will take, most likely no more


class Coming(Protocol):
    """A plan [H, A] under way, such as a `concurrent.futures.Future`."""

    def done(self) -> bool: ...
    def result(self) -> Any: ...


Planner = Callable[[Request], Coming]


def threaded(plan: Callable[[Request], Any]) -> Planner:
    """A planner that makes one plan after another in a thread of its own."""
    return partial(ThreadPoolExecutor(1, "planner").submit, plan)


class Executor:
    """Acts tick by tick and asks for a plan every `execute` ticks, or when the one under way is
    there if that is later.

    How late a plan is, is counted in actions that were taken meanwhile.  Observations are handed to
    the planner as they are: give each tick its own.
    """

    def __init__(
        self,
        planner: Planner,
        shape: tuple[int, int],
        execute: int,
        history: int = 1,
        delay: int = 0,
    ) -> None:
        """Plans have the shape [H, A], are made of so many observations, and are expected to take
        `delay` ticks before any was counted."""
        if not 0 < execute <= shape[0]:
            raise ValueError(f"execute is {execute}; it takes 1 to {shape[0]}, a plan's actions.")
        self.planner, self.shape, self.execute, self.history = planner, shape, execute, history
        self.delays = deque([delay], RECENT)  # ticks that plans took lately
        self.reset()

    def reset(self) -> None:
        """Begin an episode: forget all plans, and one that is under way."""
        self.seen: deque[Any] = deque(maxlen=self.history)
        self.chunk = np.zeros(self.shape)
        self.t = -1  # ticks since it was asked for; -1: there is none yet
        self.coming: Coming | None = None
        self.asked = 0  # ticks since that was asked for

    @property
    def held(self) -> int:
        """Ticks for which there was nothing to do but the plan's last action again."""
        return max(self.t - (self.shape[0] - 1), 0)

    def tick(self, obs: Any) -> np.ndarray:
        """The action [A] at an observation; waits for a plan at an episode's first tick alone.

        RuntimeError if the planner failed, ValueError if what it made is no plan; and again at each
        tick until `reset`.
        """
        first = self.t < 0
        self.seen.extend([obs] * (self.history if first else 1))
        self.t, self.asked = -1 if first else self.t + 1, self.asked + 1
        self._receive()
        if self.coming is None and (first or self.asked >= self.execute):
            gone = self.shape[0] if first else self.t
            request = Request(tuple(self.seen), self.chunk, gone, max(self.delays))
            self.coming, self.asked = self.planner(request), 0
            self._receive()
        return self.chunk[min(self.t, self.shape[0] - 1)].copy()

    def _receive(self) -> None:
        """Play the plan under way if it is there, or is the first."""
        if self.coming is None or not (self.t < 0 or self.coming.done()):
            return
        try:
            made = self.coming.result()
        except Exception as error:
            raise RuntimeError(f"The planner failed: {error!r}.") from error
        self.chunk = self._sound(made)
        if self.t >= 0:  # the first was waited for
            self.delays.append(self.asked)
        self.t, self.coming = self.asked, None

    def _sound(self, made: Any) -> np.ndarray:
        """A copy of a plan [H, A]; ValueError if it is none."""
        try:
            plan = np.array(made, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"The plan is no array of numbers: {error}.") from error
        if plan.shape != self.shape:
            raise ValueError(f"The plan has shape {plan.shape}; it needs {self.shape}.")
        if not np.isfinite(plan).all():
            row, column = np.argwhere(~np.isfinite(plan))[0]
            raise ValueError(
                f"The plan has {plan[row, column]} as number {column} of action {row}; it needs "
                "finite numbers."
            )
        plan.flags.writeable = False  # the planner is shown it while it plays
        return plan
