"""What a report says of runs that went on from another's: falls, and when they reach a rival."""

import re

import numpy as np

from benchmarks import going_on
from benchmarks.collect import Result
from benchmarks.scores import Scores, score

STEPS = (1_000, 2_000, 3_000, 4_000)


def result(agent: str, seed: int, curve: tuple[float, ...], started: str | None) -> Result:
    config = {"start_from": started}
    return Result(
        "s", "Hopper-v5", agent, agent, seed, STEPS, STEPS, curve, curve[-1:], config=config
    )


def scores(*results: Result) -> Scores:
    made = score(results, None)
    return Scores(made.tasks, made.agents, made.runs, {"Hopper-v5": (0.0, 500.0)}, True, 1)


MIXED = [(100.0, 90.0, 140.0, 300.0), (120.0, 40.0, 130.0, 180.0), (110.0, 100.0, 150.0, 260.0)]
ALONE = [(0.0, 10.0, 20.0, 130.0), (0.0, 30.0, 90.0, 150.0)]


def both() -> Scores:
    mixed = [result("calql", i, curve, "runs/calql") for i, curve in enumerate(MIXED)]
    return scores(*mixed, *(result("sac", i, curve, None) for i, curve in enumerate(ALONE)))


def test_a_fall_is_told_in_points_of_the_range() -> None:
    (row,) = going_on.falls(both()).rows
    task, agent, begun, after, lowest, at, single = row
    assert (task, agent, begun, at) == ("Hopper-v5", "calql", "110", "2,000")
    change = np.array([np.subtract(curve[1:], curve[0]) for curve in MIXED]) / 5  # of 500
    mean, low, high = map(float, re.findall(r"[+-][\d.]+", after))
    assert abs(mean - change.mean()) < 0.051
    means = change.mean(1)  # three seeds: the ends are the least and the greatest
    np.testing.assert_allclose([low, high], [means.min(), means.max()], atol=0.051)
    assert abs(float(lowest) - change.mean(0).min()) < 0.051
    assert float(single) == -16.0


def test_a_run_that_only_rises_did_not_fall() -> None:
    rising = [result("calql", i, (1.0, 2.0, 3.0, 4.0), "runs/calql") for i in range(2)]
    assert going_on.falls(scores(*rising)).rows[0][4] == "+0.2"


def test_reaching_another_is_told_by_its_last_score_and_of_every_seed() -> None:
    (row,) = going_on.reached(both(), [("calql", "sac"), ("sac", "calql")]).rows
    assert row == (
        "Hopper-v5", "calql", "sac", "140", "4,000", "3 of 3", "3,000 to 4,000",
    )  # fmt: skip


def test_who_never_reaches_it_is_counted() -> None:
    low = [result("calql", i, (1.0, 2.0, 3.0, 4.0), "runs/calql") for i in range(2)]
    rows = going_on.reached(scores(*low, result("sac", 0, ALONE[0], None)), [("calql", "sac")]).rows
    assert rows[0][-2:] == ("0 of 2", "-")


def test_runs_from_nothing_have_no_such_rows() -> None:
    alone = scores(*(result("sac", i, curve, None) for i, curve in enumerate(ALONE)))
    assert not going_on.falls(alone).rows
    assert not going_on.reached(alone, [("sac", "sac")]).rows


def test_who_is_as_good_before_it_learns_reaches_it_at_once() -> None:
    runs = [
        Result("s", "Hopper-v5", "iql", "iql", i, (0, 1_000), (0, 1), (200.0, 210.0), (210.0,),
               config={"start_from": "runs/bc"})
        for i in range(2)
    ]  # fmt: skip
    made = scores(*runs, result("sac", 0, ALONE[0], None))
    (row,) = going_on.reached(made, [("iql", "sac")]).rows
    assert row[-2:] == ("2 of 2", "0 to 0")
