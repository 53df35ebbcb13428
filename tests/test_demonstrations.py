"""A human beside who has a robot practise: demonstrations, and episodes that it calls over."""

from pathlib import Path

import numpy as np
import pytest

from rl.bridge import states
from rl.bridge.learn import conductor, learn
from rl.bridge.learn.conductor import Practice
from rl.bridge.pilot import Word
from rl.bridge.source import By
from tests.guided import SIZE, spec
from tests.test_conductor import Human, Practised


@pytest.fixture(autouse=True)
def _looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "LOOKS_S", 0.0)


def test_what_a_human_calls_over_is(tmp_path: Path) -> None:
    """Done or not, once; the robot is brought back, and begins anew."""
    for sim in (True, False):
        human = Human()
        robot = Practised(tmp_path, Practice(seconds=10.0), human, sim)
        robot.live(20)
        assert robot.begun == 1
        human.says = Word(over=1)
        word = robot.live()
        assert (word.over, word.event) == (1, "" if sim else states.WAIT)
        human.says = Word()
        robot.live(20)
        assert (robot.begun, robot.state) == (2, states.ARMED)
        assert robot.conductor.count[:2] == (1, 0)
        human.says = Word(over=1)  # of an episode that was
        robot.live(3)
        assert (robot.begun, robot.conductor.count.episodes) == (2, 1)


def test_the_first_episodes_are_a_humans(tmp_path: Path) -> None:
    for sim in (True, False):
        human = Human()
        human.says = Word(action=np.full(SIZE, 0.5))
        robot = Practised(tmp_path, Practice(seconds=1.0, demos=2), human, sim)
        acted: dict[int, set[str]] = {}
        while robot.begun < 4:
            before = robot.begun, robot.state
            gives = robot.state == states.INTERVENE and robot.tick % 5 == 0
            human.says = human.says._replace(event=states.GIVE if gives else "")
            word = robot.live()
            if before[1] in states.MOVING and before[0] == robot.begun:
                acted.setdefault(robot.begun, set()).add(robot.state)
                assert word.action is not None
        moving = {n: who - {states.HOLD} for n, who in acted.items()}
        assert moving == {1: {states.INTERVENE}, 2: {states.INTERVENE}, 3: {states.ARMED}}
        assert robot.conductor.count.by_human >= 38


def test_a_humans_stop_is_heard_in_a_demonstration(tmp_path: Path) -> None:
    human = Human()
    robot = Practised(tmp_path, Practice(demos=1), human, sim=True)
    robot.live(3)
    for event in (states.STOP, states.RELAX, states.WAIT):
        human.says = Word(event)
        assert robot.conductor.word(robot.status()) == Word(event)


def test_after_demonstrations_it_goes_to_the_next_checkpoint_by_itself(tmp_path: Path) -> None:
    places = tmp_path / "places.csv"
    places.write_text("0.5,0,0\n0,0,0.7\n")
    robot = Practised(tmp_path, Practice(seconds=1.0, demos=2, checkpoints=places), Human())
    while robot.conductor.count.episodes < 2:
        robot.live()
    assert robot.state == states.INTERVENE
    robot.live(3)
    assert robot.state == states.ARMED
    robot.conductor.human.says = Word(states.TAKE)  # whose hand is heard
    assert robot.live().event == states.TAKE
    robot.conductor.human.says = Word()
    robot.live(5)
    assert robot.state == states.INTERVENE


def test_demonstrations_need_a_human(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Read:
        spec = spec()

    monkeypatch.setattr(learn.artefact, "read", lambda path: Read)
    for by in (By(), By(command=())):
        args = learn.Learn(Path("explorer.zip"), by=by, practice=Practice(demos=1))
        with pytest.raises(
            ValueError, match=r"demos has a human act, and none is at hand: say --k"
        ):
            learn.learn(args)
