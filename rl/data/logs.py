"""Our own recordings: the log of `python -m rl.bridge sim --log`, and the replay of a run.

A log's row is what a step led to, and what led to it: an episode of T + 1 rows has T steps, for
what was seen before the first was not recorded.  Neither has what its reader would have to guess:
a log has no reward, and does not say why an episode ended.
"""

from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from rl import checkpoint, runs
from rl.data import archive, canonical, dataset
from rl.data.canonical import Ends, Limits, Refused
from rl.data.dataset import Dataset
from rl.saver import BLOCK
from rl.types import Transition

SEEN = "qpos", "qvel", "torque", "contact"
COLUMNS = *SEEN, "targets", "command", "time", "damped", "episode", "silent"


def read_log(path: Path, limits: Limits | None = None) -> Dataset:
    """The dataset of a log; `limits` of the motors' targets, if not the least and most of them."""
    where, arrays = str(path), archive.read(path, "a log of the bridge", COLUMNS)
    count = len(arrays["episode"])
    number = canonical.column(where, "episode", arrays["episode"], count)
    begins = np.flatnonzero(np.diff(number, prepend=-1))
    if not count or (np.diff(number[begins], prepend=-1) < 1).any():
        raise Refused(f"{where} has no rows, or episodes that are not one after another.")
    rows = {f"obs/{n}": canonical.matrix(where, n, arrays[n], count) for n in SEEN}
    lengths = np.diff(begins, append=count)
    # A row has what led to it; a step what it leads to.
    led = np.minimum(np.arange(count) + 1, count - 1)
    for name, theirs in (("action", "targets"), ("command", "command")):
        rows[name] = canonical.matrix(where, theirs, arrays[theirs], count)[led]
    for name in ("damped", "silent"):
        rows[name] = canonical.narrowed(canonical.column(where, name, arrays[name], count))[led]
    facts: dict[str, Any] = {"format": "bridge log", "files": canonical.hashed(path.parent, [path])}
    inner = np.diff(canonical.column(where, "time", arrays["time"], count))[np.diff(number) == 0]
    if len(inner):
        dt = facts["control_dt"] = float(np.median(inner))  # s
        if not np.isclose(inner, dt, rtol=1e-3).all():
            raise Refused(f"{where} lacks rows: its steps are not all of {dt:g} s.")
    if limits is None:
        if not np.isfinite(arrays["targets"]).all():
            raise Refused(f"{where} has targets that are no finite number.")
        limits = arrays["targets"].min(0), arrays["targets"].max(0)
        facts["action_bounds"] = "the least and most of the targets: a log declares none"
    none = np.zeros(len(lengths), bool)
    found = canonical.gathered(where, rows, lengths, Ends(none, none), none, limits, facts)
    return found._replace(episodes=found.episodes | {"number": number[begins][lengths > 1]})


def read_replay(path: Path) -> Dataset:
    """The dataset of a run's replay, or of a run's folder; an episode is of one seed and world.

    Actions are clipped to [-1, 1], as a task does with what a policy gives; rewards are the task's,
    whatever the run learned from.
    """
    folder = path / "replay" if (path / "replay").is_dir() else path
    rows = _blocks(folder)
    left = sorted(name for name in rows if name.split("/")[0] == "aux")
    seeds, count, worlds = rows["reward"].shape
    # [S, T, N, ...] as [S N T, ...]: a world's rows after another's
    steps = {
        n: np.swapaxes(x, 1, 2).reshape(-1, *x.shape[3:]) for n, x in rows.items() if n not in left
    }
    steps = {n: canonical.narrowed(x) for n, x in steps.items()}
    steps["action"] = np.clip(steps["action"], -1, 1)
    over = steps["terminated"] | steps["truncated"]
    over.reshape(-1, count)[:, -1] = True
    last = np.flatnonzero(over)
    episodes = {"length": np.diff(last, prepend=-1)}
    stream = last // count
    episodes |= {"seed": stream // worlds, "world": stream % worlds}
    facts = {"format": "replay", "seeds": seeds, "worlds": worlds} | _run(folder.parent)
    facts["files"] = canonical.hashed(folder, [found for _, _, found in _listed(folder)])
    steps["reward"] = _of_task(str(folder), steps["reward"], facts.get("config", {}))
    if left:
        facts["left_out"] = left
    ends = Ends(steps["terminated"][last], steps["truncated"][last])
    if cut := int((~ends.terminated & ~ends.truncated).sum()):
        facts["cut"] = cut  # episodes
    found = dataset.compact(steps, episodes, facts, str(folder))
    return canonical.finished(str(folder), found.steps, found.episodes, ends, facts)


def _of_task(where: str, reward: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Rewards before the run scaled and shifted them."""
    scale, shift = config.get("reward_scale", 1.0), config.get("reward_shift", 0.0)
    if (scale, shift) == (1, 0):
        return reward
    if scale == 0:
        raise Refused(f"{where} is of a run with --reward-scale 0: the rewards are lost.")
    return ((reward.astype(np.float64) - shift) / scale).astype(np.float32)


def _run(run: Path) -> dict[str, Any]:
    """What a run's manifest tells of where its replay comes from."""
    if not (run / "manifest.json").is_file():
        return {}
    told = runs.read_manifest(run)
    found = {n: told[n] for n in ("algorithm", "config", "commit", "control_dt") if n in told}
    if "env" in told and "env" in told.get("config", {}):  # as make_data tells them
        found |= {"task": told["env"], "env": told["config"]["env"]}
    return found


def _listed(folder: Path) -> list[tuple[int, int, Path]]:
    named = ((BLOCK.fullmatch(p.name), p) for p in folder.glob("rows-*"))
    return sorted((int(m[1]), int(m[2]), p) for m, p in named if m)


def _blocks(folder: Path) -> dict[str, np.ndarray]:
    """The rows of all blocks by their names, from the first that is there."""
    parts: list[dict[str, np.ndarray]] = []
    begin = None
    for first, end, path in _listed(folder):
        begin = first if begin is None else begin
        if first > begin:
            raise Refused(f"{folder} lacks the rows {begin:,} to {first:,}: is it whole?")
        if begin < end:
            rows = _block(path, end - first)
            parts.append({name: x[:, begin - first :] for name, x in rows.items()})
            begin = end
    if not parts:
        raise Refused(f"{folder} has no rows-*.safetensors: it is no replay of a run.")
    if any(part.keys() != parts[0].keys() for part in parts):
        raise Refused(f"{folder} has blocks of several tasks: their rows have other names.")
    with canonical.damage(folder, "replay of ours"):
        return {n: np.concatenate([part[n] for part in parts], axis=1) for n in parts[0]}


def _block(path: Path, count: int) -> dict[str, np.ndarray]:
    try:
        with safe_open(path, framework="numpy") as file:
            seal = file.metadata() or {}
            rows = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise Refused(f"{path} is damaged, or no block of a replay: {error}.") from error
    if missing := [n for n in ("action", "reward", "terminated", "truncated") if n not in rows]:
        raise Refused(f"{path} has no {missing[0]}: it is no block of a replay.")
    if checkpoint.fingerprint(_tree(path, rows)) != seal.get("hash"):
        raise Refused(f"{path} is damaged: its contents do not match their hash.")
    if any(x.shape[:3] != (len(x), count, *x.shape[2:3]) for x in rows.values()):
        raise Refused(f"{path} does not hold the {count} rows that its name says.")
    return rows


def _tree(path: Path, rows: dict[str, np.ndarray]) -> Transition:
    """Rows in the order in which they were hashed: that of a transition's leaves."""
    fields: dict[str, Any] = dict.fromkeys(Transition._fields, ())
    for name, x in rows.items():
        *above, last = name.split("/")
        inner = fields
        for key in above:
            inner[key] = inner.get(key) or {}
            inner = inner[key]
        inner[last] = x
    if odd := fields.keys() - set(Transition._fields):
        raise Refused(f"{path} is damaged: no transition has {sorted(odd)[0]}.")
    return Transition(**fields)
