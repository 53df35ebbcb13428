"""What a learner beside robots keeps of itself, and says to them at its end."""

import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from experiments import hil, kept
from rl import runs
from rl.record import Record
from rl.stop import Stop


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
        def restore(self, like: Any, step: int | None) -> Any:
            assert (like.shape, step) == ((1, 2), 2013)
            raise ValueError("it is damaged")

    made: list[Any] = []

    def fresh() -> Any:
        made.append(jnp.zeros(2))
        return made[-1]

    saver: Any = Damaged()
    with pytest.raises(ValueError, match="it is damaged"):
        kept.begun(saver, fresh, 2013)
    assert [isinstance(x, jax.core.Tracer) for x in made] == [True]  # its shape alone


class Learning:
    """A learner whose every call is eight updates of the actor."""

    agent: Any = SimpleNamespace(delay=2, deploy=lambda _: {})

    def __init__(self, out: Path, steps: int) -> None:
        self.args = hil.Args(steps=100, most_updates=4.0, agent=self.agent, learning_starts=20)
        counts, none = Counter(steps=steps), SimpleNamespace
        intake: Any = none(counts=counts, read=list, lately=[(True, False), (True, True)])
        store: Any = none(count=steps, shown=0, scale=1.0, drawn_from=lambda length: None)
        saver: Any = none(due=True, checkpoints=none(steps=list))
        process: Any = none(poll=lambda: None)
        self.log = Record(out, 100)
        self.work = kept.Work(self.log, saver, intake, store, Stop(), process, self.learn)

    def learn(self, run: hil.Run, _: None) -> tuple[hil.Run, dict[str, float]]:
        return run._replace(updates=run.updates + 8), {"q": 1.0}

    def improved(self, over: bool) -> tuple[int, dict[str, Any]]:
        begun = hil.Run(None, jnp.int32(40), jnp.int32(0), jax.random.key(0))
        run, metrics = hil.improved(self.args, self.work, begun, over)
        return int(run.updates), metrics


def test_what_robots_did_while_nobody_learned_is_learned_from_once_they_are_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resumed = Learning(tmp_path, steps=1_000)
    with resumed.log:
        assert resumed.improved(over=False) == (40, {})  # they need do no more
        assert resumed.improved(over=True) == (2_000, {"q": 1.0})  # 4 of the critics' for a step
        assert "learns   3,920 more updates" in capsys.readouterr().out
        assert not runs.read_metrics(tmp_path)  # of this step there is to be one line, the last
        resumed.work.stop.asked = "stopped by Ctrl-C"
        assert resumed.improved(over=True) == (40, {})
    few = Learning(tmp_path / "few", steps=19)
    with few.log:
        assert few.improved(over=True) == (40, {})


def test_a_line_and_a_picture_tell_how_practice_went(tmp_path: Path) -> None:
    learning = Learning(tmp_path, steps=30)
    with learning.log as log:
        kept.picture(log)
        assert not (tmp_path / "practice.png").exists()
        learning.work.intake.counts["by_human"] = 12
        line = learning.work.line({"q": jnp.float32(2)}, 80)
        log.log(30, line)
        kept.picture(log)
    assert (line["episode_return"], line["episode_alone"]) == (1.0, 0.5)
    assert (line["by_human"], line["updates"], line["q_over_return"]) == (12, 80, 2)
    assert (tmp_path / "practice.png").stat().st_size > 5_000
