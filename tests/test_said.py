"""That a human calls it done: from a word to what is learned, on every way between."""

import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments.lived import Lived, Pieces, Robot, hil_serl
from rl import artefact
from rl.bridge import messages, states, wire
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.learn.conductor import Conductor, Practice
from rl.bridge.learn.outbox import LABEL
from rl.bridge.learn.steps import Step, Steps, pack, unpack
from rl.bridge.messages import Own, Plan, Status
from rl.bridge.pilot import Pilot, Word
from tests.lives import BRIDGE, flown, reach
from tests.rig import Rig
from tests.test_conductor import Human, Practised, _looks
from tests.test_lived import policy

__all__ = ["_looks", "policy"]  # fixtures
SAYS = 9  # the step of an episode in which it is said


class Sent:
    """A link that keeps what is sent."""

    def __init__(self) -> None:
        self.last = b""

    def send(self, message: wire.Message) -> None:
        self.last = wire.encode(message)


class Person:
    def __init__(self, says: int) -> None:
        self.left = says

    def silent(self, seconds: float) -> bool:
        return False

    def word(self, status: Status) -> Word:
        self.left -= status.state in states.MOVING
        return Word(done=self.left == 0)


def practised(folder: Path, policy: artefact.Deployed, says: int) -> list[bytes]:
    """What is kept of an episode in which a human says so, and of the next's beginning."""
    flight, spec, kept = flown(policy, 12, lambda i: False), policy.spec, list[bytes]()
    rig = Rig(ticks=1, episodes=True, spec=spec)
    steps = Steps(spec, lambda record: kept.append(LABEL.pack(BRIDGE, len(kept)) + record))
    account = {"at": time.monotonic() + 1e6, "learner_silent_s": 0.0}
    account |= dict.fromkeys(("trouble", "turned_away", "full"), "")
    (folder / ACCOUNT).write_text(json.dumps(account))
    conductor, link = Conductor(spec, Practice(), folder, Person(says)), Sent()
    pilot: Any = Pilot(spec, link)  # type: ignore[arg-type]
    sizes, reset = np.cumsum([s.size for s in spec.sensors])[:-1], True
    for i, step in enumerate(flight.steps):
        core = rig.core
        core.begin(i * core.dt, 0.0)
        told = dict(
            zip((s.name for s in spec.sensors), np.split(step.readings, sizes), strict=True)
        )
        rig.robot(told, reset=reset, stirs=False)
        status = messages.status_of(spec, wire.decode(wire.encode(
            messages.status_message(spec, core.status(i)))))  # fmt: skip
        assert status
        pilot.say(conductor.word(status), status)
        core.hear("operator", link.last)
        question = messages.ask_of(spec, wire.decode(core.sense()))
        assert question
        steps.ask(core)
        own = Own(step.policy, 0.0, 0, step.memory)
        plan = Plan(question.period, flight.targets[i][None], own)
        core.hear("policy", wire.encode(messages.plan_message(spec, plan, 0.0)))
        found = core.act()
        steps.tick(core, found)
        reset = bool(found.command and found.command.again)
    return kept


def unpacked(policy: artefact.Deployed, kept: list[bytes]) -> list[Any]:
    return [unpack(policy.spec, record[LABEL.size :]) for record in kept]


def lived(policy: artefact.Deployed, kept: list[bytes]) -> list[Lived]:
    pieces, robot = Pieces(policy.spec), Robot(reach(), policy.spec)
    return [robot.lived(piece) for record in kept for piece in pieces.take(record)]


def test_what_a_human_calls_done_is_rewarded_and_ends(
    policy: artefact.Deployed, tmp_path: Path
) -> None:
    kept = practised(tmp_path, policy, says=SAYS)
    (found,) = lived(policy, kept)
    told = hil_serl(found).all
    # What was seen in the step before led to what was called done.
    assert np.asarray(told.reward).tolist() == [0] * (SAYS - 1) + [1]
    assert np.asarray(told.terminated).nonzero()[0].tolist() == [SAYS - 1]
    assert not np.asarray(told.truncated).any()


def test_it_is_learned_from_as_if_a_program_had_said_so(
    policy: artefact.Deployed, tmp_path: Path
) -> None:
    kept = practised(tmp_path, policy, says=SAYS)
    steps = unpacked(policy, kept)
    assert [x.said for x in steps if isinstance(x, Step)].index(True) == SAYS
    program = [
        record[: LABEL.size] + pack(x._replace(said=False, over=False, done=1.0))
        if isinstance(x, Step) and x.said
        else record
        for record, x in zip(kept, steps, strict=True)
    ]
    same: Any = lived(policy, program), lived(policy, kept)
    jax.tree.map(np.testing.assert_array_equal, *same)


@pytest.mark.parametrize("says", [0, 1, 3])
def test_who_says_nothing_or_in_haste_has_called_nothing_done(
    policy: artefact.Deployed, tmp_path: Path, says: int
) -> None:
    kept = practised(tmp_path, policy, says)
    assert len(kept) == 11
    assert not any(step.said or step.over for step in unpacked(policy, kept))
    assert not lived(policy, kept)  # the episode goes on


def test_a_human_says_that_it_is_done(tmp_path: Path) -> None:
    human = Human()
    robot = Practised(tmp_path, Practice(seconds=5.0), human, sim=True)
    robot.live(10)
    human.says = Word(done=True)
    word = robot.live()
    assert (word.over, word.done) == (1, True)
    assert robot.conductor.count[:2] == (1, 1)
    human.says = Word()
    assert not robot.live().done
    human.says = Word(done=True)  # of the one before, still
    assert robot.live().over == 0
    assert robot.conductor.count[:2] == (1, 1)


def test_what_a_human_said_is_said_until_it_is_heard(tmp_path: Path) -> None:
    human = Human()
    robot = Practised(tmp_path, Practice(seconds=5.0), human)
    robot.live(30)
    human.says = Word(done=True)
    first = robot.live()
    human.says = Word()
    robot.state = states.ARMED  # its word to wait was lost
    for word in (first, robot.live()):
        assert (word.event, word.over, word.done) == (states.WAIT, 1, True)
    robot.live(30)
    assert robot.begun == 2
    assert {(word.over, word.done) for word in robot.told[-5:]} == {(0, False)}


def test_what_a_program_or_the_clock_ends_no_human_has_called_done(tmp_path: Path) -> None:
    robot = Practised(tmp_path, Practice(seconds=1.0), Human(), sim=True)
    robot.live(5)
    robot.done = 1.0
    robot.live(25)
    assert robot.begun == 3
    assert not any(word.done for word in robot.told)
