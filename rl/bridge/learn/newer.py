"""New weights for a policy that runs: looked at before it has them, and refused if they are bad."""

import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors.numpy import load, save

from rl.artefact import Deployed
from rl.bridge.learn import weights

LOOKS_S = 0.1  # between two looks at the folder
GROWN = 10.0  # times the largest number of a leaf that its next may be ...
LEAST = 1.0  # ... or this
MOVED = 1.0  # of actions, whose range is 2: the mean that what was just asked may be answered anew
RECENT = 16  # steps that new weights are tried on
SEEN = " seen"  # in the name of a leaf
SAID_S = 10.0  # between two lines of what was refused


class Leaves(NamedTuple):
    """Weights, in order."""

    all: list[np.ndarray]
    seen: Collection[int] = ()  # those that are moments of what was seen, in units of its own


class Newer:
    """Those of one policy; newer ones come to a folder, of rl/bridge/learn/weights.py."""

    def __init__(self, folder: Path, policy: Deployed) -> None:
        self.folder, self.policy = folder, policy
        self.version, self.looked = 0, -np.inf  # 0: the artefact's own
        self.recent: deque[Any] = deque(maxlen=RECENT)  # what it was asked, carry and all
        self.refused = 0  # the newest that were
        self.said = -np.inf  # when that was, last

    def look(self) -> None:
        """Take the newest there are, if they are good; it is to be called between steps."""
        if (now := time.monotonic()) - self.looked < LOOKS_S:
            return
        self.looked = now
        if (found := weights.newest(self.folder, max(self.version, self.refused))) is None:
            return
        leaves = unpack(found.blob)
        why = "they are no weights" if leaves is None else self.trouble(leaves)
        if leaves is None or why:
            self.refused = found.version
            with contextlib.suppress(OSError), (self.folder / weights.REFUSED).open("a") as file:
                file.write(json.dumps({"version": found.version, "why": why}) + "\n")
            if now - self.said > SAID_S:
                self.said = now
                print(f"refused  weights {found.version}: {why}", file=sys.stderr, flush=True)
            return
        self.policy.params, self.version = leaves.all, found.version

    def trouble(self, found: Leaves) -> str:
        """Why weights are not to be had; "" of good ones."""
        leaves, old = found.all, [np.asarray(x) for x in self.policy.params]
        if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in old]:
            return "they are of another network"
        if not all(np.isfinite(x).all() for x in leaves):
            return "some are no numbers"
        for i, (new, was) in enumerate(zip(leaves, old, strict=True)):
            largest = float(np.abs(new).max(initial=0.0))
            most = GROWN * max(float(np.abs(was).max(initial=0.0)), LEAST)
            if new.ndim and largest > most and i not in found.seen:
                return f"one grew to {largest:.3g}, and may to {most:.3g}"
        motors, count = len(self.policy.spec.actuators), len(self.policy.spec.action)
        moved = []
        for carry, *now in self.recent:
            was, new = (np.asarray(self.policy.call(x, carry, *now)[0])
                        for x in (self.policy.params, leaves))  # fmt: skip
            if not np.isfinite(new).all():
                return "they lead to targets that are no numbers"
            moved.append(np.abs(new - was)[motors : motors + count].mean())
        if moved and (mean := float(np.mean(moved))) > MOVED:
            return f"actions would be others by {mean:.2g} of a range of 2"
        return ""


def unpack(content: bytes) -> Leaves | None:
    """The leaves in a file; None of what is none."""
    try:
        found = load(content)
        seen = {i for i in range(len(found)) if f"{i}{SEEN}" in found}
        return Leaves([found[f"{i}{SEEN * (i in seen)}"] for i in range(len(found))], seen)
    except Exception:  # whatever a damaged file makes of itself
        return None


def pack(leaves: Leaves) -> bytes:
    """What `unpack` makes these leaves of."""
    named = {f"{i}{SEEN * (i in leaves.seen)}": x for i, x in enumerate(leaves.all)}
    return save({name: np.asarray(x, order="C") for name, x in named.items()})
