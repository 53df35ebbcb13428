"""OGBench's .npz (Park et al. 2024, arXiv:2410.20092): rows of steps, without a reward.

The last row of an episode tells what was seen last.  OGBench makes a task of its own of a data set
by a goal; so can `goal`: at qpos[at] within `tolerance`, the reward is 0, else -1, and where it
is 0 nothing after it has a value.  Both are of the observation, not of what the action led to.
"""

from pathlib import Path
from typing import Any

import numpy as np

from rl.data import archive, canonical
from rl.data.canonical import Ends, Limits, Refused
from rl.data.dataset import Dataset

WANTED = "observations", "actions", "terminals"
OTHERS = "qpos", "qvel", "button_states"


def read(
    path: Path,
    goal: tuple[float, ...] | None = None,
    at: slice | None = None,
    tolerance: float | None = None,
    limits: Limits = (-1, 1),
) -> Dataset:
    """The dataset in a file; `goal`, `at` and `tolerance` belong together."""
    arrays = archive.read(path, "OGBench", WANTED, OTHERS)
    facts: dict[str, Any] = {"format": "ogbench", "files": canonical.hashed(path.parent, [path])}
    facts["left_out"] = [name for name in OTHERS if name in arrays]
    return made(str(path), arrays, facts, goal, at, tolerance, limits)


def made(
    where: str,
    arrays: dict[str, np.ndarray],
    facts: dict[str, Any],
    goal: tuple[float, ...] | None = None,
    at: slice | None = None,
    tolerance: float | None = None,
    limits: Limits = (-1, 1),
) -> Dataset:
    """The dataset of such arrays."""
    count = len(arrays["observations"])
    over = canonical.flag(where, "terminals", arrays["terminals"], count)
    if not count or not over[-1]:
        raise Refused(f"{where} breaks off: its last row is not the end of an episode.")
    rows = {
        "obs": canonical.matrix(where, "observations", arrays["observations"], count),
        "action": canonical.matrix(where, "actions", arrays["actions"], count),
    }
    given = [x is not None for x in (goal, at, tolerance)]
    if any(given):
        if not all(given):
            raise Refused("goal, at and tolerance belong together: give all three, or none.")
        there = _there(where, arrays, goal, at, tolerance)
        rows |= {"reward": there - np.float32(1), "mask": ~there}
        facts |= {"goal": list(goal or ()), "at": [at.start, at.stop] if at else []}
        facts |= {"tolerance": tolerance}
    last = np.flatnonzero(over)
    nothing = np.zeros(len(last), bool)  # ends: an episode was recorded for so long
    ends, lengths = Ends(nothing, ~nothing), np.diff(last, prepend=-1)
    return canonical.gathered(where, rows, lengths, ends, nothing, limits, facts)


def _there(
    where: str, arrays: dict[str, np.ndarray], goal: Any, at: Any, tolerance: Any
) -> np.ndarray:
    """[count] bool: the goal is reached there."""
    if "qpos" not in arrays:
        raise Refused(f"{where} has no qpos, of which a goal is told: leave the goal out.")
    qpos = canonical.matrix(where, "qpos", arrays["qpos"], len(arrays["observations"]))[:, at]
    if qpos.shape[1] != len(goal):
        raise Refused(
            f"{where} has {qpos.shape[1]} numbers in qpos[{at.start}:{at.stop}]; the goal has "
            f"{len(goal)}."
        )
    return np.linalg.norm(qpos - np.asarray(goal), axis=1) <= tolerance
