"""What rliable says of random scores, for tests/test_stats.py to hold ours to.

python benchmarks/peers/rliable_scores.py tests/oracles/rliable.json

In an environment of its own: pip install rliable==1.2.0 "pandas<3".  It takes some minutes.
"""

import json
import sys
from pathlib import Path

import numpy as np
from rliable import library, metrics

LEVELS = np.linspace(-1, 2, 13)
CASES, INTERVALS = 100, 10  # intervals take seconds


def case(number: int, rng: np.random.Generator) -> dict:
    """Two agents' scores with unequal runs, with many ties or few, and what it says of them."""
    runs, others, tasks = rng.integers(2, 13), rng.integers(2, 13), rng.integers(1, 7)
    digits = 1 if number % 2 else 3
    x = rng.normal(0.5, 0.6, (runs, tasks)).round(digits)
    y = rng.normal(0.4, 0.8, (others, tasks)).round(digits)
    if number % 10 == 0:
        y = x.copy()
    profile, _ = library.create_performance_profile({"x": x}, LEVELS, reps=2)
    told = {
        "mean": metrics.aggregate_mean(x),
        "median": metrics.aggregate_median(x),
        "iqm": metrics.aggregate_iqm(x),
        "optimality_gap": metrics.aggregate_optimality_gap(x),
        "probability_of_improvement": metrics.probability_of_improvement(x, y),
        "performance_profile": profile["x"],
    }
    if number < INTERVALS:
        np.random.seed(number)  # it takes a random_state and does not use it
        ways = {
            "iqm": ({"it": x}, lambda x: np.array([metrics.aggregate_iqm(x)])),
            "probability_of_improvement": (
                {"it": (x, y)},
                lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
            ),
        }
        told["intervals"] = {
            name: library.get_interval_estimates(scores, way, reps=20_000)[1]["it"][:, 0]
            for name, (scores, way) in ways.items()
        }
    return {"x": x, "y": y, "told": told}


def plain(x: object) -> object:
    return np.asarray(x).tolist()


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    found = {"levels": LEVELS, "cases": [case(number, rng) for number in range(CASES)]}
    Path(sys.argv[1]).write_text(json.dumps(found, default=plain) + "\n")
