"""A run's record where things go wrong."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import envs
from experiments import cli, host, off_policy, play, sac
from rl import health, record, resources, runs
from rl.saver import Saver
from tests.disks import full_disk
from tests.test_off_policy import SMALL

FACTS = {"seeds": [3, 4], "config": {}}


def row(x: float) -> dict[str, Any]:
    return {"episode_return": np.array([x, x + 1])}


def test_a_full_disk_loses_no_row_and_leaves_no_half_of_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with record.Record(tmp_path / "run", 40, **FACTS) as log:
        log.log(1, row(1.0))
        size = (log.out / "metrics.jsonl").stat().st_size
        log.save(1, {"w": np.ones((2, 3))})
        good = (log.out / "policy-3.safetensors").read_bytes()
        with full_disk(size + 20):
            log.log(2, row(2.0))
            log.log(3, row(3.0))
            log.save(1, {"w": np.zeros((2, 3))})
            assert (log.out / "metrics.jsonl").stat().st_size == size
        assert [x["step"] for x in runs.read_metrics(log.out)] == [1]
        assert (log.out / "policy-3.safetensors").read_bytes() == good
        assert runs.read_manifest(log.out)["status"] == "running"
        log.log(4, row(4.0))
        assert [x["step"] for x in runs.read_metrics(log.out)] == [1, 2, 3, 4]
    told = capsys.readouterr().err
    assert told.count("warning: could not write the metrics.jsonl") == 1
    assert f"could not write the policy-3.safetensors in {log.out}: File too large" in told
    assert not list(log.out.glob("*.partial"))


def test_a_bar_is_as_long_as_its_share(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with record.Record(tmp_path / "run", 40, **FACTS) as log:
        log.log(10, row(1.0))
    assert f"[{'#' * 6:24}]  25%  10 steps  return      1.5" in capsys.readouterr().out


def test_a_full_disk_ends_a_run_that_is_to_stop(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match=r"could not write the policy-3.safetensors in .*run: File"),
        record.Record(tmp_path / "run", 40, strict=True, **FACTS) as log,
        full_disk(20),
    ):
        log.save(1, {"w": np.ones((2, 3))})


def test_what_was_spent_adds_up_over_all_tries(tmp_path: Path) -> None:
    with record.Record(tmp_path / "run", 40, **FACTS) as log:
        log.spent("train")
        log.spent("evaluate")
        log.update(train_s=100.0)
    assert log.manifest["ended"] >= log.manifest["started"]
    with record.Record.again(tmp_path / "run") as log:
        assert log.manifest["ended"] is None
        log.spent("train")
        assert 100 < log.manifest["train_s"] < 110
        assert 0 <= log.manifest["evaluate_s"] < 10


def test_a_resume_that_is_refused_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    with record.Record(tmp_path / "run", 40, algorithm="sac", env="x", **FACTS) as log:
        log.log(1, row(1.0))
        log.update(status="done")
    before = (log.out / "manifest.json").read_text()
    for step, why in ((7, "no checkpoint 7"), (None, "is done and has no checkpoint")):
        with pytest.raises(ValueError, match=why), record.Record.again(log.out) as again:
            Saver(again, 0).restore({"w": np.ones(2)}, step)
        assert (log.out / "manifest.json").read_text() == before
        assert len(runs.read_metrics(log.out)) == 1


@pytest.mark.parametrize(
    ("words", "most", "why"),
    [
        pytest.param(
            ["--agent.critic-lr", "1e10"], 1_000, "became NaN or infinite", marks=pytest.mark.slow
        ),
        pytest.param([], 1e-6, "times the largest return", marks=pytest.mark.long),
    ],
)
def test_a_learner_that_breaks_is_stopped_and_examined(
    words: list[str], most: float, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "EXPLODED", most)
    args = cli.parse(sac.Args, [*SMALL, *words, "--evals", "0", "--seeds", "2",
                                "--out", str(tmp_path / "run")])  # fmt: skip
    with pytest.raises(SystemExit, match=rf"failed: .*{why}.* by step [\d,]+; .*only the first"):
        sac.main(args)
    told = json.loads((tmp_path / "run" / "diverged.json").read_text())
    assert told["why"] in runs.read_manifest(tmp_path / "run")["status"]
    assert len(told["metrics"]["critic_loss"]) == 2
    assert any(name.startswith("critic/params") for name in told["state"])
    play.load(tmp_path / "run", 1)  # those it began with
    assert (tmp_path / "run" / "diverged.safetensors").stat().st_size > 1000


def test_what_is_not_finite_is_spelt_in_json(tmp_path: Path) -> None:
    with record.Record(tmp_path / "run", 40, **FACTS) as log:
        broken = np.array([[1.0, np.nan], [-7.0, np.inf]])
        health.diagnose(log, 5, "why", {"loss": np.array([np.nan, 2.0]), "n": 3}, {"w": broken})
    told = json.loads((log.out / "diverged.json").read_text())
    assert told["metrics"] == {"loss": ["nan", 2.0], "n": 3.0}
    assert told["state"] == {"w": {"not_finite": 2, "least": "nan", "most": "nan"}}


def test_what_grew_most_is_told_first(tmp_path: Path) -> None:
    with record.Record(tmp_path / "run", 40, **FACTS) as log:
        log.log(1, {"alpha": 2.0, "entropy": np.array([-4.0, 4.0]), "loss": 1.0, "return": 1.0})
        now = {"alpha": np.array([900.0]), "entropy": np.array([-5.0, 3.0]), "loss": np.nan,
               "new": 1.0, "return": np.nan}  # fmt: skip
        health.diagnose(log, 5, "why", now, {"w": np.array([-3.0, 1.0])})
    told = json.loads((log.out / "diverged.json").read_text())
    assert list(told["grew"].items()) == [
        ("loss", [1.0, "nan"]), ("alpha", [2.0, 900.0]), ("entropy", [[-4.0, 4.0], [-5.0, 3.0]]),
    ]  # fmt: skip
    assert told["state"]["w"] == {"least": -3.0, "most": 1.0, "not_finite": 0}


@pytest.mark.long
def test_seeds_that_do_not_fit_train_in_groups_and_go_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *SMALL,
        *["--steps", "800", "--evals", "0", "--seeds", "3", "--seed", "5"],
        "--out",
        str(tmp_path / "run"),
    ]
    monkeypatch.setattr("sys.argv", ["experiments/sac.py", *words])
    monkeypatch.setattr(resources, "available", lambda: 6_000_000)
    sac.main(cli.parse(sac.Args, words))
    assert "2 of 3 seeds fit in memory at a time" in capsys.readouterr().out
    found = {run.name: runs.read_manifest(run) for run in tmp_path.iterdir()}
    assert {name: one["seeds"] for name, one in found.items()} == {"run": [5, 6], "run-2": [7]}
    assert {one["status"] for one in found.values()} == {"done"}
    again = cli.parse(sac.Args, ["--resume", str(tmp_path / "run-2")])
    assert (again.seed, again.seeds) == (7, 1)
    monkeypatch.setattr(resources, "available", lambda: 1_000)
    with pytest.raises(ValueError, match="are free: resume it where there is more"):
        off_policy.check(again, envs.simulate(again.env))


def test_a_group_that_fails_keeps_no_other_from_its_turn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, begun = [sac.Args(seed=s, seeds=2) for s in (0, 2, 4)], []

    def train(ends: dict[int, str]) -> None:
        """Each part as a run that ends so when its turn comes."""

        def learn(part: Any, *_: Any) -> None:
            begun.append(part.seed)
            if part.seed in ends:
                sys.exit(ends[part.seed])

        monkeypatch.setattr(host, "learn", learn)
        host.train(parts, None, lambda part: SimpleNamespace(look=lambda log: None))

    log = SimpleNamespace(out=Path("run"), manifest={"status": "done"})
    monkeypatch.setattr(host, "record_of", lambda part, env: nullcontext(log))
    monkeypatch.setattr(host.play, "conclude", lambda *_: None)
    with pytest.raises(SystemExit, match="failed: a"):
        train({0: "failed: a"})
    assert begun == [0, 2, 4]
    with pytest.raises(SystemExit, match=r"stopped by Ctrl-C"):
        train({0: "stopped by Ctrl-C"})
    assert begun == [0, 2, 4, 0]
    assert "not begun: --seed 2 --seeds 4" in capsys.readouterr().out
