"""What is beside the records of an actor's journal: whose it is, and what its learner has of it."""

import json
from pathlib import Path

from rl.bridge.learn import segments

ACTOR, RUN, ACKED = "actor", "run", "acked"  # files


def own(folder: Path, actor: str, run: str) -> None:
    """Make a folder this actor's, and this run's; ValueError if it is another's."""
    path = folder / ACTOR
    if not path.exists() and segments.numbered(folder):
        raise ValueError(f"{folder} is no actor's journal: name another folder.")
    if not path.exists():
        segments.replace(folder / RUN, run.encode())
        segments.replace(path, actor.encode())
    if (owner := path.read_text(errors="replace")) != actor:
        raise ValueError(f"{folder} is the journal of {owner}, not of {actor}: name another.")
    if (theirs := run_of(folder)) != run:
        raise ValueError(
            f"{folder} is of what was done for {theirs or 'a run without a name'}, and not for "
            f"{run or 'one'}: name another --folder; what is in it stays there."
        )


def run_of(folder: Path) -> str:
    """The run that a journal is of; "" of one that was begun before runs had names."""
    path = folder / RUN
    return path.read_text(errors="replace") if path.exists() else ""


def acked(folder: Path) -> dict[bytes, int]:
    """The last record of each boot that the learner had, when the journal was closed last."""
    try:
        return {bytes.fromhex(boot): int(seq)
                for boot, seq in json.loads((folder / ACKED).read_text()).items()}  # fmt: skip
    except (OSError, ValueError, AttributeError):  # then it says so again
        return {}


def ack(folder: Path, found: dict[bytes, int]) -> None:
    """Keep it, for whoever opens the journal next."""
    told = json.dumps({boot.hex(): seq for boot, seq in found.items()})
    segments.replace(folder / ACKED, told.encode())
