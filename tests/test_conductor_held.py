"""Who has a robot practise holds it where learning has stopped, and leaves it where a human has."""

from pathlib import Path

import pytest

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.learn import conductor
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.learn.conductor import Practice
from rl.bridge.pilot import Word
from tests.conducted import DT, GOOD, Human, Practised


@pytest.fixture(autouse=True)
def _looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "LOOKS_S", 0.0)


@pytest.mark.parametrize("said", conductor.ENDS)
@pytest.mark.parametrize("sim", [False, True])
def test_after_a_human_had_it_rest_nobody_else_has_it_go_on(
    tmp_path: Path, said: str, sim: bool
) -> None:
    human = Human()
    robot = Practised(tmp_path, Practice(seconds=1.0), human, sim=sim)
    robot.live(20)
    human.says = Word(said)
    robot.live()
    human.says = Word()
    robot.live(100)
    if said == states.STOP:
        human.says = Word(states.CLEAR)
        robot.live()
        human.says = Word()
        robot.live(100)
    rests, begun = robot.state, robot.begun
    assert rests in (states.PASSIVE, states.HOLD)
    for event in (states.STAND, states.ARM):
        human.says = Word(event)
        robot.live()
    human.says = Word()
    assert [robot.live().event for _ in range(3)] == [""] * 3  # it is on its way
    robot.live(100)
    assert robot.begun > begun + 1  # one episode after another


def test_what_keeps_it_from_its_learner_is_said_once_where_it_lasts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    robot = Practised(tmp_path, Practice(), sim=True)
    now = 0.0
    monkeypatch.setattr(conductor.time, "monotonic", lambda: now)

    def told(trouble: str, seconds: float) -> str:
        nonlocal now
        for _ in range(round(seconds / DT)):
            now += DT
            robot.account(**GOOD | {"trouble": trouble})
            robot._tick()
        return capsys.readouterr().out

    assert told("Nobody answers.", 2.0) == ""  # as when it begins
    assert told("", 9.0) == ""
    assert told("It does not know the key.", 9.0) == "learner  It does not know the key.\n"
    assert told("Nobody answers.", 9.0) == "learner  Nobody answers.\n"
    assert told("", 9.0) == "learner  is there again\n"
    assert told("Nobody answers.", 1.0) + told("", 9.0) == ""
    assert robot.state == states.ARMED


def test_how_it_goes_is_said_each_minute(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(conductor.time, "monotonic", lambda: now)
    robot = Practised(tmp_path, Practice(), sim=True)

    def told(seconds: float, **facts: float) -> str:
        nonlocal now
        for _ in range(round(seconds / DT)):
            now += DT
            robot.account(**GOOD | facts)
            robot._tick()
        return capsys.readouterr().out

    assert told(59.0) == ""
    assert told(2.0, pending=1_234) == (
        "episodes 7, 0 of them done, 0% of their steps by a human; 1,234 steps are not at the "
        "learner yet\n"
    )
    assert told(60.0, learner_silent_s=75.0).endswith("; the learner is silent for 75 s\n")


def test_it_is_held_where_who_keeps_its_steps_has_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robot, ended = Practised(tmp_path, Practice(), sim=True), False
    robot.conductor.keeps = lambda: not ended
    robot.live(5)
    assert robot.state == states.ARMED
    ended = True
    robot.live(5)
    assert robot.state == states.HOLD
    assert capsys.readouterr().out == (
        "held     who keeps its steps has ended: end this, and say the same again\n"
    )


TROUBLES = {
    "silent": ({"at": -1e6}, "who keeps its steps is silent"),
    "full": ({"full": "there is no room"}, "there is no room"),
    "refused": (
        {"turned_away": "It spoke 0.1 s ago."},
        "the learner refuses it: It spoke 0.1 s ago.",
    ),
    "stale": ({"learner_silent_s": 700.0}, "the learner is silent"),
    "over": ({"over": "it has all", "trouble": "Nobody."}, "the learner is done: it has all"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_it_is_held_where_learning_has_stopped_and_goes_on_after(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more, why = TROUBLES[name]
    robot = Practised(tmp_path, Practice(seconds=5.0), sim=True)
    robot.live(3)
    robot.account(**GOOD | more)
    robot._tick()
    assert robot.told[-1].event == states.WAIT
    assert robot.state == states.HOLD
    robot._tick()
    if name == "refused":
        robot.account(**GOOD | {"turned_away": more["turned_away"].replace("0.1", "0.2")})
    robot._tick()
    assert robot.told[-1].event == ""
    assert capsys.readouterr().out == f"held     {why}\n"  # once
    robot.live()
    assert robot.told[-1].over == 1  # another begins
    assert robot.state == states.ARMED


def test_it_does_not_go_on_from_a_fault_by_itself(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(seconds=1.0))
    robot.live(20)
    robot.state, robot.why = states.FAULT, Reason.TILT
    since = len(robot.told)
    robot.live(40)
    assert {word.event for word in robot.told[since:]} == {""}


def test_it_gives_up_after_being_held_again_and_again(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(seconds=100.0))
    for _ in range(2_000):
        robot.live()
        if robot.state == states.ARMED:
            robot.state, robot.why = states.HOLD, Reason.TRACKING
    assert robot.state == states.HOLD
    assert robot.begun <= conductor.TRIES + 1


def test_it_is_held_where_nobody_has_said_how_it_goes(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(), sim=True)
    (tmp_path / ACCOUNT).unlink()
    robot._tick()
    assert robot.told[-1].event == states.WAIT
