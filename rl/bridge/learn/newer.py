"""New weights for a policy that runs: looked at before it has them, and refused if they are bad."""

import contextlib
import json
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from rl.artefact import Deployed
from rl.bridge.learn import weights

LOOKS_S = 0.1  # between two looks at the folder
GROWN = 10.0  # times the largest number of a leaf that its next may be ...
LEAST = 1.0  # ... or this
MOVED = 1.0  # of actions, whose range is 2: the mean that what was just asked may be answered anew
RECENT = 16  # steps that new weights are tried on


class Newer:
    """Those of one policy; newer ones come to a folder, of rl/bridge/learn/weights.py."""

    def __init__(self, folder: Path, policy: Deployed) -> None:
        self.folder, self.policy = folder, policy
        self.version, self.looked = 0, -np.inf  # 0: the artefact's own
        self.recent: deque[Any] = deque(maxlen=RECENT)  # what it was asked, carry and all
        self.refused = 0  # the newest that were

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
            print(f"refused  weights {found.version}: {why}", flush=True)
            return
        self.policy.params, self.version = leaves, found.version

    def trouble(self, leaves: list[np.ndarray]) -> str:
        """Why weights are not to be had; "" of good ones."""
        old = [np.asarray(x) for x in self.policy.params]
        if [(x.shape, x.dtype) for x in leaves] != [(x.shape, x.dtype) for x in old]:
            return "they are of another network"
        if not all(np.isfinite(x).all() for x in leaves):
            return "some are no numbers"
        for new, was in zip(leaves, old, strict=True):
            largest = float(np.abs(new).max(initial=0.0))
            most = GROWN * max(float(np.abs(was).max(initial=0.0)), LEAST)
            if new.ndim and largest > most:
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


def unpack(content: bytes) -> list[np.ndarray] | None:
    """The leaves in a file, in order; None of what is none."""
    try:
        found = load(content)
        return [found[str(i)] for i in range(len(found))]
    except Exception:  # whatever a damaged file makes of itself
        return None


def pack(leaves: Sequence[np.ndarray]) -> bytes:
    """What `unpack` makes these leaves of."""
    return save({str(i): np.asarray(x, order="C") for i, x in enumerate(leaves)})
