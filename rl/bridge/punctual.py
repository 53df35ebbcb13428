"""Whether a machine keeps a bridge's rate, by how late its ticks began: pure functions of numbers.

`doctor` asks it of ticks that do nothing; a bridge may ask it of its own before it arms a robot.
"""

from typing import NamedTuple

import numpy as np

LATE_S, TIMES = 0.01, 3  # s, and in a second: what a robot is held for (rl/bridge/checks.py)
SHARE = 0.25  # of a tick, by which 99% may begin late: the policy is waited for in 0.4 of it
MISSED = 1e-3  # share of ticks that may be left out
FEW = 100  # ticks, of less of which nothing is said


class Lateness(NamedTuple):
    """Of ticks; s."""

    ticks: int
    p50: float
    p99: float
    most: float
    missed: float  # share of ticks that were left out
    often: int  # later than LATE_S in any one second, at most


def lateness(late: np.ndarray, missed: int, rate: float) -> Lateness:
    """Of ticks that began `late` [n] s after they were due, and those left out, at `rate` Hz."""
    late = np.asarray(late, float)
    p50, p99 = np.percentile(late, (50, 99)) if len(late) else (0.0, 0.0)
    window = np.ones(min(max(round(rate), 1), max(len(late), 1)))
    often = int(np.convolve(late > LATE_S, window).max()) if len(late) else 0
    share = missed / max(missed + len(late), 1)
    return Lateness(len(late), float(p50), float(p99), float(late.max(initial=0.0)), share, often)


def unfit(x: Lateness, rate: float) -> str:
    """Why a machine does not keep `rate` Hz; "" if it does."""
    if x.ticks < FEW:
        return f"{x.ticks} ticks were seen, which says nothing"
    if x.often >= TIMES:
        return f"{x.often} ticks in a second began more than {LATE_S * 1e3:g} ms late"
    if x.missed > MISSED:
        return f"{x.missed:.1%} of the ticks were left out"
    if x.p99 > SHARE / rate:
        return f"1 in 100 ticks begins {x.p99 * 1e3:.2g} ms late, of {1e3 / rate:.3g}"
    return ""
