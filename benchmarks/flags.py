"""The flags of a dataclass as tyro makes them, with the comments that its help shows.

Fields without one are explained in docs/equations/meanings.toml.
"""

import ast
import io
import re
import tokenize
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from functools import cache
from inspect import getdoc, getsource
from textwrap import dedent
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import tyro

from benchmarks.process import ROOT

MEANINGS = ROOT / "docs" / "equations" / "meanings.toml"


class Flag(NamedTuple):
    """As the command line has it."""

    name: str  # --agent.lr; of a switch, that which turns it on
    value: Any  # the default, or what is given
    meaning: str = ""

    @property
    def off(self) -> str:
        """The name that turns a switch off."""
        above, _, last = self.name.removeprefix("--").rpartition(".")
        return f"--{above}.no-{last}" if above else f"--no-{last}"

    @property
    def words(self) -> list[str]:
        """The value, spelt on the command line."""
        if isinstance(self.value, bool):
            return [self.name if self.value else self.off]
        values = self.value if isinstance(self.value, list | tuple) else (self.value,)
        return [self.name, *map(str, values)]

    @property
    def shown(self) -> str:
        if isinstance(self.value, bool):
            return "on" if self.value else "off"
        return " ".join(self.words[1:]) or "''"


def flags(value: Any, above: str = "--") -> Iterator[Flag]:
    """The flags of a dataclass and of those nested in it, but for choices between dataclasses (see
    `choices`)."""
    kind, said = type(value), comments(type(value))
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        if tyro.conf.Suppress in getattr(hint, "__metadata__", ()) or options(hint):
            continue
        if typing.get_origin(hint) is typing.ClassVar:
            continue
        default, flag = getattr(value, name), above + name.replace("_", "-")
        if is_dataclass(default):
            yield from flags(default, f"{flag}.")
            continue
        known = said, meanings()
        meaning = next((x[name] for x in known if name in x), meanings().get(kind.__name__, ""))
        if typing.get_origin(hint) is Literal:
            meaning += f"; one of {', '.join(f'`{x}`' for x in typing.get_args(hint))}"
        yield Flag(flag, default, meaning)


def choices(args: Any) -> Iterator[tuple[str, str, list[Flag]]]:
    """The words that choose a part of an experiment's arguments or of its agent's, what each does,
    and the flags that follow it."""
    for above, value in (("agent.", args.agent), ("", args)):
        for name, hint in typing.get_type_hints(type(value)).items():
            for kind in options(hint):
                default = getattr(value, name)
                word = re.sub("(?<=[A-Z])(?=[A-Z][a-z])", "-", kind.__name__).lower()
                made = default if isinstance(default, kind) else kind()
                about = (getdoc(kind) or "").split("\n")[0] + " The default." * (made is default)
                yield f"{above}{name}:{word}", about, list(flags(made, f"--{above}{name}."))


def options(hint: Any) -> list[Any]:
    """The dataclasses that a hint leaves the choice between."""
    union = isinstance(hint, types.UnionType)
    return [x for x in typing.get_args(hint) if is_dataclass(x)] if union else []


@cache
def comments(kind: type) -> dict[str, str]:
    """The comment on the line of each field, or else of that which it overrides."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not is_dataclass(owner):
            continue
        source = dedent(getsource(owner))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        lines = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.AnnAssign) and node.end_lineno in lines:
                found[ast.unparse(node.target)] = lines[node.end_lineno]
    return found


@cache
def meanings() -> dict[str, str]:
    return tomllib.loads(MEANINGS.read_text(encoding="utf-8"))


def table(rows: list[Flag], told: Mapping[str, Flag] = MappingProxyType({})) -> str:
    """Of flags in Markdown, with the defaults they are `told` against where those are others."""
    lines = ["| flag | default | meaning |", "|---|---|---|"]
    for flag in rows:
        names = f"`{flag.name}`, `{flag.off}`" if isinstance(flag.value, bool) else f"`{flag.name}`"
        theirs = told.get(flag.name, flag)
        other = f" (`{theirs.shown}`)" if theirs.value != flag.value else ""
        lines.append(f"| {names} | `{flag.shown}`{other} | {escaped(flag.meaning)} |")
    return "\n".join(lines)


def escaped(said: str) -> str:
    """With what Markdown would take for its own in a table."""
    return said.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")
