"""What others may rely on: files of every schema there has been are read, newer ones refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import envs
from benchmarks import collect
from experiments import cli, off_policy, play, prior, sac
from rl import artefact, manifest, runs
from rl.bridge import messages, states, wire
from rl.bridge.desk import PILOT, POLICY, WATCHER
from rl.bridge.greeting import check_hello
from rl.data import npz
from rl.saver import Saver
from tests.fixtures.make import HERE, TASK

RUNS = sorted(HERE.glob("run-*"))
ARTEFACTS = sorted(HERE.glob("artefact-*.zip"))


def test_every_schema_has_its_files() -> None:
    """A number that went up without a file: python -m tests.fixtures.make"""
    assert {path.name for path in RUNS} == {f"run-{i}" for i in range(1, manifest.SCHEMA + 1)}
    assert f"artefact-{artefact.SCHEMA}.zip" in {path.name for path in ARTEFACTS}
    for name, number, ending in (
        ("wire", wire.VERSION, "json"), ("dataset", npz.SCHEMA, "npz"),
        ("records", collect.SCHEMA, "jsonl"),
    ):  # fmt: skip
        every = {f"{name}-{i}.{ending}" for i in range(1, number + 1)}
        assert {path.name for path in HERE.glob(f"{name}-*")} == every


@pytest.mark.parametrize("run", RUNS, ids=lambda path: path.name)
def test_a_run_is_played(run: Path) -> None:
    env, policy, params = play.load(run)
    assert np.isfinite(play.judge(env, policy, params, 1)).all()
    assert runs.read_manifest(run)["status"] == "done"


@pytest.mark.long
def test_a_run_is_resumed_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    shutil.copytree(RUNS[-1], run)
    (found,) = collect.collect([run]).results
    assert found.task == TASK
    assert len(found.curve) == 2
    monkeypatch.setattr("sys.argv", ["experiments/sac.py"])
    first = min(int(path.name) for path in (run / "checkpoints").iterdir())
    sac.main(cli.parse(sac.Args, ["--resume", str(run / "checkpoints" / str(first))]))
    again = runs.read_manifest(run)
    assert again["status"] == "done"
    assert again["resumed"][-1]["step"] == first
    before = [row["step"] for row in runs.read_metrics(RUNS[-1])]
    assert [row["step"] for row in runs.read_metrics(run)] == before


@pytest.mark.long
def test_a_checkpoint_has_its_artefact_from_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a run which is killed after the last of them, and resumed, has one, too."""
    run, saved, steps = tmp_path / "run", Saver.save, []
    shutil.copytree(RUNS[-1], run)
    (made,) = run.glob("artefact-*.zip")

    made.unlink()

    def save(self: Saver, step: int, state: Any) -> None:
        artefact.read(made)
        steps.append(step)
        saved(self, step, state)

    monkeypatch.setattr(Saver, "save", save)
    monkeypatch.setattr("sys.argv", ["experiments/sac.py"])
    first = min(int(path.name) for path in (run / "checkpoints").iterdir())
    sac.main(cli.parse(sac.Args, ["--resume", str(run / "checkpoints" / str(first))]))
    assert steps == [600]


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    newer = {"schema": manifest.SCHEMA + 1}
    (tmp_path / "manifest.json").write_text(json.dumps(newer))
    with pytest.raises(ValueError, match="was written by a newer version"):
        runs.read_manifest(tmp_path)


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
@pytest.mark.parametrize("path", ARTEFACTS, ids=lambda path: path.name)
def test_an_artefact_runs(path: Path, runtime: Any) -> None:
    found = artefact.read(path)
    policy = artefact.deploy(found, runtime)  # or its golden vectors did not come out
    assert found.spec.name == TASK
    readings = {name: x[0] for name, x in found.golden.readings.items()}
    assert np.isfinite(policy.step(readings, found.golden.command[0])).all()


def test_datagrams_are_understood() -> None:
    spec = artefact.read(ARTEFACTS[-1]).spec
    sent = json.loads((HERE / f"wire-{wire.VERSION}.json").read_text())
    got = {name: wire.decode(bytes.fromhex(datagram)) for name, datagram in sent.items()}
    check_hello(spec, got["hello"], "The robot")
    state, command = wire.state_of(spec, got["state"]), wire.command_of(spec, got["command"])
    assert (state.seq, state.time, state.reset, state.waits) == (7, 0.14, True, True)
    assert {s.name: s.size for s in spec.sensors} == {n: len(x) for n, x in state.readings.items()}
    assert (command.seq, command.damp, len(command.targets)) == (7, False, len(spec.actuators))
    assert (got["bye"].kind, got["bye"].flags) == (wire.BYE, wire.LOST)
    assert wire.encode(wire.state_message(spec, state)).hex() == sent["state"]
    assert (
        wire.encode(wire.command_message(spec, command, got["command"].time)).hex()
        == sent["command"]
    )
    assert [wire.RESET, wire.DAMP, wire.WAITS, wire.LOST] == [1, 2, 4, 8]
    assert [wire.FAILED, wire.EPISODES, POLICY, PILOT, WATCHER] == [16, 32, 64, 128, 256]
    ask, plan = messages.ask_of(spec, got["ask"]), messages.plan_of(spec, got["plan"])
    assert (ask.period, ask.reset, plan.first, len(plan.targets)) == (9, True, 9, 2)
    word = messages.operator_of(spec, got["operator"])
    assert (word.seq, states.ASKED[word.event], word.number, word.deadman) == (5, "take", 3, True)
    status = messages.status_of(spec, got["status"])
    assert status[:6] == (11, 0.22, "hold", 4, 8, 3)
    other = bytes.fromhex(sent["bye"]).replace(bytes([wire.VERSION]), bytes([wire.VERSION + 1]), 1)
    assert wire.decode(other) is None


def test_a_dataset_and_records_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in HERE.glob("dataset-*.npz"):
        found = npz.read(path)
        assert len(found.episodes["length"]) == len(found.episodes["last_obs/policy"]) == 2
        assert (found.steps["mask"] == ~found.steps["terminated"]).all()
    task = envs.make_task(TASK)
    for path in HERE.glob("dataset-*.npz"):  # a run goes on with the file that it was begun with
        args = off_policy.Args(task, TASK, demos=path)
        _, told = prior.demonstrations(envs.simulate(task, "native"), args)
        assert told == {"demos_sha256": json.loads(np.load(path)["facts"].item())["sha256"]}
    newer = tmp_path / "newer.npz"
    with monkeypatch.context() as later:
        later.setattr(npz, "SCHEMA", npz.SCHEMA + 1)
        npz.write(newer, found)
    with pytest.raises(ValueError, match="was written by a newer version"):
        npz.read(newer)
    for records in HERE.glob("records-*.jsonl"):
        assert all(result.final for result in collect.records(records))
