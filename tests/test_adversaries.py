"""The worst that is said to bridges: nothing of it reaches motors, and the search can find it."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import adversaries
from rl import artefact
from rl.bridge import limiter, states
from rl.spec import Spec

POLICIES = Path(__file__).parent.parent / "benchmarks" / "policies"


@pytest.fixture(scope="module")
def arm() -> Spec:
    return artefact.read(POLICIES / "panda-reach" / "artefact-0.zip").spec


@pytest.mark.long
def test_all_robots_are_judged_on_all_wires(tmp_path: Path) -> None:
    results = tmp_path / "a.jsonl"
    adversaries.main(adversaries.Args(ticks=5_000, results=results))
    (row,) = map(json.loads, results.read_text().splitlines())
    assert row["violations"] == {}
    assert row["ticks"] >= 5_000
    assert len(row["shares"]) == 2 * len([*POLICIES.glob("*/artefact-0.zip")]) >= 10
    assert {"go2-joystick-flat@500", "panda-reach@20", "panda-reach@200"} <= row["shares"].keys()


@pytest.mark.long
@pytest.mark.parametrize("ticks", adversaries.WIRES)
def test_an_arm_is_driven_to_its_limits_and_not_beyond(arm: Spec, ticks: int) -> None:
    rng, walk = np.random.default_rng(1), adversaries.WISHES["bang-bang"]
    verdict, seen = adversaries.lived(arm, ticks, walk, rng, 3_000)
    assert verdict.violations == {}, verdict.first
    assert seen >= {states.PASSIVE, states.READY, states.ARMED, states.HOLD}
    assert verdict.limits["speed"] > 0.99


def test_an_arm_that_is_not_heard_of_does_not_move(arm: Spec) -> None:
    """Though it was thrown where its target is not: found in these ticks."""
    rng, walk = np.random.default_rng(4), adversaries.WISHES["bang-bang"]
    verdict, _ = adversaries.lived(arm, 1, walk, rng, 1_500, "mute")
    assert verdict.violations == {}, verdict.first


@pytest.mark.long
def test_the_search_goes_to_the_limits(arm: Spec) -> None:
    verdicts = adversaries.searched(arm, 1, np.random.default_rng(0), 6)
    assert not any(verdict.violations for verdict in verdicts)
    assert max(verdict.limits["speed"] for verdict in verdicts) > 0.99


@pytest.mark.long
@pytest.mark.parametrize(("stage", "rule"), [("pace", "speed"), ("torque", "torque")])
def test_without_a_limit_the_search_breaks_it(
    arm: Spec, stage: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = {x: why for x, why in limiter.STAGES.items() if x.__name__ != stage}
    assert len(left) == len(limiter.STAGES) - 1
    monkeypatch.setattr(limiter, "STAGES", left)
    verdicts = adversaries.searched(arm, 1, np.random.default_rng(0), 3)
    assert any(rule in verdict.violations for verdict in verdicts)
