"""A planted truth is found from a flight's log alone, and what a log does not tell is said."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tyro

from envs.locomotion.joystick import Joystick
from envs.randomise import Ranges
from rl.bridge import __main__ as bridge
from rl.bridge.identify import bench, identify, shoot
from rl.bridge.identify.excite import Jogs
from rl.bridge.identify.fit import Fit, Fitted, Problem, Unknown, _fitted, fit, unknowns
from rl.bridge.identify.tracks import Track
from rl.bridge.log import flight
from rl.bridge.log.flight import Flight, Log
from tests import planted
from tests.planted import GO2, PANDA, RATES, Truth, drawn, jogged, policy, stretches


def fitted(name: str, seed: int, seconds: float = 3.0) -> Fit:
    """From the jogs alone."""
    (whole,), count = stretches(jogged(name, seed, seconds)), round((seconds + 0.2) * RATES[name])
    jogs = Track({k: x[-count:] for k, x in whole.readings.items()}, whole.targets[-count:])
    return fit(shoot.shots(bench.bench(policy(name)), [jogs], 1 / RATES[name]))


def truths(name: str, truth: Truth) -> dict[str, float]:
    """By the names of the unknowns."""
    model, motors = policy(name), policy(name).spec.actuators
    losses = bench.bench(model).model.dof_frictionloss
    on = bench.bench(model)
    nominal = losses[on.dofs[on.motors]]
    told = {"delay": truth.delay / 1000, "payload": truth.payload}
    for i, motor in enumerate(motors):
        told[f"{motor.name} frictionloss"] = nominal[i] + truth.friction[i]
        told[f"{motor.name} damping"] = truth.damping[i]
        told[f"{motor.name} stiffness"] = truth.stiffness[i]
    return told


def inside(found: Fit, true: dict[str, float]) -> list[bool]:
    return [x.low <= true[x.unknown.name] <= x.high for x in found.found]


def off(found: Fit, true: dict[str, float]) -> tuple[float, float]:
    """How far what was fitted is off the truth, and how far the model is, in spreads."""
    fitted, model = (
        [x.unknown.spreads(max(value(x), 1e-9)) - x.unknown.spreads(true[x.unknown.name])
         for x in found.found if x.told]
        for value in (lambda x: x.value, lambda x: x.unknown.nominal)
    )  # fmt: skip
    return float(np.sqrt(np.mean(np.square(fitted)))), float(np.sqrt(np.mean(np.square(model))))


@pytest.mark.long
@pytest.mark.parametrize("name", [GO2, PANDA])
def test_a_planted_truth_is_found(name: str) -> None:
    found, true = fitted(name, 5), truths(name, drawn(name, 5))
    held = inside(found, true)
    assert np.mean(held) >= 0.9, [x for x, y in zip(found.found, held, strict=True) if not y]
    near, model = off(found, true)
    assert near < 0.2 * model
    assert found.left < 0.05 < found.before / found.left
    assert sum(x.told for x in found.found) >= 0.9 * len(found.found)
    assert any(x.unknown.name == "payload" for x in found.found) == (name == PANDA)
    told = json.loads(json.dumps(identify.facts(found, policy(name).spec, "")))
    assert len(told["parameters"]) == len(found.found)
    Ranges(**told["ranges"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [GO2, PANDA])
def test_intervals_hold_the_truth_as_often_as_they_say(name: str) -> None:
    held = [x for seed in range(6, 10)
            for x in inside(fitted(name, seed, 8.0), truths(name, drawn(name, seed)))]  # fmt: skip
    assert np.mean(held) >= 0.92


def a_fitted(
    name: str, unit: str, nominal: float, low: float, high: float, told: bool = True
) -> Fitted:
    return Fitted(Unknown(name, unit, nominal, 0.5, 0.0, 9.0), (low + high) / 2, low, high, told)


FOUND = [
    a_fitted("delay", "s", 0.0, 0.011, 0.019),
    a_fitted("a frictionloss", "N m", 0.2, 0.1, 0.3),
    a_fitted("b frictionloss", "N m", 0.2, 0.2, 0.4),
    a_fitted("c frictionloss", "N m", 0.2, 0.0, 9.0, told=False),
    a_fitted("a damping", "x", 1.0, 0.801, 1.299),
    a_fitted("a stiffness", "x", 1.0, 0.7, 1.3, told=False),
]


def test_ranges_are_the_hull_of_what_the_log_tells() -> None:
    found = identify.ranges(FOUND, walks=True)
    assert found == {"frictionloss": [0.5, 2.0], "damping": [0.8, 1.3]}
    assert identify.delays(FOUND, policy(GO2).spec) == [0, 1]
    Ranges(**{term: (low, high) for term, (low, high) in found.items()})


def test_a_payload_in_a_hand_is_none_of_the_root() -> None:
    payload = a_fitted("payload", "kg", 0.0, 0.2, 0.8)
    assert identify.ranges([payload], walks=True) == {"payload": [0.2, 0.8]}
    assert identify.ranges([payload], walks=False) == {}


def test_friction_that_the_model_lacks_cannot_be_scaled() -> None:
    assert identify.ranges([a_fitted("a frictionloss", "N m", 0.0, 0.2, 0.8)], walks=True) == {}


def test_training_takes_the_flags_that_are_printed() -> None:
    words = identify.flags_of(Fit(FOUND, 0.0, 0.0, 0.0), policy(GO2).spec).replace("--env.", "--")
    task = tyro.cli(Joystick, args=words.split())
    assert task.randomised == 1
    assert task.ranges.frictionloss == (0.5, 2.0)
    assert task.target_delay == (0, 1)
    assert task.ranges.stiffness == Joystick().ranges.stiffness  # not told: as it was


def test_what_is_not_told_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    identify.tell(Fit(FOUND, 0.01, 0.2, 1e-3), policy(GO2).spec)
    said = capsys.readouterr().out
    assert "not told by this log: c frictionloss, a stiffness" in said
    (row,) = [line for line in said.splitlines() if line.startswith("  a stiffness")]
    assert row.endswith("not told: about as wide as was thought before")
    assert "11 to 19 ms" in said
    assert "payload is not told: on a stand" in said


def test_an_unmoved_joint_is_not_told() -> None:
    """Its interval is as wide as what was thought before."""
    moves = Jogs(policy(PANDA).spec, 3.0, 0.3, 0)
    moves.sizes[:, -1], moves.middle = 0, moves.rest  # the gripper stays at its rest
    log = planted.flight(PANDA, drawn(PANDA, 0), moves, 4.2, rate=100)
    shots = shoot.shots(bench.bench(policy(PANDA)), stretches(log), 0.01)
    problem, true = Problem(shots, unknowns(shots.bench)), truths(PANDA, drawn(PANDA, 0))
    z = np.array([u.spreads(true[u.name]) for u in problem.unknowns])
    problem.reweigh(z)
    half = problem.half_widths(z)
    told = {u.name: _fitted(u, 0.0, x).told for u, x in zip(problem.unknowns, half, strict=True)}
    assert not told["finger1 damping"]
    assert told["joint2 damping"]


def written(log: Flight, path: Path) -> Path:
    writer = Log(path, log.about.text())
    for row in log.rows:
        writer.add(flight.pack(row))
    writer.close()
    return path


def ran(monkeypatch: pytest.MonkeyPatch, *words: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["bridge", "identify", *map(str, words)])
    bridge.main()


def artefact_of(name: str) -> Path:
    return planted.POLICIES / name / "artefact-0.zip"


def test_bad_input_is_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = written(jogged(GO2, 0, 2.0), tmp_path / "log.mcap")
    (tmp_path / "text.mcap").write_text("no log")
    (tmp_path / "there.json").write_text("{}")
    go2 = "--artefact", artefact_of(GO2)
    for words, why in (
        ((tmp_path / "none.mcap", *go2), "There is no log"),
        ((tmp_path / "text.mcap", *go2), "is no log of a flight"),
        ((log, "--artefact", artefact_of(PANDA)), "is a flight of go2-joystick-flat, and not of"),
        ((log, "--artefact", tmp_path / "none.zip"), "There is no artefact"),
        ((log, *go2, "--out", tmp_path / "there.json"), "is there already"),
    ):
        with pytest.raises(SystemExit, match=f"error: .*{why}"):
            ran(monkeypatch, *words)


def test_a_log_that_was_cut_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = written(jogged(GO2, 0, 2.0), tmp_path / "whole.mcap").read_bytes()
    (tmp_path / "cut.mcap").write_bytes(whole[: int(0.9 * len(whole))])
    monkeypatch.setattr("rl.bridge.identify.fit.fit", lambda shots: Fit(FOUND, 0.01, 0.2, 1e-3))
    words = "--artefact", artefact_of(GO2), "--out", tmp_path / "ranges.json"
    ran(monkeypatch, tmp_path / "cut.mcap", *words)
    assert "was cut short" in capsys.readouterr().out
    told = json.loads((tmp_path / "ranges.json").read_text())
    assert told["ranges"] == identify.ranges(FOUND, walks=True)
    assert told["target_delay"] == [0, 1]
    assert [x["name"] for x in told["parameters"]] == [x.unknown.name for x in FOUND]


def test_a_robot_that_touches_something_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = written(jogged(GO2, 0, 2.0), tmp_path / "log.mcap")
    touches = Fit(FOUND, 0.4, 0.5, 0.05)
    monkeypatch.setattr("rl.bridge.identify.fit.fit", lambda shots: touches)
    with pytest.raises(SystemExit, match=r"error: .*40% of their motion is unexplained"):
        ran(monkeypatch, log, "--artefact", artefact_of(GO2))
