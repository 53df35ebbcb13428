"""Flags of a dataclass, with the comments behind its fields, and tables of them."""

from dataclasses import dataclass
from typing import Literal

from benchmarks import flags


@dataclass(frozen=True)
class Above:
    size: int = 1  # of one | of many
    other: str = "#"  # kept


@dataclass(frozen=True)
class Below(Above):
    size: int = 2
    kind: Literal["a", "b"] = "a"  # which
    many: tuple[int, ...] = (1, 2)
    on: bool = False


def test_a_comment_is_inherited_and_a_pipe_breaks_no_table() -> None:
    found = {flag.name: flag for flag in flags.flags(Below())}
    assert found["--size"] == ("--size", 2, "of one | of many")
    assert found["--other"].meaning == "kept"
    assert found["--kind"].meaning == "which; one of `a`, `b`"
    assert found["--many"].words == ["--many", "1", "2"]
    assert found["--on"].words == ["--no-on"]
    assert found["--on"]._replace(name="--a.on").off == "--a.no-on"
    assert flags.table([found["--size"]]).splitlines()[-1].endswith(r"| `2` | of one \| of many |")
    told = {"--size": found["--size"]._replace(value=3)}
    assert "| `2` (`3`) |" in flags.table([found["--size"]], told)
