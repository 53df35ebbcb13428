"""Minari's episodes as groups of an HDF5 file, and ours as such."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rl.data import canonical
from rl.data.canonical import Refused
from rl.data.dataset import Dataset
from rl.data.minari_spaces import Part

MAIN = "main_data.hdf5"
FIELDS = "rewards", "terminations", "truncations"


def episodes(root: Path, seen: list[Part]) -> Iterator[dict[str, Any]]:
    """Raw, in the order of their numbers."""
    path = root / MAIN
    with canonical.hdf5(path, "Minari") as file:
        for number in range(len(file)):
            group = file.get(f"episode_{number}")
            if group is None:
                raise Refused(f"{path} has {len(file)} episodes, and none is episode_{number}.")
            if wrong := {"observations", "actions", *FIELDS} ^ (set(group) - {"infos"}):
                how = "lacks" if min(wrong) not in group else "has an odd"
                raise Refused(f"{path} {how} {min(wrong)} in episode {number}.")
            yield {
                "where": str(path),
                "about": dict(group.attrs),
                "obs": {
                    part.name: (_pictures if part.encoded else canonical.stored)(
                        group["/".join(("observations", *part.path))]
                    )
                    for part in seen
                },
                "infos": _leaves(group.get("infos", {}), "infos"),
                **{name: canonical.stored(group[name]) for name in ("actions", *FIELDS)},
            }


def _pictures(item: Any) -> np.ndarray:
    return canonical.decoded(bytes(one) for one in item[()])


def _leaves(group: Any, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in group.items():
        below = f"{name}/{key}"
        found |= {below: canonical.stored(item)} if hasattr(item, "shape") else _leaves(item, below)
    return found


def write(path: Path, data: Dataset, extra: list[str]) -> None:
    """The episodes of a dataset as a new file; `extra`: what steps have that Minari does not.

    All of it is under checksums, which HDF5 looks at whoever reads it.
    """
    try:
        import h5py
    except ImportError:
        raise canonical.needs("Minari's HDF5", "h5py") from None
    named = {"action": "actions", "reward": "rewards"}
    named |= {"terminated": "terminations", "truncated": "truncations"}
    own = [n for n in data.episodes if n != "length" and n.split("/")[0] != "last_obs"]
    with h5py.File(path, "w-", libver="latest") as file:
        starts = zip(data.starts, data.episodes["length"], strict=True)
        for number, (start, length) in enumerate(starts):
            group, rows = file.create_group(f"episode_{number}"), slice(start, start + length)

            def put(name: str, x: np.ndarray, group: Any = group) -> None:
                whole = {"chunks": x.shape, "fletcher32": True} if x.size else {}
                group.create_dataset(name, data=x, **whole)

            for name in data.parts("obs"):
                last = data.episodes[f"last_{name}"][number]
                put(f"observations{name[3:]}", np.append(data.steps[name][rows], last[None], 0))
            for name, theirs in named.items():
                put(theirs, data.steps[name][rows])
            for name in extra:  # infos are of observations: a step's of the one after it
                x = data.steps[name][rows]
                put(f"infos/{name}", np.append(np.zeros_like(x[:1]), x, 0))
            group.attrs["id"], group.attrs["total_steps"] = number, length
            group.attrs.update({name: data.episodes[name][number] for name in own})
