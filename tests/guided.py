"""A policy that learns, as tests have it: of a Go2's spec, in whose place a human may act."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from rl.bridge import messages, wire
from rl.bridge.messages import Own, Plan
from rl.spec import Channel, Spec
from tests.rig import Rig, go2

SIZE, MEMORY = 3, 2  # numbers of an action, and of what it remembers


@cache
def spec() -> Spec:
    return replace(go2(), action=tuple(Channel(x, "1", -1.0, 1.0) for x in "xyz"), memory=MEMORY)


class Guided(Rig):
    """A core whose policy tells of itself, and whose operator acts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(spec=spec(), **settings)
        self.own = Own(np.zeros(SIZE), 0.0, 0, np.zeros(MEMORY))  # in its next plan

    def policy(self, targets: np.ndarray, first: int) -> None:
        plan = messages.plan_message(self.spec, Plan(first, targets, self.own), 0.0)
        self.core.hear("policy", wire.encode(plan))
