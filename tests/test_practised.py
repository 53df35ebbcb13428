"""What is told of a robot's practice: by minutes, and whether all of it was kept."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks import practised
from rl.bridge.learn.ledger import Ledger
from tests.lives import end, explorer_at, flown, records

GOAL = [0.0, 0.0, 0.05]  # m from where it is, which a human reaches


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A run, and what a robot did in it: it was brought there, left alone, and held."""
    run = tmp_path_factory.mktemp("run")
    policy = explorer_at(run / "explorer.zip")
    steps: list[Any] = []
    for number, (count, acts, goal) in enumerate(
        [(16, lambda i: True, GOAL), (10, lambda i: 3 <= i < 6, None), (5, lambda i: False, None)],
        1,
    ):
        some = flown(policy, count, acts, goal).steps
        some[-1] = some[-1]._replace(over=number == 2)
        first = 100 * number
        some = [x._replace(episode=number, period=first + x.period) for x in some]
        steps += [*some, end(some, episode=number)]
    return run, records(steps)


def kept(lived: tuple[Path, list[bytes]], folder: Path, *numbers: int, first: int = 0) -> Path:
    """A run with the records that a bridge had so numbered, from its robot's `first` on."""
    run, every = lived
    (folder / "explorer.zip").write_bytes((run / "explorer.zip").read_bytes())
    ledger = Ledger(folder / "ledger")
    for seq, number in enumerate(numbers or range(len(every)), first):
        ledger.append("arm", bytes(16), seq, [every[number]])
    ledger.close()
    return folder


def test_practice_is_told_by_minutes(lived: Any, tmp_path: Path) -> None:
    run = kept(lived, tmp_path)
    first, second, third = practised.episodes(run)
    assert (first.done, first.over, first.by_human, first.taken) == (True, True, first.steps, 1)
    assert (second.done, second.over, second.by_human, second.taken) == (False, True, 3, 1)
    assert (third.over, third.steps) == (False, 4)  # the bridge held it
    told = practised.minutes(run)
    steps = first.steps + second.steps + third.steps
    assert told["by_human"] == [pytest.approx((first.steps + 3) / steps, abs=1e-4)]
    assert (told["done"], told["alone"], told["taken"]) == ([0.5], [0.0], [1.0])


def test_what_is_missing_or_twice_is_counted(lived: Any, tmp_path: Path) -> None:
    count = len(lived[1])
    for name, numbers, first, lost, twice in (
        ("all", range(count), 0, 0, 0),
        ("gap", [0, 1, 4, 5], 0, 2, 0),
        ("late", [2, 3], 0, 2, 0),
        ("robot", [0, 1], 3, 3, 0),
        ("again", [0, 1, 1, 2], 0, 0, 1),
    ):
        (tmp_path / name).mkdir()
        found = practised.kept(kept(lived, tmp_path / name, *numbers, first=first))
        assert (found["lost"], found["duplicated"]) == (lost, twice)


def test_a_picture_is_drawn_of_rows_that_have_minutes(lived: Any, tmp_path: Path) -> None:
    flags = {"demos": 2, "corrects": True, "view": "rlif", "kills": 3}
    assert practised.described(flags) == (
        "2 demonstrations and corrections, rlif, learner killed 3 times"
    )
    row = {"minutes": practised.minutes(kept(lived, tmp_path)), "success": 0.5, "flags": flags}
    practised.picture({"hil/peg-a": row, "hil/other": {"value": 1}}, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
