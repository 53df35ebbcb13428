"""python -m benchmarks owed: what is still to be measured at full size, kept in OWED.md.

python -m benchmarks owed add --what "..." --takes "..." --bar "..." --command "..." "..."
python -m benchmarks owed paid 3
"""

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro

from rl import runs

HEAD = """# Owed

Measurements that need an accelerator or more hours than there were, oldest first. Whoever has the
machine runs the commands of one, commits its rows and says `python -m benchmarks owed paid NUMBER`.
`python -m benchmarks owed` lists them, `python -m benchmarks owed add` puts another at the end.
benchmarks/gpu.sh has what an accelerator is for, in parts of under ten minutes.
"""
ENTRY = re.compile(
    r"## (?P<number>\d+)\. (?P<what>.+)\n\n"
    r"Since (?P<since>[\d-]+)\. Takes: (?P<takes>.+)\nTo compare with: (?P<bar>.+)\n\n"
    r"```\n(?P<commands>(?:.+\n)+)```\n(?:\n(?P<note>(?:(?!## ).+\n)+))?"
)


class Owed(NamedTuple):
    what: str
    since: str  # YYYY-MM-DD
    takes: str
    bar: str  # what it is to be compared with
    commands: tuple[str, ...]
    note: str = ""  # what was found so far

    def text(self, number: int) -> str:
        note = f"\n{self.note}\n" if self.note else ""
        commands = "\n".join(self.commands)
        return (
            f"## {number}. {self.what}\n\nSince {self.since}. Takes: {self.takes}\n"
            f"To compare with: {self.bar}\n\n```\n{commands}\n```\n{note}"
        )


@dataclass(frozen=True)
class Args:
    """List what is owed, add to it, or strike what was paid."""

    do: Annotated[Literal["list", "add", "paid"], tyro.conf.Positional] = "list"
    number: Annotated[int, tyro.conf.Positional] = 0  # of what was paid
    what: str = ""
    takes: str = ""  # how long, and of which machine
    bar: str = ""  # what to compare it with
    command: tuple[str, ...] = ()  # each as it is to be typed
    note: str = ""
    file: Path = Path(__file__).parent / "OWED.md"


def main(args: Args) -> None:
    entries = read(args.file)
    told = {name: getattr(args, name) for name in ("what", "takes", "bar", "command")}
    given = told | {"note": args.note}
    if args.do != "add" and (extra := [name for name, value in given.items() if value]):
        raise ValueError(f"--{extra[0]} goes with owed add.")
    if args.do != "paid" and args.number:
        raise ValueError("A number goes with owed paid.")
    if args.do == "add":
        if lacking := [name for name, value in told.items() if not value]:
            raise ValueError(f"owed add takes --{lacking[0]} too.")
        today = datetime.date.today().isoformat()
        entries.append(Owed(args.what, today, args.takes, args.bar, args.command, args.note))
        write(args.file, entries)
    if args.do == "paid":
        if not 1 <= args.number <= len(entries):
            raise ValueError(f"owed paid takes a number from 1 to {len(entries)}.")
        print(f"paid: {entries.pop(args.number - 1).what}")
        write(args.file, entries)
        return
    for number, entry in enumerate(entries, 1):
        print(f"{number:2} {entry.since}  {entry.what}: {entry.takes}")
        print("\n".join(f"     {command}" for command in entry.commands))


def read(path: Path) -> list[Owed]:
    """The entries of a file; ValueError where it is not as `text_of` writes them."""
    text = path.read_text() if path.exists() else text_of([])
    found = parsed(text)
    if (again := text_of(found)) != text:
        known = {entry.what for entry in found}
        heads = [line for line in text.split("\n") if line[:3] == "## "]
        titles = [m[1] if (m := re.fullmatch(r"## \d+\. (.+)", x)) else "one" for x in heads]
        lost = next((title for title in titles if title not in known), "")
        lines = zip(again.split("\n"), text.split("\n"), strict=False)
        number = next((i for i, (a, b) in enumerate(lines, 1) if a != b), again.count("\n") + 1)
        where = f"the entry {lost!r}" if lost else f"line {number}"
        raise ValueError(f"{path}: {where} is not as this command writes it: mend it by hand.")
    return found


def parsed(text: str) -> list[Owed]:
    return [
        Owed(m["what"], m["since"], m["takes"], m["bar"], tuple(m["commands"].split("\n")[:-1]),
             (m["note"] or "").removesuffix("\n"))
        for m in ENTRY.finditer(text)
    ]  # fmt: skip


def text_of(entries: Sequence[Owed]) -> str:
    """The file, oldest first."""
    ranked = sorted(entries, key=lambda entry: entry.since)
    return "\n".join([HEAD, *(entry.text(i) for i, entry in enumerate(ranked, 1))])


def write(path: Path, entries: Sequence[Owed]) -> None:
    """The file anew; ValueError before that if it could not be read again."""
    text = text_of(entries)
    if parsed(text) != sorted(entries, key=lambda entry: entry.since):
        raise ValueError("What is owed is told in single lines that are not empty, without '## '.")
    runs.write(path, text.encode())
