"""Statistics of scores: rliable's numbers (benchmarks/peers/rliable_scores.py), and AdaStop's."""

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from rl import stats
from rl.adastop import AdaStop

RLIABLE = json.loads((Path(__file__).parent / "oracles" / "rliable.json").read_text())
CASES = [
    {name: np.array(case[name]) for name in ("x", "y")} | {"told": case["told"]}
    for case in RLIABLE["cases"]
]
LEVELS = np.array(RLIABLE["levels"])
OF_ONE = ("mean", "median", "iqm", "optimality_gap")


def test_points_are_rliables() -> None:
    assert len(CASES) == 100
    assert sum(len(case["x"]) != len(case["y"]) for case in CASES) > 50
    for case in CASES:
        x, y, told = case["x"], case["y"], case["told"]
        for name in OF_ONE:
            np.testing.assert_allclose(getattr(stats, name)(x), told[name], rtol=0, atol=1e-12)
        profile = stats.performance_profile(x, LEVELS)
        np.testing.assert_allclose(profile, told["performance_profile"], rtol=0, atol=1e-12)
        better = stats.probability_of_improvement(x, y)
        assert better == pytest.approx(told["probability_of_improvement"], abs=1e-12)
        assert stats.probability_of_improvement(y, x) == pytest.approx(1 - better, abs=1e-12)


def test_intervals_are_rliables_but_for_the_draw() -> None:
    told = [case for case in CASES if "intervals" in case["told"]]
    assert len(told) == 10
    for case in told:
        for name, given in {"iqm": "x", "probability_of_improvement": "xy"}.items():
            low, high = case["told"]["intervals"][name]
            found = stats.bootstrap(getattr(stats, name), *(case[one] for one in given))
            # 20,000 samples know the ends of an interval to some 2% of it; ties make steps.
            step = np.abs(found - [low, high]) / max(high - low, 1e-9)
            assert step.max() < 0.05, (name, found, low, high)


def test_the_same_seed_gives_the_same_interval() -> None:
    x, y = np.random.default_rng(0).normal(size=(2, 10, 4))
    one, again, other = (
        stats.bootstrap(stats.probability_of_improvement, x, y, seed=seed, times=501)
        for seed in (1, 1, 2)
    )
    assert (one == again).all()
    assert (one != other).any()


def test_a_bootstrap_in_parts_draws_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def counted(x: np.ndarray) -> np.ndarray:
        seen.append(len(x))
        return stats.mean(x)

    monkeypatch.setattr(stats, "MOST", 30)
    stats.bootstrap(counted, np.zeros((2, 2)), times=20)
    assert seen == [7, 7, 6]
    with pytest.raises(ValueError, match="There are no scores to draw from"):
        stats.bootstrap(stats.mean, np.zeros((0, 2)))


def test_an_interval_covers_what_is_so_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    held = []
    for seed in range(300):
        low, high = stats.bootstrap(stats.mean, rng.normal(size=(40, 2)), seed=seed, times=500)
        held.append(low <= 0 <= high)
    assert 0.9 < np.mean(held) < 0.98


def test_sample_efficiency_is_the_iqm_of_each_moment() -> None:
    scores = np.random.default_rng(0).normal(size=(6, 3, 4))
    each = [stats.iqm(scores[..., k]) for k in range(4)]
    np.testing.assert_allclose(stats.sample_efficiency(scores), each, rtol=0, atol=1e-12)
    drawn = stats.bootstrap(stats.sample_efficiency, scores, times=50)
    assert drawn.shape == (2, 4)
    assert (drawn[0] < drawn[1]).all()


@pytest.mark.parametrize(("agents", "test"), [(2, AdaStop()), (3, AdaStop(4, 3))])
def test_equal_agents_are_told_apart_no_more_often_than_alpha(agents: int, test: AdaStop) -> None:
    test = AdaStop(test.group, test.groups, permutations=1_000)
    told = 0
    for seed in range(1_000):
        rng = np.random.default_rng(seed)
        scores = {str(i): rng.normal(size=test.group * test.groups) for i in range(agents)}
        told += set(test.decide(scores).values()) != {"equal"}
    assert told <= binom.ppf(0.975, 1_000, test.alpha)
    assert told >= binom.ppf(0.025, 1_000, test.alpha)  # its level is spent, and not saved


@pytest.mark.parametrize("seed", range(20))
def test_one_look_is_a_permutation_test(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=5), rng.normal(0.1 * seed, 1.0, 5)
    both = np.concatenate([x, y])
    all_sums = [both[list(first)].sum() for first in combinations(range(10), 5)]
    differences = np.abs(2 * np.array(all_sums) - both.sum())
    chance = np.mean(differences >= abs(x.sum() - y.sum()) - 1e-9)
    found = AdaStop(5, 1, permutations=20_000).decide({"x": x, "y": y})["x", "y"]
    if abs(chance - 0.05) > 0.01:  # nearer than that the draw of permutations decides
        way = "larger" if x.mean() > y.mean() else "smaller"
        assert found == (way if chance < 0.05 else "equal")


def test_who_differs_is_told_early_and_who_does_not_at_the_end() -> None:
    rng = np.random.default_rng(0)
    scores = {"a": rng.normal(3, 1, 25), "b": rng.normal(0, 1, 25), "c": rng.normal(0, 1, 25)}
    looks = [AdaStop().decide({name: x[: 5 * k] for name, x in scores.items()}) for k in range(6)]
    assert set(looks[0].values()) == {"open"}  # with no scores yet
    assert looks[1]["a", "b"] == looks[1]["a", "c"] == "larger"
    assert [look["b", "c"] for look in looks] == ["open"] * 5 + ["equal"]
    assert all(look["a", "b"] == "larger" for look in looks[1:])  # more seeds change no decision
    some = AdaStop().decide({"b": scores["b"], "a": scores["a"][:7]})  # it needs no more of these
    assert some == {("b", "a"): "smaller"}


def test_scores_that_are_all_alike_tell_nothing_apart() -> None:
    assert AdaStop(2, 2).decide({"a": [1.0] * 4, "b": [1.0] * 4}) == {("a", "b"): "equal"}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"group": 0}, "group is 0; it takes at least 1"),
        ({"permutations": -1}, "permutations is -1"),
        ({"alpha": 1.5}, "alpha is 1.5; it takes a chance between 0 and 1"),
    ],
)
def test_an_adastop_that_makes_no_sense_is_refused(wrong: dict, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        AdaStop(**wrong)
