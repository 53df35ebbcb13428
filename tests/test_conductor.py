"""Who has a robot practise: one episode after another, a human at hand or not."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.learn import conductor
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.learn.conductor import Conductor, Practice
from rl.bridge.messages import Own, Status
from rl.bridge.pilot import Word
from tests.guided import SIZE, spec

GOOD = {"learner_silent_s": 0.1, "full": "", "trouble": "", "turned_away": ""}
DT = 0.05


class Human:
    """Says what it is told to."""

    def __init__(self) -> None:
        self.says = Word()

    def silent(self, seconds: float) -> bool:
        return seconds > 3

    def word(self, status: Status) -> Word:
        return self.says


class Practised:
    """A robot that does what it is told, and what its conductor says."""

    def __init__(
        self, folder: Path, practice: Practice, human: Any = None, sim: bool = False
    ) -> None:
        self.folder, self.sim, self.seconds = folder, sim, practice.seconds
        self.account(**GOOD)
        self.conductor = Conductor(spec(), practice, folder, human)
        self.tick, self.begun, self.done = 0, int(sim), 0.0
        self.state, self.why = states.ARMED if sim else states.PASSIVE, Reason(0)
        self.told: list[Word] = []

    def account(self, **facts: Any) -> None:
        (self.folder / ACCOUNT).write_text(json.dumps({"at": time.monotonic()} | facts))

    def live(self, ticks: int = 1) -> Word:
        for _ in range(ticks):
            self.account(**GOOD)
            self._tick()
        return self.told[-1]

    def status(self) -> Status:
        return Status(
            self.tick, DT * self.tick, self.state, int(self.why), 0, 0, {}, np.zeros(12),
            episodes=self.sim, begun=self.begun, own=Own(np.zeros(SIZE), self.done, 0),
        )  # fmt: skip

    def _tick(self) -> None:
        self.tick += 1
        word = self.conductor.word(self.status())
        self.told.append(word)
        if word.event:
            before, self.state = self.state, states.after(self.state, word.event)
            self.why = Reason.ASKED
            self.begun += self.state == states.ARMED and before != states.INTERVENE
        if self.sim and word.over == self.begun:
            self.begun, self.state, self.done = self.begun + 1, states.ARMED, 0.0


@pytest.fixture(autouse=True)
def _looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "LOOKS_S", 0.0)


def test_a_simulated_robot_begins_anew_when_it_is_done_or_late(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(seconds=1.0), sim=True)
    robot.live(5)
    assert {word.over for word in robot.told} == {0}
    robot.done = 1.0
    assert robot.live().over == 1
    robot.live(20)  # 1 s of the next
    assert robot.begun == 2
    assert robot.live(2).over in (0, 2)
    assert robot.begun == 3
    assert robot.conductor.count[:2] == (2, 1)


def test_another_robot_is_brought_back_to_where_it_begins(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(seconds=10.0))
    robot.live(30)
    events = [word.event for word in robot.told if word.event]
    assert events[:2] == [states.STAND, states.ARM]
    robot.done = 1.0
    robot.live()
    robot.done = 0.0
    robot.live(30)
    events = [word.event for word in robot.told if word.event]
    assert events[2:5] == [states.WAIT, states.STAND, states.ARM]
    assert robot.begun == 2


def test_it_leaves_a_place_by_a_way_of_its_own(tmp_path: Path) -> None:
    way = tmp_path / "up.csv"
    way.write_text("0,0,1\n0,0,0.5\n")
    robot = Practised(tmp_path, Practice(seconds=1.0, retreat=way))
    robot.live(20)
    robot.done = 1.0
    first = robot.live()
    assert (first.event, first.over, first.deadman) == (states.TAKE, 1, True)
    second, third = robot.live(), robot.live()
    assert first.action is not None
    assert second.action is not None
    assert [first.action[2], second.action[2]] == [1, 0.5]
    assert third.event == states.WAIT


def test_between_checkpoints_it_is_brought_back_nowhere(tmp_path: Path) -> None:
    places = tmp_path / "places.csv"
    places.write_text("0.5,0,0\n0,0,0.7\n")
    robot = Practised(tmp_path, Practice(seconds=1.0, checkpoints=places))
    robot.live(12)
    since = len(robot.told)
    robot.live(50)
    events = {word.event for word in robot.told[since:]}
    assert events == {""}
    asked = [tuple(word.command) for word in robot.told[since:] if word.command is not None]
    assert set(asked) == {(0.5, 0, 0), (0, 0, 0.7)}
    overs = [word.over for word in robot.told[since:]]
    assert sum(overs) == 2  # each for one tick
    assert robot.conductor.count.episodes == 2


def test_it_ends_after_so_many(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(seconds=0.5, episodes=3), sim=True)
    for _ in range(100):
        if robot.live().leaves:
            break
    assert robot.conductor.count.episodes == 3


def test_a_humans_words_are_passed_on(tmp_path: Path) -> None:
    human = Human()
    robot = Practised(tmp_path, Practice(seconds=1.0), human, sim=True)
    human.says = Word(states.TAKE, action=np.ones(SIZE), deadman=True)
    word = robot.live()
    assert (word.event, word.deadman) == (states.TAKE, True)
    np.testing.assert_array_equal(word.action, np.ones(SIZE))
    human.says = Word(action=np.ones(SIZE), deadman=True)
    robot.live(3)
    assert robot.conductor.count.by_human >= 2
    human.says = Word(states.STOP)
    assert robot.live() == Word(states.STOP)
    human.says = Word(leaves=True)
    assert robot.live().leaves
    assert robot.conductor.silent(4)
    assert not robot.conductor.silent(2)


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
    assert robot.state == states.ARMED


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


BAD = {
    "seconds": (Practice(seconds=0.0), "--practice.seconds is 0"),
    "episodes": (Practice(episodes=-1), "--practice.episodes is -1"),
    "demos": (Practice(demos=-1), "--practice.demos is -1"),
    "stale": (Practice(stale_s=float("nan")), "--practice.stale-s is nan"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_refused(tmp_path: Path, name: str) -> None:
    practice, why = BAD[name]
    with pytest.raises(ValueError, match=why):
        Conductor(spec(), practice, tmp_path)


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "needs lines of 3 numbers of the command"), ("1,2\n", "needs lines of 3"),
     ("a,b,c\n", "is no CSV file of numbers"), ("1,nan,2\n", "needs lines of 3"),
     (None, "There is no file")],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:loadtxt")
def test_a_file_of_checkpoints_that_is_none_is_refused(
    tmp_path: Path, text: str | None, why: str
) -> None:
    path = tmp_path / "places.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=why):
        Conductor(spec(), replace(Practice(), checkpoints=path), tmp_path)
