"""What a run came to, in numbers, in lines and in words."""

import sys
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from rl.bridge import states
from rl.bridge.checks import Reason, said
from rl.bridge.core import Told
from rl.bridge.messages import Loop

CUT = Reason.POSITION | Reason.PACE | Reason.TORQUE


@dataclass
class Tally:
    """What a run came to."""

    asked: int = 0  # questions to the policy
    took: list[float] = field(default_factory=list)  # s, of each that was answered at once
    limited: int = 0  # periods in which a limit cut the policy's targets
    why: int = 0  # Reason of the last
    late: float = 0.0  # s, the latest tick
    missed: int = 0  # ticks that were left out
    ignored: Counter[str] = field(default_factory=Counter)  # frames, by what they were
    loop: Loop = Loop()  # since operators were told

    def count(self, told: Told, late: float, took: float, asked: bool) -> None:
        self.late = max(self.late, late)
        self.loop = self.loop._replace(late=max(self.loop.late, late))
        if asked:
            silent = self.loop.unanswered + (took != took)
            self.loop = self.loop._replace(took=took, unanswered=silent)
            self.asked += 1
            self.took.append(took)
            if cut := told.mask & CUT:
                self.limited += 1
                self.why = cut


def tell(tally: Tally, end: str, granted: list[str]) -> None:
    """What a run came to, in lines."""
    took = [x for x in tally.took if x == x]
    p50, p99 = np.percentile(took or [0.0], (50, 99)) * 1e3
    times = f" of {p50:.2f} ms (99%: {p99:.2f} ms)" if took else ", none of them answered at once"
    print(f"{end:8} {tally.asked} ticks{times}")
    if late := len(tally.took) - len(took):
        print(f"late     {late} ticks without an answer at once, which held the last targets")
    if tally.limited:
        print(f"limited  {tally.limited} ticks, at last for {said(tally.why)}")
    if tally.missed:
        had = ", ".join(granted) or "no priority"
        print(f"missed   {tally.missed} ticks of the wire, {tally.late * 1e3:.0f} ms late at most "
              f"(with {had})")  # fmt: skip
    if ignored := tally.ignored.total():
        each = ", ".join(f"{n} {what}" for what, n in tally.ignored.items())
        print(f"ignored  {ignored} frames: {each}")
    sys.stdout.flush()


def verdict(state: str, why: Reason, end: str) -> list[str]:
    """What went wrong, of a robot that was in a state, and why, when its run was over."""
    if end == "left":
        return ["The robot said goodbye."]
    if end == "lost":
        return ["The robot fell silent."]
    if end == "given up":
        return ["The robot heard nothing of this bridge for too long, and was damped."]
    if state == states.FAULT:
        return [f"The robot was damped at the end: {said(why)}."]
    if state == states.HOLD and why != Reason.ASKED:
        return [f"The robot was held at the end: {said(why)}."]
    return []
