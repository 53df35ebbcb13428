"""A policy or a pilot that is killed, or frozen, at any moment: its robot is held in time."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import kills


@pytest.mark.long
@pytest.mark.parametrize(("who", "least"), [("policy", 30), ("pilot", 150)])
def test_a_robot_whose_policy_or_pilot_goes_at_any_moment_is_held_in_time(
    who: str, least: float, tmp_path: Path
) -> None:
    args = kills.Args(moments=6, who=who, seed=3, results=tmp_path / "a.jsonl")
    kills.main(args)
    (row,) = map(json.loads, args.results.read_text().splitlines())
    assert row["what"] == "bridge/kills" + "-pilot" * (who == "pilot")
    assert row["violations"] == {}
    assert (row["skipped"], row["returned"]) == (0, 0)
    assert 4_000 < row["ticks"] <= 6_000  # a robot that fell ends its episode
    assert least < row["held_ms"]["p50"] <= row["held_ms"]["max"] <= 1e3 * args.limit


@pytest.mark.slow
@pytest.mark.parametrize("who", ["policy", "pilot"])
def test_who_was_frozen_and_goes_on_in_real_time_moves_nothing(who: str, tmp_path: Path) -> None:
    """In how long it was held, a busy machine does not say."""
    found = kills.survived(kills.Args(who=who, real=True), np.random.default_rng(0), 6)
    assert found.returned == 0
    assert len(found.took) + found.borne + found.skipped == 6
