"""A policy that learns on a robot, and in whose place a human may act: what it is asked besides
what a deployed policy is, and what it tells besides targets.

All of it is one vector in, in the place of the command, and one out, in the place of targets, so
that its artefact is one like any other (rl/artefact.py).  numpy alone.
"""

from typing import NamedTuple

import numpy as np

from rl.spec import Spec

MOST = 1 << 24  # whole numbers below are exact in float32


class Asked(NamedTuple):
    """What a step is asked, all the time."""

    command: np.ndarray  # [C]
    action: np.ndarray  # [D] of the human
    human: bool  # who acts
    seed: int  # of what the policy draws: the same for one process ...
    number: int  # ... and of this step, other ones for each


class Told(NamedTuple):
    """What a step comes to."""

    targets: np.ndarray  # [A] of who acts
    action: np.ndarray  # [D] of the policy, whoever acts
    done: float  # how sure it is that what is to be done is done, 0 to 1
    memory: np.ndarray  # [M] what it remembered as it was asked: observations are made of it


def asked(now: Asked) -> np.ndarray:
    """[C + D + 3] float32."""
    rest = float(now.human), now.seed % MOST, now.number % MOST
    return np.concatenate([now.command, now.action, rest]).astype(np.float32)


def told(spec: Spec, numbers: np.ndarray) -> Told:
    """Of [A + D + 1 + M]."""
    ends = np.cumsum([len(spec.actuators), len(spec.action), 1])
    targets, action, done, memory = np.split(numbers, ends)
    return Told(targets, action, float(done[0]), memory)
