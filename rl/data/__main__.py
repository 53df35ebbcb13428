"""Datasets of any format: what is in one, as another format, as a picture.

python -m rl.data info reach.npz
python -m rl.data convert halfcheetah.hdf5 halfcheetah.npz
python -m rl.data convert reach.npz data/reach-v0
python -m rl.data convert reach.npz reach-seen.npz --no-actions
python -m rl.data join medium-expert.npz medium.npz expert.npz
python -m rl.data plot reach.npz reach.png
"""

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from rl.data import dataset, faults, formats, minari, npz
from rl.data.dataset import Dataset
from rl.data.join import PART, joined
from rl.guard import guard

COLUMNS = 6  # of observations, that are drawn
TRACE = 200  # of an episode's steps, likewise


@dataclass(frozen=True, kw_only=True)
class Source:
    path: tyro.conf.Positional[Path]  # a file or folder, whose format it tells itself
    low: tuple[float, ...] = ()  # of actions, all or each: what -1 stands for, if not declared
    high: tuple[float, ...] = ()  # and 1
    horizon: int | None = None  # D4RL without time-outs: the most steps of an episode
    goal: tuple[float, ...] = ()  # OGBench: where the reward is 0 and nothing after has a value
    at: tuple[int, int] | None = None  # of qpos, from and to (without), what the goal is of
    tolerance: float | None = None  # how near to the goal is there


@dataclass(frozen=True, kw_only=True)
class Info(Source):
    """Say what is in a dataset, and what looks wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Convert(Source):
    """Write a dataset as ours (name.npz) or Minari's (a folder name-v0).

    Ours is read as it is written; any other format is held in memory, some three times its arrays.
    """

    out: tyro.conf.Positional[Path]  # that is not there yet
    actions: bool = True  # as they are; without, experiments.label may fill some in


@dataclass(frozen=True, kw_only=True)
class Plot(Source):
    """Draw returns, lengths, actions, rewards and a few observations."""

    out: tyro.conf.Positional[Path]  # a .png that is not there yet


@dataclass(frozen=True, kw_only=True)
class Join:
    """Write several datasets of one task as one of ours."""

    out: tyro.conf.Positional[Path]  # a .npz that is not there yet
    paths: tyro.conf.Positional[
        tuple[Path, ...]
    ]  # two or more, of any format that needs no telling
    episodes: tuple[int, ...] = ()  # so many of the first of each; 0, or nothing: all


Args = Info | Convert | Join | Plot


def load(args: Source) -> Dataset:
    given: dict[str, Any] = {}
    if bool(args.low) != bool(args.high):
        raise ValueError("--low and --high belong together: give both, or neither.")
    if args.low:
        given["limits"] = tuple(x[0] if len(x) == 1 else x for x in (args.low, args.high))
    for name in ("horizon", "goal", "tolerance"):
        if (value := getattr(args, name)) not in (None, ()):
            given[name] = value
    if args.at is not None:
        given["at"] = slice(*args.at)
    return formats.read(args.path, **given)


def info(args: Info) -> None:
    data = load(args)
    for line in told(data):
        print(line)
    wrong = list(faults.found(data))
    print("\nmay be wrong" if wrong else "\nnothing looks wrong")
    for sentence in wrong:
        print(f"  {sentence}")


def told(data: Dataset) -> Iterator[str]:
    """What is in a dataset, line by line."""
    facts, steps, lengths = data.facts, data.steps, data.episodes["length"]
    yield f"format     {facts.get('format', 'ours')}" + ", now ours" * (
        facts.keys() >= {"format", npz.HASH}
    )
    yield f"episodes   {len(lengths):,}"
    dt = facts.get("control_dt")
    seconds = f", {len(steps['reward']) * dt:,.1f} s" if dt else ""
    yield f"steps      {len(steps['reward']):,}{seconds}, {data.size / 1e6:,.1f} MB"
    seen = data.parts("obs") | data.parts("action")
    width = max(map(len, [*seen, " " * 10]))
    for name, x in seen.items():
        span = "no numbers"
        if x.size:
            low, high = faults.extremes(x)
            span = f"{low.min():.4g} to {high.max():.4g}"
        yield f"{name:{width}} {x.dtype}{list(x.shape[1:])} {span}"
    if not data.has_actions:
        yield f"{'action':{width}} none: {dataset.MEND}"
    if facts.get("action_low") is not None:
        ends = (", ".join(f"{x:g}" for x in facts[f"action_{end}"]) for end in ("low", "high"))
        yield "limits     " + " to ".join(ends) + " are what -1 to 1 stands for"
    for name, x in (("reward", steps["reward"]), ("return", data.sums()), ("length", lengths)):
        yield f"{name:10} {x.min():.4g} to {x.max():.4g}, {x.mean():.4g} in the mean"
    ends = [f"{int(steps[name].sum()):,} {name}" for name in ("terminated", "truncated")]
    yield f"ends       {', '.join(ends)}; {int((~steps['mask']).sum()):,} steps without a future"
    for name in sorted(steps.keys() - {"action", "reward", "terminated", "truncated", "mask"}):
        if name.split("/")[0] != "obs":
            yield f"with       {name} {steps[name].dtype}{list(steps[name].shape[1:])} of steps"
    if PART in data.episodes:
        counts = np.bincount(data.episodes[PART], minlength=len(facts.get("parts", ())))
        yield f"parts      of {', '.join(map(str, counts))} episodes, one after another"
    for name in sorted(data.episodes.keys() - {"length", PART}):
        if name.split("/")[0] != "last_obs":
            yield f"with       {name} of episodes, {data.episodes[name].mean():.4g} in the mean"
    if "labels" in facts:
        worth = facts["labels"]["held_out_r2"]
        yield f"actions    inferred (inverse dynamics), R^2 {worth:.3f} held out"
    for who, score in facts.get("scores", {}).items():
        yield f"score      {who}: " + ", ".join(f"{n} {x:.4g}" for n, x in score.items())
    if facts.get("left_out"):
        yield f"left out   {', '.join(facts['left_out'])}"
    yield f"sha256     {data.sha256}"


def convert(args: Convert) -> None:
    ours = args.out.suffix == ".npz"
    if args.out.exists():
        raise ValueError(f"{args.out} is there already: name another, or delete it.")
    if not ours:
        minari.check_name(args.out)
    data = load(args)
    if formats.reader(args.path) is not formats.ours:
        print(f"memory   {data.size / 1e6:,.1f} MB of arrays: {data.facts['format']} is read whole")
    kept = {name: x for name, x in data.facts.items() if name not in ("schema", npz.HASH)}
    steps = {name: x for name, x in data.steps.items() if args.actions or name != "action"}
    if not args.actions:
        kept["action"] = dataset.NONE
    data = data._replace(steps=steps, facts=kept)
    sha256 = npz.write(args.out, data) if ours else minari.write(args.out, data)
    print(f"episodes {len(data.starts):,} of {len(data.steps['reward']):,} steps")
    print(f"sha256   {sha256}")
    print(f"out      {args.out}")


def join(args: Join) -> None:
    if args.out.suffix != ".npz":
        raise ValueError(f"join makes a .npz, and {args.out} comes first: name one that ends so.")
    if len(args.paths) < 2:
        raise ValueError(f"join makes {args.out} of two or more datasets: name another after it.")
    npz.refuse_taken(args.out)
    named = {str(path): formats.read(path) for path in args.paths}
    if len(named) < len(args.paths):
        raise ValueError("A dataset is named twice.")
    data = joined(named, args.episodes)
    sha256 = npz.write(args.out, data)
    for path, part in zip(named, data.facts["parts"], strict=True):
        print(f"part     {part['episodes']:,} episodes of {path}")
    print(f"episodes {len(data.starts):,} of {len(data.steps['reward']):,} steps")
    print(f"sha256   {sha256}\nout      {args.out}")


def plot(args: Plot) -> None:
    from matplotlib.figure import Figure  # slow to import, and only needed here

    if args.out.suffix != ".png":
        raise ValueError(f"{args.out} is no .png: name one.")
    npz.refuse_taken(args.out)
    data = load(args)
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    axes = figure.subplots(2, 3)
    figure.suptitle(f"{args.path.name}: {len(data.starts):,} episodes")
    bars = {
        "return": (data.sums(), "episodes"), "length, steps": (data.episodes["length"], "episodes"),
        "reward": (faults.sample(data.steps["reward"]), "steps"),
    }  # fmt: skip
    for ax, (name, (x, what)) in zip(axes.flat, bars.items(), strict=False):
        ax.hist(np.asarray(x, np.float64), bins=40)
        ax.set(xlabel=name, ylabel=what, yscale="log" if name == "reward" else "linear")
    axes[1, 0].set(xlabel="action" if data.has_actions else "no actions", ylabel="steps")
    if data.has_actions:
        action, edges = faults.sample(data.steps["action"]), np.linspace(-1, 1, 41)
        for i in range(min(action.shape[1], 12)):
            axes[1, 0].hist(action[:, i], edges, histtype="step", label=f"{i}")
        axes[1, 0].legend(title="axis", fontsize=7, ncols=2)
    seen = sorted(data.parts("obs").items(), key=lambda part: part[1].ndim != 2 or not part[1].size)
    name, x = seen[0]
    flat = x.reshape(len(x), -1)[:, :COLUMNS]
    for ax, number in zip(axes[1, 1:], np.argsort(data.sums())[[0, -1]], strict=True):
        start, length = data.starts[number], min(data.episodes["length"][number], TRACE)
        for i in range(flat.shape[1]):
            ax.plot(flat[start : start + length, i], lw=0.8, label=f"{i}")
        which = "least" if ax is axes[1, 1] else "most"
        ax.set(xlabel="step", ylabel=name, title=f"episode {number}: {which} return")
        ax.legend(title="column", fontsize=7, ncols=2)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
        ax.ticklabel_format(axis="x", useOffset=False)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    partial = args.out.with_name(f"{args.out.name}.partial")
    figure.savefig(partial, dpi=120, format="png")
    os.replace(partial, args.out)
    print(f"out      {args.out}")


def main() -> None:
    about = "Datasets of any format: what is in one, as another format, as a picture."
    args = tyro.cli(Args, prog="python -m rl.data", description=about)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    guard(lambda: called(args))


def called(args: Args) -> None:
    match args:
        case Info():
            info(args)
        case Convert():
            convert(args)
        case Join():
            join(args)
        case Plot():
            plot(args)


if __name__ == "__main__":
    main()
