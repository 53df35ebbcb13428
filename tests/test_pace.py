"""The account of how punctual a bridge is."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import pace


def test_times_are_told_in_ms() -> None:
    told = pace.in_ms(np.arange(101) * 1e-3)
    assert told == {"p50": 50.0, "p99": 99.0, "max": 100.0}


@pytest.mark.slow
def test_a_walk_is_accounted_for_with_and_without_faults(tmp_path: Path) -> None:
    """Whatever this machine is like; that it is punctual, is for the benchmark to say."""
    results = tmp_path / "a.jsonl"
    try:
        pace.main(pace.Args(minutes=0.05, fault_s=3.0, pairs=1, steps=20, results=results))
    except SystemExit as error:
        assert "not as punctual" in str(error.code)  # noqa: PT017
    (row,) = map(json.loads, results.read_text().splitlines())
    walk = row["walk"]
    assert 0.9 * 1500 < walk["ticks"] <= 1501
    assert walk["compiled"] == 0
    assert abs(walk["drift_ms"]) < 2.0
    assert row["pairs"].keys() == pace.FAULTS.keys()
    assert all(len(pair) == 2 for pairs in row["pairs"].values() for pair in pairs)
    assert row["step_ms"].keys() == {"jax", "numpy"}
