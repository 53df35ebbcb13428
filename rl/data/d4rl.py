"""D4RL's HDF5 (Fu et al. 2020, arXiv:2004.07219): rows of steps, one episode after another.

First versions have no `timeouts`: episodes end at a terminal or after `horizon` steps.  Where the
files have no next observations, the last row of an episode that goes on tells what was seen last,
and is no step: D4RL's own readers drop it too, and with it terminals that fall on a time-out.
"""

from pathlib import Path
from typing import Any

import numpy as np

from rl.data import canonical
from rl.data.canonical import Ends, Limits, Refused
from rl.data.dataset import Dataset

WANTED = "observations", "actions", "rewards", "terminals"
OTHERS = "timeouts", "next_observations"
SHUFFLED = 0.5  # share of rows whose next observation is not the next row's
JUMP = 1e-5  # between a next observation and the next row's, of their size: another episode


def read(path: Path, horizon: int | None = None, limits: Limits = (-1, 1)) -> Dataset:
    """The dataset in a file; `horizon`: the most steps of an episode, where it has no timeouts."""
    arrays, facts = _arrays(path)
    count, where = len(arrays["observations"]), str(path)
    obs = canonical.matrix(where, "observations", arrays["observations"], count)
    terminals = canonical.flag(where, "terminals", arrays["terminals"], count)
    after = arrays.get("next_observations")
    if after is not None:
        after = canonical.matrix(where, "next_observations", after, count)
        if after.shape != obs.shape or not np.isfinite(after).all():
            raise Refused(f"{where} has next_observations of another shape, or no finite numbers.")
    timeouts = _timeouts(where, arrays, terminals, horizon)
    jumps = np.zeros(count, bool)
    if after is not None:
        gap = np.abs(after[:-1] - obs[1:]) > JUMP * (1 + np.abs(obs[1:]))
        jumps[:-1] = gap.any(tuple(range(1, gap.ndim)))
        if jumps.mean() > SHUFFLED:
            raise Refused(
                f"{where} has next_observations that are not those of the rows after: its rows are "
                "not in the order of time, and have no episodes."
            )
        if "timeouts" not in arrays and horizon is None:
            timeouts = jumps & ~terminals
    over = terminals | timeouts | jumps
    over[-1] = True
    last = np.flatnonzero(over)
    ends, lengths = Ends(terminals[last], timeouts[last]), np.diff(last, prepend=-1)
    rows = {
        "obs": obs,
        "action": canonical.matrix(where, "actions", arrays["actions"], count),
        "reward": canonical.column(where, "rewards", arrays["rewards"], count),
    }
    keeps = ends.terminated if after is None else np.ones(len(last), bool)
    found = canonical.gathered(where, rows, lengths, ends, keeps, limits, facts)
    if after is None:
        return found
    seen = {name: x for name, x in found.facts.items() if name != "last_obs"}
    return found._replace(episodes=found.episodes | {"last_obs": after[last]}, facts=seen)


def _timeouts(
    where: str, arrays: dict[str, np.ndarray], terminals: np.ndarray, horizon: int | None
) -> np.ndarray:
    if horizon is not None and horizon < 1:
        raise Refused(f"horizon is {horizon}; an episode has at least one step.")
    if "timeouts" in arrays:
        if horizon is not None:
            raise Refused(f"{where} has timeouts of its own: leave the horizon out.")
        return canonical.flag(where, "timeouts", arrays["timeouts"], len(terminals))
    out, begin = np.zeros(len(terminals), bool), 0
    if horizon is None:
        if "next_observations" not in arrays:
            raise Refused(
                f"{where} has no timeouts and no next_observations, so it does not say where "
                "episodes end: give --horizon, the most steps of an episode (gym's "
                "max_episode_steps)."
            )
        return out
    for end in [*np.flatnonzero(terminals), len(terminals) - 1]:
        out[begin + horizon - 1 : end + 1 : horizon] = True
        begin = end + 1
    return out


def _arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    with canonical.hdf5(path, "D4RL") as file:
        names = set(file)
        if missing := [name for name in WANTED if name not in names]:
            raise Refused(f"{path} has no {missing[0]}: it is no D4RL, which has {WANTED}.")
        if odd := names - {*WANTED, *OTHERS, "infos", "metadata"}:
            raise Refused(
                f"{path} has {sorted(odd)[0]!r}, which D4RL has not: delete it from the file if it "
                "is meant to be there."
            )
        arrays: dict[str, Any] = {
            name: canonical.stored(file[name]) for name in (*WANTED, *OTHERS) if name in names
        }
        about = _told(file["metadata"]) if "metadata" in names else {}
        infos = sorted(f"infos/{name}" for name in file.get("infos", ()))
    rows = {name: x.shape[:1] for name, x in arrays.items()}
    for name, (count,) in ((n, x or (0,)) for n, x in rows.items()):
        if not count or (count,) != rows["observations"]:
            raise Refused(f"{path} has {count} rows of {name}; all have as many, and at least one.")
    files = canonical.hashed(path.parent, [path])
    return arrays, {"format": "d4rl", "files": files, "metadata": about, "left_out": infos}


def _told(group: Any) -> dict[str, Any]:
    """The texts and single numbers of a file's metadata; not, say, the policy's weights."""
    found: dict[str, Any] = {}

    def add(name: str, item: Any) -> None:
        if getattr(item, "shape", None) == ():
            value = item[()]
            found[name] = value.decode() if isinstance(value, bytes) else value.item()

    group.visititems(add)
    return found
