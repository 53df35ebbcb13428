"""A policy that is killed, or frozen, at any moment: its robot is held in time."""

import json
from pathlib import Path

from benchmarks import kills


def test_a_robot_whose_policy_goes_at_any_moment_is_held_in_time(tmp_path: Path) -> None:
    results = tmp_path / "a.jsonl"
    kills.main(kills.Args(moments=8, seed=3, results=results))
    (row,) = map(json.loads, results.read_text().splitlines())
    assert row["violations"] == {}
    assert row["ticks"] == 8 * 1000
    assert 30 < row["held_ms"]["p50"] <= row["held_ms"]["max"] <= 1e3 * kills.LIMIT
