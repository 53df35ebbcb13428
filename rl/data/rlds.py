"""RLDS (Ramos et al. 2021, arXiv:2111.02767) as an .npz of its steps, one episode after another.

An episode of T transitions is T + 1 steps, of which the last has an observation alone.  Where it
is not marked as such, the episode was cut off, and its last action led nowhere that is known.
"""

from pathlib import Path
from typing import Any

import numpy as np

from rl.data import archive, canonical
from rl.data.canonical import Ends, Limits, Refused
from rl.data.dataset import Dataset

FLAGS = "is_first", "is_last", "is_terminal"


def read(path: Path, limits: Limits = (-1, 1)) -> Dataset:
    """The dataset in a file."""
    where = str(path)
    arrays = archive.read(path, "RLDS", ("action", *FLAGS), None)
    count = len(arrays["action"])
    first, last, terminal = (canonical.flag(where, n, arrays[n], count) for n in FLAGS)
    begins = np.flatnonzero(first)
    if not count or not first[0]:
        raise Refused(f"{where} does not begin with a step that is_first.")
    if (wrong := last[:-1] & ~first[1:]).any():
        raise Refused(
            f"{where} has a step that is_last in row {wrong.argmax()}, and goes on after."
        )
    if (wrong := terminal & ~last).any():
        raise Refused(f"{where} has a step that is_terminal and not is_last, row {wrong.argmax()}.")
    seen = {n: x for n, x in arrays.items() if n.split("/")[0] == "observation"}
    if not seen:
        raise Refused(f"{where} has no observation, which RLDS has.")
    final = np.append(begins[1:], count) - 1
    rows = {
        n.replace("observation", "obs", 1): canonical.matrix(where, n, x, count)
        for n, x in seen.items()
    }
    rows["action"] = canonical.matrix(where, "action", arrays["action"], count)
    if "reward" in arrays:
        rows["reward"] = canonical.column(where, "reward", arrays["reward"], count)
    if "discount" in arrays:
        discount = canonical.column(where, "discount", arrays["discount"], count)
        if not np.isfinite(discount).all():
            raise Refused(f"{where} has a discount that is no finite number.")
        rows["mask"] = (discount != 0) & ~np.append(terminal[1:], False)
    facts: dict[str, Any] = {"format": "rlds", "files": canonical.hashed(path.parent, [path])}
    known = {*FLAGS, *seen, "action", "reward", "discount"}
    facts["left_out"] = sorted(arrays.keys() - known)
    ends = Ends(terminal[final], last[final] & ~terminal[final])
    lengths, none = np.diff(begins, append=count), np.zeros(len(begins), bool)
    return canonical.gathered(where, rows, lengths, ends, none, limits, facts)
