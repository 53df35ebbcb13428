"""Minari's folders (Farama Foundation, 0.5): read, and written for others.

An episode of T steps has T + 1 observations; how it was recorded is in its metadata.json.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.data import canonical, dataset, minari_arrow, minari_hdf5
from rl.data.canonical import Ends, Limits, Refused
from rl.data.dataset import Dataset
from rl.data.minari_spaces import Part, box, check, kinds, parts, shape_of, space_of

ABOUT = "metadata.json"
VERSION = "0.5.4"  # whose layout it is that is written
OURS = "robotrl"  # what metadata have of ours: facts, and the steps' names that are among infos
STEPS = "action", "reward", "terminated", "truncated"  # what Minari has a place for


class Declared(NamedTuple):
    """What the metadata say is there."""

    parts: list[Part]
    texts: list[str]  # the names of observations that are not numbers
    action: dict[str, Any]


def read(path: Path, limits: Limits | None = None) -> Dataset:
    """The dataset in a folder; `limits` of actions, where its action_space has none."""
    root = folder(path)
    about = canonical.parsed(root / ABOUT, "Minari")
    form = about.get("data_format", "hdf5")
    action = _space(root, about, "action_space")
    if action["type"] != "Box":
        raise Refused(f"{root} has actions that are {action['type']}: only a Box is continuous.")
    declared = Declared(*parts(root, _space(root, about, "observation_space"), form, about), action)
    if form == "hdf5":
        episodes = list(minari_hdf5.episodes(root, declared.parts))
    elif form in ("arrow", "parquet"):
        episodes = list(minari_arrow.episodes(root, form, declared.parts, action))
    else:
        raise Refused(f"{root} has a data_format of {form!r}: hdf5, arrow and parquet are read.")
    _check(root, about, episodes, declared)
    return _joined(root, about, episodes, declared, limits)


def folder(path: Path) -> Path:
    """Where the metadata of a data set lie: in it, or in its folder "data"."""
    root = next((p for p in (path, path / "data") if (p / ABOUT).is_file()), None)
    if root is None:
        raise Refused(
            f"{path} has no data/metadata.json: it is no data set of Minari, or of one before 0.5, "
            "which a newer Minari reads and saves anew."
        )
    return root


def _space(root: Path, about: dict[str, Any], name: str) -> dict[str, Any]:
    with canonical.damage(root / ABOUT, f"{name} of Minari"):
        found = json.loads(about[name])
        check(found)
    return found


def _check(
    root: Path, about: dict[str, Any], episodes: list[dict[str, Any]], declared: Declared
) -> None:
    """Raise ValueError unless raw episodes have what their metadata say, and end once."""
    for number, episode in enumerate(episodes):
        where, count = episode["where"], len(np.atleast_1d(episode["rewards"]))
        told = [episode["about"].get(n, x) for n, x in (("id", number), ("total_steps", count))]
        if not count or told != [number, count]:
            raise Refused(
                f"{where} has an episode {told[0]} of {told[1]} steps where episode {number} of "
                f"{count} rewards belongs."
            )
        canonical.column(where, f"rewards of episode {number}", episode["rewards"], count)
        arrays = [(p.name, episode["obs"][p.name], count + 1, p.space) for p in declared.parts]
        for name, x, rows, space in [
            *arrays,
            ("actions", episode["actions"], count, declared.action),
        ]:
            if x.shape != (rows, *shape_of(space)) or x.dtype.kind not in kinds(space):
                raise Refused(
                    f"{where} has {name} of {x.dtype}{list(x.shape)} in episode {number}; by its "
                    f"space it is {space.get('dtype', 'int64')}{[rows, *shape_of(space)]}."
                )
        over = np.zeros(count, bool)
        for name in minari_hdf5.FIELDS[1:]:
            over |= canonical.flag(where, f"{name} of episode {number}", episode[name], count)
        if over[:-1].any():
            raise Refused(
                f"{where} goes on after its end in step {over.argmax()} of episode {number}."
            )
    steps = sum(len(episode["rewards"]) for episode in episodes)
    if (told := [about.get("total_episodes"), about.get("total_steps")]) != [len(episodes), steps]:
        raise Refused(
            f"{root} has {len(episodes)} episodes of {steps} steps together; its {ABOUT} says "
            f"{told[0]} of {told[1]}: is the data set whole?"
        )


def _joined(
    root: Path, about: dict[str, Any], episodes: list[dict[str, Any]], declared: Declared,
    given: Limits | None,
) -> Dataset:  # fmt: skip
    """The dataset of sound episodes."""
    with canonical.damage(root, "data set of Minari"):
        ours = {"facts": {}, "steps": []} | about.get(OURS, {})
        facts = ours["facts"] | {n: x for n, x in about.items() if n not in (OURS, "dataset_size")}
        rows = {
            p.name: np.concatenate([e["obs"][p.name] for e in episodes]) for p in declared.parts
        }
        for name, theirs in (("action", "actions"), ("reward", "rewards")):
            rows[name] = np.concatenate(
                [np.append(e[theirs], 0 * e[theirs][:1], 0) for e in episodes]
            )
        for name in ours["steps"]:
            rows[name] = np.concatenate(
                [np.roll(e["infos"][f"infos/{name}"], -1, axis=0) for e in episodes]
            )
        low, high = given or [np.ravel(declared.action[name]) for name in ("low", "high")]
    rows["reward"] = rows["reward"].reshape(-1)
    ends = Ends(
        *(np.array([bool(e[n].ravel()[-1]) for e in episodes]) for n in minari_hdf5.FIELDS[1:])
    )
    files = sorted(p for p in root.rglob("*") if p.is_file())
    facts |= {"format": "minari", "files": canonical.hashed(root, files)}
    left = {n for e in episodes for n in e["infos"]} - {f"infos/{n}" for n in ours["steps"]}
    if left := [*declared.texts, *sorted(left)]:
        facts["left_out"] = left
    lengths = np.array([len(e["rewards"]) + 1 for e in episodes])
    none = np.zeros(len(episodes), bool)
    found = canonical.gathered(str(root), rows, lengths, ends, none, (low, high), facts)
    found = found._replace(episodes=found.episodes | _columns(episodes, OURS in about))
    if given is None and OURS in about and found.sha256 != ours.get("sha256"):
        raise Refused(f"{root} is damaged, or was changed: it does not hold what its hash is of.")
    return found


def _columns(episodes: list[dict[str, Any]], ours: bool) -> dict[str, np.ndarray]:
    """The numbers that every episode has in its metadata, and its success if infos tell."""
    found: dict[str, np.ndarray] = {}
    for name in episodes[0]["about"]:
        values = [np.asarray(e["about"].get(name, "")) for e in episodes]
        alike = len({(x.dtype, x.shape) for x in values}) == 1 and values[0].dtype.kind in "fiub"
        if alike and name != "id" and not name.startswith("rewards_"):
            x = np.stack(values)
            # JSON may have a flag as a number.
            is_flag = name == "success" and not ours and np.isin(x, (0, 1)).all()
            found["length" if name == "total_steps" else name] = x.astype(bool) if is_flag else x
    told = [e["infos"].get("infos/success") for e in episodes]
    if not ours and "success" not in found and all(x is not None for x in told):
        found["success"] = np.array([bool(np.any(x)) for x in told])
    return found


def _narrow(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Observations and rewards as readers have them."""
    kinds = "obs", "reward"
    return {
        n: canonical.narrowed(x) if n.removeprefix("last_").split("/")[0] in kinds else x
        for n, x in arrays.items()
    }


def check_name(path: Path) -> None:
    """Raise ValueError unless Minari can name a folder so."""
    if not re.fullmatch(r"[-\w]+-v\d+", path.name):
        raise Refused(
            f"{path} is no name of a dataset: ours are files, as reach.npz, and Minari's are "
            "folders, as reach-v0."
        )


def write(path: Path, data: Dataset) -> str:
    """A new folder of HDF5 that Minari reads, whole or not at all; its data's hash.

    Actions stay in [-1, 1]; what Minari has no place for is among its infos.
    """
    check_name(path)
    dataset.check(str(path), data)
    data = Dataset(_narrow(data.steps), _narrow(data.episodes), data.facts)  # as it will be read
    if path.exists():
        raise Refused(f"{path} is there already: name another folder, or delete it.")
    if not data.has_actions:
        raise Refused(f"{path} would have no actions, which Minari needs: {dataset.MEND}.")
    if not -1 <= data.steps["action"].min() <= data.steps["action"].max() <= 1:
        raise Refused(f"{path} would have actions out of [-1, 1]: is it a dataset of ours?")
    extra = sorted(data.steps.keys() - {*STEPS, *data.parts("obs")})
    facts = {n: x for n, x in data.facts.items() if n not in ("schema", "sha256")}
    action = box(data.steps["action"].shape[1:], -1.0, 1.0, str(data.steps["action"].dtype))
    about: dict[str, Any] = {
        "total_episodes": len(data.starts), "total_steps": len(data.steps["action"]),
        "data_format": "hdf5", "jpeg_encoding": False,
        "observation_space": json.dumps(space_of(data.parts("obs"))),
        "action_space": json.dumps(action), "dataset_id": path.name, "minari_version": VERSION,
        OURS: {"facts": facts, "steps": extra, "sha256": data.sha256},
    }  # fmt: skip
    partial = path.with_name(f"{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        below = partial / "data.partial"  # nothing that Minari would take for a data set
        below.mkdir()
        minari_hdf5.write(below / minari_hdf5.MAIN, data, extra)
        (below / ABOUT).write_text(json.dumps(about), "utf-8")
        os.rename(below, partial / "data")
        os.rename(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return data.sha256
