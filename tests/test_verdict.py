"""What a run on data says of itself, by curves whose condition is known."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
from benchmarks import planted
from benchmarks.suite import toml
from experiments import cli, offline, start
from rl.data import npz, verdict
from rl.data.dataset import Dataset
from tests.test_offline import NAME, balancing

WITHIN = (-10.0, 300.0)
T = np.linspace(0, 1, 40)
SETTLING = 1 - np.exp(-5 * T)


def values(**curves: Any) -> dict[str, np.ndarray]:
    """A run with critics that is well, but for `curves`."""
    well: dict[str, Any] = {
        "distance": 0.3 + 0.5 * (1 - SETTLING), "imitated": 0.6 * SETTLING,
        "q_data": 200 * SETTLING, "q_policy": 205 * SETTLING, "td": 2 - SETTLING,
        "bellman": 0.98 * SETTLING, "above_return": -200 + 210 * SETTLING, "return_std": 50 + 0 * T,
    }  # fmt: skip
    both = {f"{part}_{name}": x for part in ("train", "held") for name, x in well.items()}
    return both | {name: np.asarray(x) for name, x in curves.items()}


def imitation(**curves: Any) -> dict[str, np.ndarray]:
    kept = "distance", "imitated"
    return {n: x for n, x in values().items() if n.split("_", 1)[1] in kept} | curves


RISING = 0.3 + 0.5 * (1 - SETTLING) + 0.2 * T**2
CASES: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "well": (values(), "healthy"),
    "imitation": (imitation(), "healthy"),
    "noise": (values(train_td=values()["train_td"] + 0.1 * np.sin(99 * T)), "healthy"),
    "growing": (values(train_q_policy=10 * np.exp(6 * T)), "diverging"),
    "sinking": (values(held_q_policy=-100 * T), "diverging"),
    "remembered": (values(held_td=2 + 4 * T), "overfitting"),
    "missed": (values(held_distance=RISING), "overfitting"),
    "copied": (imitation(held_distance=RISING), "overfitting"),
    "short": (values(train_above_return=-200 + 60 * T), "underfitting"),
    "rough": (values(train_bellman=0.5 * SETTLING), "underfitting"),
    "idle": (imitation(train_imitated=0.01 * SETTLING), "underfitting"),
    "unseen": ({"train_distance": T}, "unknown"),
    "brief": ({name: x[:2] for name, x in values().items()}, "unknown"),
}


@pytest.mark.parametrize("name", CASES)
def test_curves_are_told_apart(name: str) -> None:
    seen, word = CASES[name]
    found = verdict.judge(seen, WITHIN)
    assert found.word == word, found
    assert found.why
    assert bool(found.mend) == (word != "healthy")
    if "train_bellman" not in seen:
        assert not any(of in found.mend for of in ("critic", "penalty", "alpha"))


def test_no_return_leaves_its_bounds() -> None:
    rng = np.random.default_rng(0)
    reward = rng.normal(size=200).astype("f4")
    data = Dataset({"reward": reward}, {"length": np.array([150, 50])}, {})
    low, high = verdict.bounds(data, 0.9)
    for rows in (reward[:150], np.full(999, reward.max()), np.full(999, reward.min())):
        assert low - 1e-6 <= (rows * 0.9 ** np.arange(len(rows))).sum() <= high + 1e-6
    assert verdict.bounds(data, 1.0) == (150 * float(reward.min()), 150 * float(reward.max()))


def test_rows_are_those_of_a_seed() -> None:
    rows = [{"step": i, "train_td": [i, 10 * i], "q": [0, 0]} for i in range(3)]
    found = verdict.of_rows(rows, 1)
    assert found.keys() == {"train_td"}
    np.testing.assert_array_equal(found["train_td"], [0, 10, 20])
    np.testing.assert_array_equal(verdict.of_rows([{"held_td": 1.5}], 0)["held_td"], [1.5])


def test_data_are_no_constants_of_a_program(tmp_path: Path) -> None:
    """Or XLA folds what an agent is normalised by, for minutes, with copies of all of it."""
    data = npz.read(balancing(tmp_path / "data.npz"))
    args = cli.parse(offline.Args, ["--env", NAME, "--agent", "td3bc"])
    course = offline.course(args, envs.make(NAME), data, start.Start((), {}))
    traced = jax.make_jaxpr(course.begin)(*course.given, jax.random.key(0))
    assert sum(np.size(x) for x in traced.consts) < data.steps["obs"].size / 4


def test_planted_cases_are_of_data_there_are_and_parse() -> None:
    plan = toml(planted.CASES)
    assert len(plan["cases"]) == 10
    for case in plan["cases"].values():
        assert case["truth"] in verdict.MENDS
        command = plan["data"][case["data"]]["command"]
        args = cli.parse(offline.Args, case["words"].split())
        assert f"--env {args.env_name} " in command
