"""Changes at random: each is a program, and no other part of its line is lost."""

import random
from pathlib import Path

import pytest

from benchmarks import mutate
from benchmarks.mutate import Change


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("x = -(-a // b)", {"x = (-a // b)", "x = -(a // b)", "x = -(-a * b)"}),
        ("x = not (a and b)", {"x = (a and b)", "x = not (a or b)"}),
        ("x = not a", {"x = a"}),
        ("x = ~a < 1", {"x = a < 1", "x = ~a >= 1", "x = ~a < 3"}),
    ],
)
def test_a_change_is_of_one_thing(line: str, changed: set[str]) -> None:
    found = list(mutate.changes(f"# first\n{line}\n"))
    assert {number for number, _ in found} == {2}
    assert {text for _, text in found} == {f"# first\n{x}\n" for x in changed}


def test_what_is_no_program_is_not_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one.py").write_text("x = a\n")
    monkeypatch.setattr(mutate, "ROOT", tmp_path)
    monkeypatch.setattr(mutate, "CORE", ("*.py",))
    monkeypatch.setattr(mutate, "changes", lambda text: [(1, "x = )\n"), (1, "x = b\n")])
    rng = random.Random(0)
    assert {mutate.drawn(rng) for _ in range(9)} == {Change("one.py", 1, "x = a", "x = b\n")}
