"""A plan of faults in a file is read as it was written; what is none is told of, and where."""

import json
from pathlib import Path
from typing import Any

import pytest

from rl.bridge.sim import faults
from rl.bridge.sim.faults import Fault


def test_a_plan_is_read_as_it_was_written(tmp_path: Path) -> None:
    some = [Fault("late", 0.5, 1.0, 0.02), Fault("joint stuck", 1.0, 2.0, motor=3)]
    faults.write(tmp_path / "plan.json", some)
    assert faults.read(tmp_path / "plan.json") == some


@pytest.mark.parametrize(("text", "why"), [
    ("[", "it is no JSON"), ("", "it is no JSON"), ("[" * 100_000, "it is no JSON"),
    ("{}", "it is no list"), ("null", "it is no list"), ("[1]", "entry 1: it needs braces around"),
    ("[[]]", "entry 1: it needs braces around kind, since, until, size, motor"),
])  # fmt: skip
def test_what_is_no_plan_is_refused(text: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(ValueError, match=f"plan.json is no plan of faults: {why}"):
        faults.read(tmp_path / "plan.json")


@pytest.mark.parametrize(("change", "why"), [
    ('"at": 3', "it has 'at', which is none of kind, since, until, size, motor"),
    ('"kind": "rain"', "'rain' is no fault; these are: joint stuck, "),
    ('"kind": ["late"]', "its 'kind' is no text"), ('"kind": null', "its 'kind' is no text"),
    *((f'"since": {x}', "its 'since' is no number") for x in (
        '"0"', "NaN", "-Infinity", "true", "null", "[0]", "{}", "1e999", "1" + 400 * "0")),
    ('"since": -1', "it is from -1 to 2 s; it takes 0 <= since < until"),
    ('"until": 1', "it is from 1 to 1 s; it takes 0 <= since < until"),
    ('"size": -0.1', "its size is -0.1; it takes 0 to 1e.06"),
    ('"size": 1e7', r"its size is 1e\+07; it takes 0 to 1e.06"),
    ('"motor": 1.5', "its 'motor' is no whole number"),
    ('"motor": -1', "its motor is -1; it takes a number from 0 on"),
])  # fmt: skip
def test_an_entry_that_is_no_fault_is_named(change: str, why: str, tmp_path: Path) -> None:
    good = '"kind": "late", "since": 1, "until": 2'
    plan = tmp_path / "plan.json"
    plan.write_text(f"[{{{good}}}, {{{good}, {change}}}]")  # of two of a name the last counts
    with pytest.raises(ValueError, match=f"plan.json is no plan of faults: entry 2: {why}"):
        faults.read(plan)


@pytest.mark.parametrize("name", ["kind", "since", "until"])
def test_an_entry_that_lacks_something_is_told_so(name: str, tmp_path: Path) -> None:
    facts: dict[str, Any] = {"kind": "encoder jumps", "since": 0, "until": 1, "size": -2}
    (plan := tmp_path / "plan.json").write_text(json.dumps([facts]), "utf-8-sig")
    assert faults.read(plan) == [Fault("encoder jumps", 0, 1, -2)]
    plan.write_text(json.dumps([{k: x for k, x in facts.items() if k != name}]))
    with pytest.raises(ValueError, match=f"entry 1: it has no '{name}'"):
        faults.read(plan)
