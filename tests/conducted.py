"""A robot that does what a conductor says, without a bridge."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.learn.conductor import Conductor, Practice
from rl.bridge.messages import Own, Status
from rl.bridge.pilot import Word
from tests.guided import SIZE, spec

GOOD = {"learner_silent_s": 0.1, "full": "", "trouble": "", "turned_away": ""}
DT = 0.05


class Human:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.says = Word()

    def silent(self, seconds: float) -> bool:
        return seconds > 3

    def word(self, status: Status) -> Word:
        return self.says


class Practised:
    """A robot that does what it is told, and what its conductor says."""

    def __init__(
        self, folder: Path, practice: Practice, human: Any = None, sim: bool = False
    ) -> None:
        self.folder, self.sim, self.seconds = folder, sim, practice.seconds
        self.account(**GOOD)
        self.conductor = Conductor(spec(), practice, folder, human)
        self.tick, self.begun, self.done = 0, int(sim), 0.0
        self.state, self.why = states.ARMED if sim else states.PASSIVE, Reason(0)
        self.told: list[Word] = []

    def account(self, **facts: Any) -> None:
        (self.folder / ACCOUNT).write_text(json.dumps({"at": time.monotonic()} | facts))

    def live(self, ticks: int = 1) -> Word:
        for _ in range(ticks):
            self.account(**GOOD)
            self._tick()
        return self.told[-1]

    def status(self) -> Status:
        return Status(
            self.tick, DT * self.tick, self.state, int(self.why), 0, 0, {}, np.zeros(12),
            episodes=self.sim, begun=self.begun, own=Own(np.zeros(SIZE), self.done, 0),
        )  # fmt: skip

    def _tick(self) -> None:
        self.tick += 1
        word = self.conductor.word(self.status())
        self.told.append(word)
        if word.event:
            before, self.state = self.state, states.after(self.state, word.event)
            self.why = Reason.ASKED
            self.begun += self.state == states.ARMED and before != states.INTERVENE
        if self.sim and word.over == self.begun:
            self.begun, self.state, self.done = self.begun + 1, states.ARMED, 0.0
