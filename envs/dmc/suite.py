"""What the tasks of the dm_control suite share: their flags, and how they are seen.

With `pixels` a policy sees one picture a step, of the model's first camera, and no number, as in
the suite's benchmarks from pixels (Tassa et al. 2018, section 5; Yarats et al. 2021,
arXiv:2107.09645, who hold each action for two control steps and stack three pictures).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from envs.dmc import models
from envs.task import Camera, Readings, Task, TaskSpec
from rl.types import Array, Metrics, Obs, PyTree


@dataclass(frozen=True)
class Suite(Task):
    """Fields are flags: `--env.pixels 84`."""

    rescale: bool = True  # actions in [-1, 1] instead of the actuators' own range
    pixels: int = 0  # a side of the picture that is seen, instead of numbers; 0: numbers
    repeat: int = 1  # of the suite's control steps that an action is held: they are one step then

    def __post_init__(self) -> None:
        if self.repeat < 1 or models.HORIZON % self.repeat:
            raise ValueError(
                f"repeat is {self.repeat}; it takes a count that divides {models.HORIZON} steps."
            )

    def asks(self, substeps: int, **facts: Any) -> TaskSpec:
        """The spec of a task whose control step is of so many substeps."""
        name = self.model().camera(0).name
        seen = (Camera(name, self.pixels, self.pixels, plain=True),) if self.pixels else ()
        return models.spec(
            self.model(), substeps, self.repeat, rescale=self.rescale, cameras=seen, **facts
        )

    def observe(self, readings: Readings, command: PyTree, memory: PyTree) -> tuple[Obs, PyTree]:
        if self.pixels:
            return {"image": readings[self.model().camera(0).name]}, memory
        return self.state(readings), memory

    def reward(
        self, before: Readings, after: Readings, action: Array, command: PyTree, episode: PyTree
    ) -> tuple[Array, Metrics]:
        """That of the last of the steps that are one, for each: others sum up all of theirs."""
        reward, metrics = self.earned(after)
        return self.repeat * reward, metrics

    @abstractmethod
    def state(self, readings: Readings) -> Array:
        """What a policy sees that sees numbers [O]."""

    @abstractmethod
    def earned(self, after: Readings) -> tuple[Array, Metrics]:
        """The suite's reward [] of a control step, and metrics."""
