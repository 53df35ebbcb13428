"""LeRobot's folders, v3.0 (Hugging Face, 2025): rows of steps in Parquet, episodes in a table.

The last row of an episode tells what was seen last; it is a step too where the episode ended in
success.  No bounds of actions are declared: the smallest and largest of the data stand for them.
Films are left out.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from rl.data import canonical
from rl.data.canonical import Ends, Limits, Refused
from rl.data.dataset import Dataset
from rl.data.minari_arrow import numbers_of

FLAGS = "next.done", "next.truncated", "next.terminated", "next.success"
INDICES = "index", "episode_index", "frame_index", "task_index"


def read(path: Path, limits: Limits | None = None) -> Dataset:
    """The dataset in a folder; `limits` of actions, if not those of its meta/stats.json."""
    about = canonical.parsed(path / "meta/info.json", "LeRobot")
    version = str(about.get("codebase_version"))
    if not version.startswith("v3."):
        raise Refused(
            f"{path} is LeRobot's {version}; v3.0 is read: LeRobot's own "
            "convert_dataset_v21_to_v30 makes one of the other."
        )
    features = about.get("features")
    if not isinstance(features, dict) or "action" not in features:
        raise Refused(f"{path}/meta/info.json has no feature named action.")
    seen = {n: f["dtype"] for n, f in features.items() if n.split(".")[0] == "observation"}
    seen = {n: dtype for n, dtype in seen.items() if dtype not in ("video", "string")}
    if not seen:
        raise Refused(f"{path} has no observations but films, which are not read.")
    wanted = [*seen, "action", *INDICES]
    wanted += [name for name in ("next.reward", *FLAGS) if name in features]
    arrays = _columns(path, "data", wanted, features)
    lengths = _lengths(path, about, arrays)
    count, where = int(lengths.sum()), str(path)
    rows = {"action": canonical.matrix(where, "action", _tall(arrays["action"]), count)}
    for name in seen:
        place = name.replace("observation", "obs", 1).replace(".", "/")
        rows["obs" if len(seen) == 1 else place] = _tall(arrays[name])
    if "next.reward" in arrays:
        rows["reward"] = canonical.column(where, "next.reward", arrays["next.reward"], count)
    flags = {n: canonical.flag(where, n, arrays[n], count) for n in FLAGS if n in arrays}
    last = np.cumsum(lengths) - 1
    _check_ends(where, flags, last)
    nothing = np.zeros(count, bool)
    terminated = flags.get("next.terminated", flags.get("next.success", nothing))[last]
    ends = Ends(terminated, (flags.get("next.truncated", nothing))[last])
    facts = _facts(path, about, {*arrays, "timestamp"})
    if limits is None:
        limits = _limits(path)
        facts["action_bounds"] = "the smallest and largest of meta/stats.json: none are declared"
    found = canonical.gathered(where, rows, lengths, ends, terminated, limits, facts)
    alive = lengths - ~terminated > 0
    own = {"task": arrays["task_index"][last][alive]}
    if "next.success" in flags:
        own["success"] = np.logical_or.reduceat(flags["next.success"], last - lengths + 1)[alive]
    return found._replace(episodes=found.episodes | own)


def _check_ends(where: str, flags: dict[str, np.ndarray], last: np.ndarray) -> None:
    for name in FLAGS[:3]:
        inner = flags.get(name, np.zeros(0, bool)).copy()
        inner[last[last < len(inner)]] = False
        if inner.any():
            row = int(inner.argmax())
            raise Refused(
                f"{where} has {name} in row {row}, in the midst of episode "
                f"{np.searchsorted(last, row)}."
            )


def _tall(x: np.ndarray) -> np.ndarray:
    return canonical.narrowed(x[:, None] if x.ndim == 1 else x)


def _files(path: Path, below: str) -> list[Path]:
    found = sorted((path / below).rglob("*.parquet"))
    if not found:
        raise Refused(f"{path} has no {below}/chunk-000/file-000.parquet: is the data set whole?")
    return found


def _columns(
    path: Path, below: str, wanted: list[str], features: dict[str, Any]
) -> dict[str, np.ndarray]:
    """The columns of all files below a folder, one after another."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise canonical.needs("LeRobot", "pyarrow") from None
    parts = []
    for file in _files(path, below):
        with canonical.damage(file, "Parquet of LeRobot"):
            table = pyarrow.parquet.ParquetFile(file, page_checksum_verification=True).read(wanted)
            table.validate(full=True)
            if missing := [name for name in wanted if name not in table.column_names]:
                raise Refused(f"{file} has no {missing[0]}, which meta/info.json says is there.")
        found = {}
        for name in wanted:
            with canonical.damage(file, f"{name} of LeRobot"):
                found[name] = _array(table[name], features.get(name, {}))
        parts.append(found)
    with canonical.damage(path, f"{below} of LeRobot"):
        return {name: np.concatenate([part[name] for part in parts]) for name in wanted}


def _array(column: Any, feature: dict[str, Any]) -> np.ndarray:
    if feature.get("dtype") == "image":
        return canonical.decoded(one["bytes"] for one in column.to_pylist())
    x = numbers_of(column)
    if not feature:
        return x
    if x.dtype != feature["dtype"] or x[0].size != np.prod(feature["shape"], dtype=int):
        raise ValueError(
            f"it is {x.dtype} of {x[0].size} numbers; meta/info.json says {feature['dtype']} of "
            f"{feature['shape']}"
        )
    return x if x.ndim == 1 else x.reshape(len(x), *feature["shape"])


def _lengths(path: Path, about: dict[str, Any], arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Of episodes, which must lie in the rows one after another."""
    names = ["episode_index", "length", "dataset_from_index", "dataset_to_index"]
    number, length, begin, end = _columns(path, "meta/episodes", names, {}).values()
    count = len(arrays["index"])
    for episode, at in enumerate(np.append(0, end[:-1])):
        if (
            number[episode] != episode
            or begin[episode] != at
            or end[episode] - at != length[episode]
        ):
            raise Refused(
                f"{path} has an episode {number[episode]} of {length[episode]} rows from "
                f"{begin[episode]} to {end[episode]} in meta/episodes, where episode {episode} "
                f"from {at} belongs: episodes overlap, or one is missing."
            )
    told = about.get("total_episodes"), about.get("total_frames")
    if not len(end) or end[-1] != count or length.min() < 1 or told != (len(end), count):
        raise Refused(
            f"{path} has {count} rows in data, and {len(end)} episodes of {length.sum()} in "
            f"meta/episodes; meta/info.json says {told[0]} of {told[1]}: is the data set whole?"
        )
    wanted = {
        "index": np.arange(count), "episode_index": np.repeat(number, length),
        "frame_index": np.arange(count) - np.repeat(begin, length),
    }  # fmt: skip
    for name, x in wanted.items():
        if (wrong := arrays[name] != x).any():
            row = int(wrong.argmax())
            raise Refused(
                f"{path} has a {name} of {arrays[name][row]} in row {row} of data, in episode "
                f"{wanted['episode_index'][row]}; {x[row]} belongs there."
            )
    return length


def _limits(path: Path) -> Limits:
    stats = canonical.parsed(path / "meta/stats.json", "LeRobot")
    with canonical.damage(path / "meta/stats.json", "JSON of LeRobot"):
        low, high = (np.array(stats["action"][name], np.float64) for name in ("min", "max"))
    return low.ravel(), high.ravel()


def _facts(path: Path, about: dict[str, Any], used: set[str]) -> dict[str, Any]:
    files = [
        p for below in ("data", "meta") for p in sorted((path / below).rglob("*")) if p.is_file()
    ]
    facts = {"format": "lerobot", "files": canonical.hashed(path, files)}
    facts |= {n: about[n] for n in ("codebase_version", "robot_type", "features") if n in about}
    if about.get("fps"):
        facts["control_dt"] = 1 / about["fps"]  # s
    if left := sorted(about["features"].keys() - used):
        facts["left_out"] = left
    if (tasks := path / "meta/tasks.parquet").is_file():
        import pyarrow.parquet

        with canonical.damage(tasks, "Parquet of LeRobot"):
            rows = pyarrow.parquet.read_table(tasks).to_pylist()
            texts = [str(next(x for n, x in row.items() if n != "task_index")) for row in rows]
            facts["tasks"] = [
                x for _, x in sorted(zip([r["task_index"] for r in rows], texts, strict=True))
            ]
    return json.loads(json.dumps(facts))
