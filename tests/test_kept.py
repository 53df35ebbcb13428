"""What a learner beside robots keeps of itself, and says to them at its end."""

import json
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from experiments import hil, kept
from rl import runs
from rl.record import Record


@pytest.mark.parametrize(
    ("stats", "silent_s", "waits"),
    [
        ({}, 0.1, True),
        ({"pending": 0, "over": ""}, 0.1, True),
        ({"pending": 3, "over": "all"}, 0.1, True),
        ({"pending": 0, "over": "all"}, 0.1, False),
        ({"pending": 3, "over": ""}, 5.0, False),  # it is gone
    ],
)
def test_robots_that_are_there_are_waited_for(
    tmp_path: Path, stats: dict[str, Any], silent_s: float, waits: bool
) -> None:
    account = tmp_path / "intake.json"
    assert not kept.waiting(account)
    account.write_text(json.dumps({"sessions": {"arm": {"silent_s": silent_s, "stats": stats}}}))
    assert kept.waiting(account) == waits


def test_a_record_has_a_line_of_each_checkpoint_and_one_of_a_step(tmp_path: Path) -> None:
    steps = list[int]()
    checkpoints = SimpleNamespace(steps=lambda: steps)
    saver: Any = SimpleNamespace(checkpoints=checkpoints, save=lambda step, _: steps.append(step))
    with Record(tmp_path / "My Run", 9) as log:
        assert kept.name(log) == f"my-run-{log.manifest['run_id']}"
        for step in (3, 3, 5):
            kept.tell(log, saver, step, {})
        for step in (5, 7, 7):  # robots stand still
            kept.keep(log, saver, step, {"w": jnp.zeros(2)}, jnp.zeros(1), {})
        log.rewind(7)
    assert [row["step"] for row in runs.read_metrics(log.out)] == [3, 5, 7]
    assert steps == [5, 7]
    assert "warnings" not in log.manifest


def test_who_is_told_to_stop_while_it_compiles_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compiles(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.5)  # the thread that listens has heard it

    monkeypatch.setattr(hil, "starts", lambda *_: None)
    monkeypatch.setattr(hil, "written", compiles)
    none: Any = SimpleNamespace(deploy=lambda x: x, learner=None)
    args = hil.Args(agent=none)
    with pytest.raises(KeyboardInterrupt), Record(tmp_path / "run", 9) as log:
        hil.learn(args, none, none, lambda: none, log)
    assert runs.read_manifest(tmp_path / "run")["status"].startswith("stopped by")
    assert "--resume" in capsys.readouterr().err


def test_a_checkpoint_is_looked_at_before_anything_is_made() -> None:
    class Damaged:
        def restore(self, like: Any) -> Any:
            assert like.shape == (1, 2)
            raise ValueError("it is damaged")

    made: list[Any] = []

    def fresh() -> Any:
        made.append(jnp.zeros(2))
        return made[-1]

    saver: Any = Damaged()
    with pytest.raises(ValueError, match="it is damaged"):
        kept.begun(saver, fresh)
    assert [isinstance(x, jax.core.Tracer) for x in made] == [True]  # its shape alone
