"""Whether the several ways of an expert can be told apart in its data: paths, clustered.

python -m benchmarks.modes data/panda-pick-cube.npz --out modes.png
python -m benchmarks.modes data/push-t.npz --rollouts data/flow.npz data/bc.npz --out modes.png

Rollouts (make_data --by RUN) go to the nearest of the clusters of demonstrations: which of their
ways an imitator keeps.

An episode is described by how far the tool's path strays from a straight line, to the object and
on from there; of a pushed object, by how far the tool goes round it.  The clustering does not see
which way the expert chose.
"""

from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tyro
from scipy.cluster.vq import kmeans2

from benchmarks.process import guard
from rl.data import npz
from rl.data.dataset import Dataset

POINTS = 24  # that a path is resampled to
STIRRED = 0.01  # m from where it was, of a thing that was touched
DRAWN = 30  # paths of each way
LEAST = 30  # episodes
READINGS = "obs/world/raw/"
COLOURS = "tab:blue", "tab:orange", "tab:green", "tab:red", "tab:purple"


@dataclass(frozen=True)
class Args:
    data: tyro.conf.Positional[Path]
    rollouts: tuple[Path, ...] = ()  # of make_data --by RUN, of imitators of that data
    out: Path | None = None  # a picture


class Told(NamedTuple):
    """What is told of episodes."""

    paths: list[np.ndarray]  # [E] of [POINTS, 3] m, of the tool
    turned: list[np.ndarray]  # [E] of [POINTS], round a thing that is pushed; or none
    features: np.ndarray  # [E, F] of the one or the other


class Clusters(NamedTuple):
    """What came of it."""

    paths: list[np.ndarray]
    turned: list[np.ndarray]
    seen: np.ndarray  # [E, 2] principal components of what is clustered
    mean: np.ndarray  # [F] of features
    axes: np.ndarray  # [F, 2] of the components
    middles: np.ndarray  # [ways] of each way's cluster, along the first
    found: np.ndarray  # [E] cluster of each episode, numbered as the way that it fits best
    ways: np.ndarray  # [E] as the expert had it

    @property
    def agreement(self) -> float:
        """Share of the episodes that lie in the cluster of their way."""
        return float((self.found == self.ways).mean())


def told(data: Dataset) -> Told:
    """What the tool does on its way, or round a thing, in each episode of a dataset."""
    ends = np.cumsum(data.episodes["length"])
    spans = [slice(a, b) for a, b in zip(ends - data.episodes["length"], ends, strict=True)]
    read = {name.removeprefix(READINGS): x for name, x in data.steps.items() if READINGS in name}
    thing = next((n.removesuffix("_linvel") for n in read if n.endswith("_linvel")), "tool")
    routes = [read["tool_pos"][span] for span in spans]
    both = [(read["tool_pos"][span], read[f"{thing}_pos"][span]) for span in spans]
    pushed = f"{thing}_ahead" in read  # what lies one way or another
    turned = [turns(*x) for x in both] if pushed else []
    telling = turned or [detours(*x) for x in both]
    return Told([evenly(x) for x in routes], turned, np.stack([x.ravel() for x in telling]))


def clustered(data: Dataset) -> Clusters:
    """The episodes of a dataset whose ways are known, by what is told of them without these."""
    paths, turned, features = told(data)
    mean = features.mean(0)
    axes = np.linalg.svd(features - mean, full_matrices=False)[2][:2].T
    seen, ways, count = (features - mean) @ axes, data.episodes["way"], len(data.facts["ways"])
    tries = [
        kmeans2(seen[:, :1], count, minit="++", rng=np.random.default_rng(i)) for i in range(20)
    ]
    middles, best = min(
        tries, key=lambda made: float(((seen[:, :1] - made[0][made[1]]) ** 2).sum())
    )
    names = max(permutations(range(count)), key=lambda p: (np.array(p)[best] == ways).sum())
    order = np.argsort(names)
    found = np.array(names)[best]
    return Clusters(paths, turned, seen, mean, axes, middles[order, 0], found, ways)


def placed(made: Clusters, features: np.ndarray) -> np.ndarray:
    """The way [E] of each of other episodes, by the nearest cluster."""
    along = (features - made.mean) @ made.axes[:, 0]
    return np.abs(along[:, None] - made.middles).argmin(1)


def evenly(x: np.ndarray) -> np.ndarray:
    """A path [T, D] at POINTS places of equal distance along it."""
    gone = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(x, axis=0), axis=1))])
    at = np.linspace(0, gone[-1], POINTS)
    return np.stack([np.interp(at, gone, column) for column in x.T], 1)


def detours(tool: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """How far a tool is off the straight way [2 POINTS, 3], m: to a thing, and on from there."""
    moved = np.linalg.norm(thing - thing[0], axis=1) > STIRRED
    first = int(moved.argmax()) if moved.any() else 0
    legs = [evenly(leg) for leg in (tool[: first + 1], tool[first:])]
    return np.concatenate([x - np.linspace(x[0], x[-1], POINTS) for x in legs])


def turns(tool: np.ndarray, thing: np.ndarray) -> np.ndarray:
    """What of all its turning round a thing has brought a tool on [POINTS], anticlockwise."""
    off = tool[:, :2] - thing[:, :2]
    bearing = np.unwrap(np.arctan2(off[:, 1], off[:, 0]))
    at = np.linspace(0, len(bearing) - 1, POINTS)
    gone = np.interp(at, np.arange(len(bearing)), bearing - bearing[0])
    return gone / max(np.abs(np.diff(bearing)).sum(), 1e-6)


def picture(path: Path, data: Dataset, made: Clusters, others: dict[str, Told]) -> None:
    """Paths from above and from the side by way, and what clusters see; rollouts' beside."""
    from matplotlib.figure import Figure  # slow to import

    lines, columns = 1 + bool(others), max(3, len(others))
    figure = Figure(figsize=(3.7 * columns, 3.4 * lines + 0.3), layout="constrained")
    above, side, seen, *more = figure.subplots(lines, columns).ravel()
    for axis in [*more[: columns - 3], *more[columns - 3 + len(others) :]]:
        axis.set_axis_off()
    for way, name in enumerate(data.facts["ways"]):
        mine, colour = made.ways == way, COLOURS[way]
        for i, episode in enumerate(np.flatnonzero(mine)[:DRAWN]):
            route, label = made.paths[episode], name if i == 0 else None
            above.plot(route[:, 1], route[:, 0], color=colour, lw=0.6, alpha=0.6, label=label)
            line = (range(POINTS), made.turned[episode]) if made.turned else route[:, 1:].T
            side.plot(*line, color=colour, lw=0.6, alpha=0.6)
        seen.scatter(*made.seen[mine, :2].T, color=colour, s=14, label=name)
    wrong = made.found != made.ways
    seen.scatter(*made.seen[wrong, :2].T, s=60, facecolors="none", edgecolors="k", label="mistaken")
    above.set(title="tool, from above", xlabel="y, m", ylabel="x, m")
    if made.turned:
        side.set(title="turning round it", xlabel="time", ylabel="share of its turning", xticks=[])
    else:
        side.set(title="from the front", xlabel="y, m", ylabel="z, m")
    seen.set(title=f"{made.agreement:.1%} clustered with their way", xlabel="first component",
             ylabel="second")  # fmt: skip
    for axis, (name, those) in zip(more[columns - 3 :], others.items(), strict=False):
        rollouts(axis, name, those, placed(made, those.features))
        axis.set(xlim=side.get_xlim(), ylim=side.get_ylim(), xticks=side.get_xticks())
    figure.legend(*above.get_legend_handles_labels(), loc="outside lower center",
                  ncols=len(data.facts["ways"]), frameon=False)  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def rollouts(axis: Any, name: str, those: Told, ways: np.ndarray) -> None:
    """As the demonstrations are seen from the side, in the colours of the nearest ways."""
    for episode, way in list(enumerate(ways))[: 2 * DRAWN]:
        path, colour = those.paths[episode], COLOURS[way]
        line = (range(POINTS), those.turned[episode]) if those.turned else path[:, 1:].T
        axis.plot(*line, color=colour, lw=0.6, alpha=0.6)
    what = ("time", "share of its turning") if those.turned else ("y, m", "z, m")
    axis.set(title=name, xlabel=what[0], ylabel=what[1])


def counted(data: Dataset, found: np.ndarray) -> str:
    """How many episodes go each way."""
    names = data.facts["ways"]
    return ", ".join(f"{name} {int((found == i).sum())}" for i, name in enumerate(names))


def recorded(path: Path, known: Path, data: Dataset) -> Dataset:
    """Rollouts; ValueError unless they tell what demonstrations do, and of the same task."""
    found = npz.read(path)
    if found.facts.get("task") != data.facts["task"]:
        raise ValueError(
            f"{path} is of {found.facts.get('task')}, and {known} of {data.facts['task']}."
        )
    if not any(READINGS in name for name in found.steps):
        raise ValueError(f"{path} has no readings: make_data --by RUN writes them.")
    return found


def main(args: Args) -> None:
    data = npz.read(args.data)
    ways, count = len(data.facts.get("ways", [])), len(data.episodes["length"])
    if ways < 2 or count < LEAST:
        raise ValueError(
            f"{args.data} has {count} episodes of {ways} ways; at least {LEAST} of 2 are needed."
        )
    made = clustered(data)
    print(f"clusters {counted(data, made.found)}")
    print(f"agree    {made.agreement:.1%} of {len(made.ways)} episodes")
    others = {path.stem: told(recorded(path, args.data, data)) for path in args.rollouts}
    for name, those in others.items():
        print(f"{name:8} {counted(data, placed(made, those.features))}")
    if args.out:
        picture(args.out, data, made, others)
        print(f"picture  {args.out}")


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.modes")))
