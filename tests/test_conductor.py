"""Who has a robot practise: one episode after another, a human at hand or not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rl.bridge import states
from rl.bridge.learn import conductor
from rl.bridge.learn.conductor import Conductor, Practice
from rl.bridge.pilot import Word
from tests.conducted import Human, Practised
from tests.guided import SIZE, spec


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
