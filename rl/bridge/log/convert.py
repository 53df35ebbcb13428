"""Flights as data to learn from, as LeRobot's, or as a recording to look at in Rerun."""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import tyro

from rl import artefact
from rl.bridge.checks import SAID
from rl.bridge.log import flight, steps
from rl.bridge.log.flight import Flight
from rl.bridge.log.steps import Episode
from rl.spec import Spec

if TYPE_CHECKING:
    from rl.data.dataset import Dataset

DATA, RERUN = ".npz", ".rrd"


@dataclass(frozen=True)
class Convert:
    """Make data of flights (name.npz), a LeRobotDataset (a folder), or a Rerun recording (.rrd)."""

    logs: tyro.conf.Positional[tuple[Path, ...]]  # of run --log, all of the same policy's robot
    out: Path  # that is not there yet; its ending says of which form
    task: str = ""  # LeRobot: what the robot was to do, in words; the policy's name if nothing
    artefact: Path | None = None  # Rerun: the robot's policy, by whose model it is drawn


class Taken(NamedTuple):
    """A log that was read."""

    path: Path
    flight: Flight
    episodes: list[Episode]


def convert(args: Convert) -> None:
    if not args.logs:
        raise ValueError("Name at least one log: an .mcap file of run --log.")
    if args.out.suffix not in (DATA, RERUN, ""):
        raise ValueError(f"--out {args.out} is no {DATA} or {RERUN} file, nor a folder.")
    if not args.out.absolute().parent.is_dir():
        raise ValueError(f"--out {args.out} cannot be written: there is no folder for it.")
    if args.out.exists():
        raise ValueError(f"--out {args.out} is there already: name another.")
    if args.artefact and args.out.suffix != RERUN:
        raise ValueError(f"--artefact is for a recording, --out NAME{RERUN}: leave it out.")
    if args.task and args.out.suffix in (DATA, RERUN):
        raise ValueError("--task is for LeRobot, whose --out is a folder: leave it out.")
    if args.out.suffix == RERUN:
        return _recording(args)
    taken = _taken(args.logs)
    spec, lived = taken[0].flight.about.setup.spec, [e for x in taken for e in x.episodes]
    if not lived:
        raise ValueError("Nothing was done in these logs: the robot was armed for no whole period.")
    if args.out.suffix == DATA:
        from rl.data import npz

        print(f"sha256   {npz.write(args.out, dataset(taken))}")
    else:
        from rl.data import lerobot_out

        lerobot_out.write(args.out, *rows(spec, lived), 1 / spec.control_dt, spec.name,
                          args.task or spec.name)  # fmt: skip
    count, by_human = sum(len(e.time) for e in lived), sum(int(e.human.sum()) for e in lived)
    print(f"episodes {len(lived)} of {count} steps, {by_human} of them by a human")
    print(f"out      {args.out}")


def _recording(args: Convert) -> None:
    from rl.bridge.log import rerun_out

    if len(args.logs) != 1:
        raise ValueError(f"A recording is of one flight, and --out {args.out} would be of several.")
    found = flight.read(args.logs[0])
    body = artefact.read(args.artefact) if args.artefact else None
    if body and body.spec != found.about.setup.spec:
        raise ValueError(f"{args.artefact} is not of the robot of {args.logs[0]}.")
    _note(args.logs[0], found)
    rerun_out.write(args.out, found, body)
    print(f"out      {args.out}: rerun {args.out}")


def _taken(logs: tuple[Path, ...]) -> list[Taken]:
    found: list[Taken] = []
    for path in logs:
        one = flight.read(path)
        first = found[0] if found else None
        if first and one.about.setup.spec != first.flight.about.setup.spec:
            raise ValueError(f"{path} and {first.path} are of different robots, or policies.")
        _note(path, one)
        found.append(Taken(path, one, steps.episodes(one)))
    if len({*logs}) < len(logs):
        raise ValueError("A log is named twice.")
    return found


def _note(path: Path, found: Flight) -> None:
    if not found.whole:
        print(f"note     {path} was cut short, or is damaged: {len(found.rows)} ticks are whole")


def dataset(taken: list[Taken]) -> "Dataset":
    """Data of ours.  What is seen is what the policy was asked: readings and command, as a robot
    has them.  What a task's network makes of these is its own, and changes with it."""
    from rl.data import canonical

    spec, lived = taken[0].flight.about.setup.spec, [e for x in taken for e in x.episodes]
    lengths = np.array([len(e.time) for e in lived])
    seen = [np.concatenate([e.readings, e.command], 1) for e in lived]
    limits = [a.low for a in spec.actuators], [a.high for a in spec.actuators]
    each = {name: np.concatenate([getattr(e, name) for e in lived]) for name in (
        "targets", "wish", "planned", "human", "limited", "time")}  # fmt: skip
    where = ", ".join(str(x.path) for x in taken)
    action = canonical.rescaled(where, each["targets"], lengths, limits)
    fell = np.array([e.fell for e in lived])
    of = np.concatenate([[i] * len(x.episodes) for i, x in enumerate(taken)]).astype(np.int64)
    return canonical.finished(
        where,
        {"obs": np.concatenate([x[:-1] for x in seen]), "action": action} | each,
        {"length": lengths, "last_obs": np.stack([x[-1] for x in seen]), "flight": of,
         "why": np.array([int(e.why) for e in lived])},
        canonical.Ends(fell, ~fell),
        _facts(spec, taken) | canonical.bounds(limits, len(spec.actuators)),
    )  # fmt: skip


def _facts(spec: Spec, taken: list[Taken]) -> dict[str, Any]:
    sensors, commands = steps.names(spec)
    facts: dict[str, Any] = {"format": "flight", "robot": spec.name, "control_dt": spec.control_dt}
    facts |= {"obs_names": [*sensors, *(f"command {x}" for x in commands)]}
    facts |= {"sensors": {x.name: x.size for x in spec.sensors}}  # of which obs begins with
    facts |= {"action_names": [a.name for a in spec.actuators]}
    facts |= {"why": {str(int(reason)): words for reason, words in SAID.items()}}
    if cut := sum(bool(x.episodes and not x.flight.whole and not x.episodes[-1].why)
                  for x in taken):  # fmt: skip
        facts["cut"] = cut  # episodes that end with a log that was cut short
    facts["flights"] = [
        {
            "log": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "artefact": found.about.artefact, "start": found.about.start, "whole": found.whole,
            "limits": asdict(found.about.setup.limits),
        }
        for path, found, _ in taken
    ]  # fmt: skip
    return facts


def rows(spec: Spec, lived: list[Episode]) -> tuple[dict[str, Any], np.ndarray]:
    """LeRobot's features, and the rows of each episode.

    An episode of T steps has T + 1: the last shows what was seen last, and does again what was
    done before.  One that ends in a fall has T, since nothing comes after.
    """
    from rl.data.lerobot_out import Feature

    sensors, commands = steps.names(spec)
    lengths = np.array([len(e.time) + (not e.fell) for e in lived])
    last = np.cumsum(lengths) - 1
    fell = np.zeros(lengths.sum(), bool)
    fell[last] = [e.fell for e in lived]
    done = np.zeros_like(fell)
    done[last] = True

    def held(name: str) -> np.ndarray:
        """Of steps, the last one's again where there is a row more."""
        parts = [(getattr(e, name), not e.fell) for e in lived]
        return np.concatenate([np.concatenate([x, x[-1:]]) if more else x for x, more in parts])

    def seen(name: str) -> np.ndarray:
        return np.concatenate([getattr(e, name)[: len(e.time) + (not e.fell)] for e in lived])

    motors = [a.name for a in spec.actuators]
    command = {"observation.command": Feature(seen("command"), commands)} if commands else {}
    return {
        "observation.state": Feature(seen("readings"), sensors),
        **command,
        "action": Feature(held("targets"), motors),
        "policy_action": Feature(held("wish"), motors),
        "intervention": Feature(held("human")),
        "limited": Feature(held("limited").astype(np.int64)),
        "next.done": Feature(done),
        "next.terminated": Feature(fell),
        "next.truncated": Feature(done & ~fell),
    }, lengths
