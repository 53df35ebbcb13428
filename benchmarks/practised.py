"""How a robot's practice went: minute by minute, whether all of it was kept, and a picture."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figures import panels
from experiments.lived import Pieces
from experiments.taken import EXPLORER
from rl import artefact
from rl.bridge.learn.ledger import Tail
from rl.bridge.learn.outbox import labelled

MINUTE = 1_200  # steps, at 20 a second
PEG = "hil/peg"  # what rows begin with that are drawn


class Episode(NamedTuple):
    """One that is over, or a part of one that is long."""

    steps: int
    by_human: int
    taken: int  # times that a human took over
    done: bool
    over: bool  # it was done or its time was; else a bridge held the robot, for its network's sake


def episodes(run: Path) -> list[Episode]:
    """Of all robots, in the order they came."""
    spec, pieces, found = artefact.read(run / EXPLORER).spec, dict[str, Pieces](), list[Episode]()
    last = 0  # episode
    for row in records(run):
        for piece in pieces.setdefault(row.actor, Pieces(spec)).take(row.record):
            acts = np.array([step.acts for step in piece.steps[:-1]])
            fresh, last = piece.steps[0].episode != last, piece.steps[0].episode
            taken = int((acts[1:] & ~acts[:-1]).sum()) + bool(acts[0] and fresh)
            over = piece.done or piece.steps[-1].over
            found.append(Episode(len(acts), int(acts.sum()), taken, piece.done, over))
    return found


def minutes(run: Path) -> dict[str, list[float]]:
    """For each minute of practice: share of steps by a human, times that it took over an episode,
    share of episodes that were done, and that were done without a human."""
    bins: list[list[Episode]] = []
    steps = 0
    for episode in episodes(run):
        at = steps // MINUTE
        bins += [[] for _ in range(at + 1 - len(bins))]
        bins[at].append(episode)
        steps += episode.steps
    if len(bins) > 1 and sum(x.steps for x in bins[-1]) < MINUTE / 2:
        bins.pop()
    told: dict[str, list[float]] = {"by_human": [], "taken": [], "done": [], "alone": []}
    for some in bins:
        count = max(sum(x.over for x in some), 1)
        told["by_human"].append(sum(x.by_human for x in some) / max(sum(x.steps for x in some), 1))
        told["taken"].append(sum(x.taken for x in some) / count)
        told["done"].append(sum(x.done for x in some) / count)
        told["alone"].append(sum(x.done and not x.by_human for x in some) / count)
    return {name: [round(x, 4) for x in row] for name, row in told.items()}


def kept(run: Path) -> dict[str, int]:
    """Records, those that are missing between those that came, and those that came twice: as
    numbered by who keeps them on the robot, and by its bridge."""
    due, counts = dict[tuple[str, bytes], int](), {"records": 0, "lost": 0, "duplicated": 0}
    for row in records(run):
        label = labelled(row.record)
        numbers: list[tuple[tuple[str, bytes], int]] = [(("robot", row.boot), row.seq)]
        numbers += [(("bridge", label[0]), label[1])] if label else []
        for who, number in numbers:
            expected = due.get(who, 0)
            counts["lost"] += max(number - expected, 0)
            counts["duplicated"] += number < expected
            due[who] = max(expected, number + 1)
        counts["records"] += 1
    return counts


def records(run: Path) -> list[Any]:
    """All of a run's ledger."""
    tail, found = Tail(run / "ledger"), []
    while rows := tail.read():
        found += rows
    return found


def picture(rows: dict[str, dict[str, Any]], path: Path) -> None:
    """Of all rows of pegs, the share of steps by a human, and what was done without."""
    shown = {what: row for what, row in rows.items() if what.startswith(PEG)}
    figure, (left, right) = panels(2, 4.4, 3.8)
    for row in sorted(shown.values(), key=lambda row: -row["success"]):
        label = f"{described(row['flags'])}: {row['success']:.0%}"
        for ax, name in ((left, "by_human"), (right, "alone")):
            values = np.array(row["minutes"][name])
            ax.plot(np.arange(len(values)) + 0.5, 100 * values, label=label, marker=".", lw=1.2)
    left.set(xlabel="minutes of practice", ylabel="% of steps by the human", ylim=(-3, 103))
    right.set(xlabel="minutes of practice", ylabel="% of episodes done without", ylim=(-3, 103))
    lines = right.get_lines()
    figure.legend(
        lines, [str(line.get_label()) for line in lines], loc="outside lower center", ncol=2,
        fontsize=8, title="and the success of 100 episodes at the end", title_fontsize=8,
    )  # fmt: skip
    figure.savefig(path, dpi=120)


def described(flags: dict[str, Any]) -> str:
    """What a run had of its human, and how it learned."""
    human = [f"{flags['demos']} demonstrations"] if flags["demos"] else []
    human += ["corrections"] if flags["corrects"] else []
    more = [flags["words"]] if flags.get("words") else []
    more += [flags["view"]] if flags["view"] != "takeover" else []
    more += [f"learner killed {flags['kills']} times"] if flags["kills"] > 1 else []
    return ", ".join([" and ".join(human) or "no human", *more])
