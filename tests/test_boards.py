"""Where a run is shown: TensorBoard, trackio, Weights & Biases."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rl import record, runs
from tests.test_record import FACTS, row


class Service(ModuleType):
    """Stands in for trackio or wandb."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.began: list[dict[str, Any]] = []
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.ended = 0

    def init(self, **about: Any) -> None:
        self.began.append(about)

    def log(self, told: dict[str, float], step: int) -> None:
        self.rows.append((step, told))

    def finish(self) -> None:
        self.ended += 1


def test_tensorboard_shows_what_a_run_was_made_with(tmp_path: Path) -> None:
    config = {"steps": 40, "agent": {"is": "PPO", "lr": 3e-4, "hidden": (64, 64)}}
    with record.Record(tmp_path / "run", 40, seeds=[3, 4], config=config) as log:
        log.log(1, row(1.0))
    board = EventAccumulator(str(log.out / "tb" / "seed_4"))
    board.Reload()
    (text,) = board.Tensors("hyperparameters")
    lines = text.tensor_proto.string_val[0].decode().splitlines()
    assert lines[2:] == [
        "| steps | 40 |", "| agent.is | PPO |", "| agent.lr | 0.0003 |",
        "| agent.hidden | [64, 64] |",
    ]  # fmt: skip
    assert board.Scalars("charts/episodic_return")[0].value == 2.0


@pytest.mark.parametrize("service", ["trackio", "wandb"])
def test_a_service_is_told_of_each_step_once(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Service(service)
    monkeypatch.setitem(sys.modules, service, fake)
    track = f"{service}:hopping"
    with record.Record(tmp_path / "run", 40, track=track, **FACTS) as log:
        for step in (1, 2, 3):
            log.log(step, row(step))
        log.evaluated(3, np.ones((2, 5)), np.ones((2, 5)))
    with record.Record.again(tmp_path / "run", track=track) as log:
        log.rewind(1)
        for step in (2, 3, 4):
            log.log(step, row(step))
        log.evaluated(3, np.ones((2, 5)), np.ones((2, 5)))
        log.evaluated(4, np.ones((2, 5)), np.ones((2, 5)))
    assert [step for step, _ in fake.rows] == [1, 2, 3, 3, 4, 4]
    tag = "charts/episodic_return"
    assert fake.rows[0][1] == {f"{tag}/seed_3": 1.0, f"{tag}/seed_4": 2.0}
    assert fake.rows[1][1]["charts/SPS/seed_3"] > 0
    assert [about["project"] for about in fake.began] == ["hopping", "hopping"]
    key = "id" if service == "wandb" else "name"
    assert fake.began[0][key] == fake.began[1][key]
    assert fake.ended == 2


def test_a_service_that_fails_ends_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = Service("trackio")
    monkeypatch.setitem(sys.modules, "trackio", fake)
    with record.Record(tmp_path / "run", 40, track="trackio:x", **FACTS) as log:
        monkeypatch.setattr(fake, "log", lambda *_, **__: 1 / 0)
        log.log(1, row(1.0))
        log.log(2, row(2.0))
    assert len(runs.read_metrics(log.out)) == 2
    assert capsys.readouterr().err.count("no longer tracked: division by zero") == 1
    monkeypatch.setattr(fake, "init", lambda **_: 1 / 0)
    with pytest.raises(ValueError, match="--track cannot begin: division by zero"):
        record.Record(tmp_path / "other", 40, track="trackio:x", **FACTS)
    assert "cannot begin" in runs.read_manifest(tmp_path / "other")["status"]


@pytest.mark.parametrize(
    ("track", "why"),
    [
        ("mlflow:x", "takes trackio:PROJECT or wandb:PROJECT"),
        ("wandb", "takes trackio:PROJECT or wandb:PROJECT"),
        ("wandb:x", "pip install wandb"),
    ],
)
def test_what_cannot_be_tracked_is_refused(
    track: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=why):
        record.Record(tmp_path / "run", 40, track=track, **FACTS)
    assert not list(tmp_path.iterdir())
