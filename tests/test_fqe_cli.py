"""The program that judges policies by data: what it says, and what it refuses."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import tyro

from experiments import fqe
from rl.data import npz
from rl.data.dataset import Dataset
from rl.data.fqe import FQE

RUN = str(Path(__file__).parent.parent / "benchmarks/policies/half-cheetah-ppo")


def test_ranks_are_scipy_s() -> None:
    rng = np.random.default_rng(0)
    for one in (rng.normal(size=7), rng.integers(0, 3, 7)):  # without ties, and with
        other = rng.integers(0, 4, 7)
        assert fqe.spearman(one, other) == pytest.approx(scipy.stats.spearmanr(one, other)[0])
    assert np.isnan(fqe.spearman(np.ones(3), np.arange(3)))


def cheetah(path: Path, **changes: Any) -> Path:
    """Some data of a half-cheetah's shape."""
    rng, count = np.random.default_rng(0), 40
    steps = {
        "obs": rng.normal(size=(count, 17)).astype("f4"),
        "action": rng.uniform(-1, 1, (count, 6)).astype("f4"),
        "reward": np.ones(count, "f4"), "terminated": np.zeros(count, bool),
        "truncated": np.arange(count) % 20 == 19,
    } | changes.get("steps", {})  # fmt: skip
    last = {"last_obs": steps["obs"][:2]}
    found = Dataset(
        steps | {"mask": ~steps["terminated"]}, {"length": np.array([20, 20])} | last,
        changes.get("facts", {}),
    )  # fmt: skip
    npz.write(path, found)
    return path


def told(path: Path, *words: str) -> None:
    small = ["--steps", "4", "--batch-size", "8", "--fqe.hidden", "8", "--threads", "1"]
    fqe.main(tyro.cli(fqe.Args, args=[*words, "--data", str(path), *small]))


def test_the_program_tells_starts_estimate_error_and_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fqe, "measured", lambda *_: fqe.Measured(-2.0, 0.5))
    told(cheetah(tmp_path / "it.npz"), RUN, RUN, "--judge", "2", "--fqe.gamma", "0.9")
    said = capsys.readouterr().out
    assert "starts   the first observations of the data's 2 episodes; measured from 2 of" in said
    assert "note     values will be about" in said
    value = float(re.findall(r"^estimate (\S+) \+- ", said, re.M)[0])
    off, share = map(float, re.findall(r"^error    (\S+) \((\S+)%\)$", said, re.M)[0])
    assert off == pytest.approx(value + 2, abs=2e-3)
    assert share == pytest.approx(50 * off, abs=0.2)
    assert said.count("run      ") == 2
    assert "ranks    Spearman +nan between estimates and measured, 2 runs" in said


@pytest.mark.parametrize(
    ("words", "changes", "why"),
    [
        ([RUN, "--fqe.gamma", "1"], {}, "with --fqe.gamma 1 values have no bound"),
        ([RUN, "nowhere"], {}, "nowhere is no run: there is no such directory"),
        ([], {}, "Name at least one run"),
        ([RUN, "--judge", "-1"], {}, "--judge is -1; it needs at least 0"),
        ([RUN], {"facts": {"task": "Hopper-v5", "env": {}}}, "was made of another task: its task"),
        ([RUN], {"facts": {"reward": "none"}}, "tells no rewards: no value can be learned"),
        (
            [RUN],
            {"steps": {"obs": np.zeros((40, 3), "f4")}},
            r"has obs of \(3,\) float32; the task",
        ),
        ([RUN], {"steps": {"action": np.zeros((40, 2), "f4")}}, r"has actions of \(2,\)"),
    ],
)
def test_what_cannot_be_judged_is_refused(
    tmp_path: Path, words: list[str], changes: dict[str, Any], why: str
) -> None:
    path = cheetah(tmp_path / "it.npz", **changes)
    with pytest.raises(ValueError, match=why):
        told(path, *words)


def test_runs_of_different_tasks_are_refused(tmp_path: Path) -> None:
    """For no dataset is of both."""
    other = tmp_path / "run"
    shutil.copytree(RUN, other)
    facts = json.loads((other / "manifest.json").read_text())
    facts["config"]["env"]["ctrl_cost_weight"] = 0.2
    (other / "manifest.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match=r"is of another task than .*: its task.ctrl_cost_weight"):
        told(cheetah(tmp_path / "it.npz"), RUN, str(other))


@pytest.mark.parametrize("gamma", [-0.1, 1.5, float("nan")])
def test_no_discount_is_refused(gamma: float) -> None:
    with pytest.raises(ValueError, match=r"FQE's gamma is .*; it takes a number in \[0, 1\]"):
        FQE(gamma=gamma)
