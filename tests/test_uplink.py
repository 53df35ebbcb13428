"""An actor and its learner apart: nothing is lost, whoever goes away and comes again."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl.bridge.learn import certs, uplink, weights
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.uplink import Uplink
from tests.apart import Actor, Learner, Stage, free_address, rows_of, until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


@pytest.fixture
def learner(stage: Stage) -> Learner:
    return stage.learner()


@pytest.fixture
def arm(stage: Stage, learner: Learner) -> Actor:
    return stage.actor(learner.address)


def numbered(folder: Path, boot: bytes) -> list[int]:
    """What the ledger has of a boot."""
    rows = [row for row in rows_of(folder) if row.boot == boot]
    assert all(row.record.startswith(b"%d " % row.seq) for row in rows)
    return [row.seq for row in rows]


def append(arm: Actor, count: int, size: int = 300) -> None:
    for _ in range(count):
        arm.uplink.append(b"%d " % arm.journal.next + bytes(size))


def test_what_was_recorded_before_there_was_a_learner_comes_when_there_is_one(stage: Stage) -> None:
    boots = []
    address = free_address()
    for _ in range(3):
        arm = stage.actor(address)
        append(arm, 50)
        arm.turn()
        boots.append(arm.journal.boot)
        assert (arm.uplink.up, arm.uplink.pending) == (False, 50 * len(boots))
        stage.close(arm)
    arm, learner = stage.actor(address), stage.learner(address)
    append(arm, 50)
    until(lambda: not arm.uplink.pending, arm, learner)
    assert [numbered(stage.folder, boot) for boot in (*boots, arm.journal.boot)] == [
        [*range(50)]
    ] * 4
    assert [row.boot for row in rows_of(stage.folder)][::50] == [
        *boots,
        arm.journal.boot,
    ]  # in order
    assert arm.uplink.acked == 200


def test_more_boots_than_a_greeting_tells_of_come_all(
    stage: Stage, learner: Learner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink, "BOOTS", 3)
    boots = []
    for _ in range(8):
        journal = Journal(stage.folder / "arm", "arm")
        boots.append(journal.boot)
        journal.append(b"0 ")
        journal.close()
    arm = stage.actor(learner.address)
    append(arm, 1)
    until(lambda: not arm.uplink.pending, arm, learner)
    assert [row.boot for row in rows_of(stage.folder)] == [*boots, arm.journal.boot]


def test_a_learner_that_comes_again_is_found_and_told_no_record_twice(
    stage: Stage, learner: Learner, arm: Actor
) -> None:
    address, boot = learner.address, arm.journal.boot
    append(arm, 100)
    until(lambda: not arm.uplink.pending, arm, learner)
    stage.close(learner)
    append(arm, 100)
    until(lambda: not arm.uplink.up, arm)
    again = stage.learner(address)
    until(lambda: not arm.uplink.pending, arm, again)
    assert numbered(stage.folder, boot) == [*range(200)]


def test_an_actor_that_comes_again_goes_on(stage: Stage, learner: Learner) -> None:
    arm = stage.actor(learner.address)
    append(arm, 10)
    until(lambda: not arm.uplink.pending, arm, learner)
    append(arm, 10)
    boot = arm.journal.boot
    stage.close(arm)  # says goodbye
    arm = stage.actor(learner.address)
    append(arm, 10)
    until(lambda: not arm.uplink.pending, arm, learner)
    assert not learner.intake.refused  # it is not taken for another
    assert numbered(stage.folder, boot) == [*range(20)]
    assert numbered(stage.folder, arm.journal.boot) == [*range(10)]


def test_two_processes_of_one_name_are_not_let_in_at_once(stage: Stage, learner: Learner) -> None:
    first = stage.actor(learner.address)
    until(lambda: first.uplink.up, first, learner)
    second = stage.actor(learner.address, journal=stage.folder / "copy")
    append(second, 1)
    until(lambda: second.uplink.refused, first, second, learner)
    assert "Another process is this actor" in second.uplink.trouble
    took = until(lambda: not second.uplink.pending, second, learner)  # the first is silent
    assert took > 1.0
    assert second.uplink.trouble == ""
    until(lambda: first.uplink.refused, first, second, learner)
    append(first, 1)
    stage.close(second)
    until(lambda: not first.uplink.pending, first, learner)
    assert len(rows_of(stage.folder)) == 2


def test_what_is_under_way_is_bounded(stage: Stage, learner: Learner, arm: Actor) -> None:
    until(lambda: arm.uplink.up, arm, learner)
    append(arm, 300, 60_000)
    most = 0
    for _ in range(200):
        arm.turn()
        most = max(most, arm.uplink._flying)
    assert most <= arm.uplink._window + uplink.BATCH
    while arm.uplink.pending:
        arm.turn()
        learner.turn()
        assert arm.uplink._flying <= uplink.WINDOW + uplink.BATCH
    assert numbered(stage.folder, arm.journal.boot) == [*range(300)]


def test_a_learner_whose_disk_is_full_is_waited_for(
    stage: Stage, learner: Learner, arm: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink, "STALLED_S", 0.2)
    append(arm, 10)
    until(lambda: not arm.uplink.pending, arm, learner)
    write = os.pwrite

    def fails(handle: int, *rest: object) -> int:
        if learner.ledger._open and handle == learner.ledger._open.handle:
            raise OSError(28, "No space left on device")
        return write(handle, *rest)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", fails)
        append(arm, 10)
        until(lambda: learner.intake.counts["writes that failed"] > 3, arm, learner)
        assert arm.uplink.pending == 10
    until(lambda: not arm.uplink.pending, arm, learner)
    assert numbered(stage.folder, arm.journal.boot) == [*range(20)]


def test_pings_tell_how_far_and_how_late_the_learner_is(learner: Learner, arm: Actor) -> None:
    assert (arm.uplink.clocks, arm.uplink.heard_s) == (None, float("inf"))
    until(lambda: arm.uplink.clocks, arm, learner)
    assert arm.uplink.clocks
    assert abs(arm.uplink.clocks.offset) < arm.uplink.clocks.rtt  # it is one clock
    until(lambda: arm.uplink.heard_s > 1.0, arm)


def test_what_an_actor_says_of_itself_is_told(learner: Learner, arm: Actor) -> None:
    long = f"{'/a/folder' * 99} is full"  # as deep as people have them
    arm.uplink.tell({"episodes": 3, "task": "peg", "full": long})
    until(lambda: arm.uplink.up, arm, learner)
    until(lambda: learner.intake.sessions["arm"].stats, arm, learner)
    sessions = learner.intake.facts()["sessions"]
    assert sessions["arm"]["stats"] == {"episodes": 3, "task": "peg", "full": long[:200]}
    for values in ({"a": [1]}, {"a": 1 << 63}, {str(i): i for i in range(65)}, {"a": None}):
        with pytest.raises(ValueError, match="are no statistics"):
            arm.uplink.tell(values)


def test_weights_come_and_older_ones_do_not(stage: Stage, learner: Learner, arm: Actor) -> None:
    blob, address = os.urandom(500_000), learner.address
    weights.publish(stage.folder / "weights", 5, blob)
    until(lambda: arm.uplink.weights, arm, learner)
    assert arm.uplink.weights == (5, blob)
    weights.publish(stage.folder / "weights", 6, blob[:-1])
    until(lambda: arm.uplink.weights[0] == 6, arm, learner)
    stage.close(learner)
    for path in (stage.folder / "weights").iterdir():
        path.unlink()
    weights.publish(stage.folder / "weights", 4, b"older")
    again = stage.learner(address)
    until(lambda: arm.uplink.fetch.counts["older"], arm, again)
    assert arm.uplink.weights == (6, blob[:-1])
    weights.publish(stage.folder / "weights", 7, b"newer")
    until(lambda: arm.uplink.weights == (7, b"newer"), arm, again)


def test_damaged_weights_are_not_taken(stage: Stage, learner: Learner, arm: Actor) -> None:
    weights.publish(stage.folder / "weights", 1, bytes(200_000))
    (path,) = (stage.folder / "weights").iterdir()
    with path.open("r+b") as file:
        file.seek(150_000)
        file.write(b"\1")
    until(lambda: arm.uplink.fetch.counts["damaged"], arm, learner)
    assert arm.uplink.weights is None
    weights.publish(stage.folder / "weights", 2, b"whole")
    until(lambda: arm.uplink.weights == (2, b"whole"), arm, learner)


def test_what_else_is_at_the_poller_is_told(arm: Actor, learner: Learner) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        arm.uplink.poller.register(ours.fileno(), 1)
        until(lambda: arm.uplink.up, arm, learner)
        theirs.send(b"x")
        assert arm.uplink.poll(5.0) == [ours.fileno()]
        ours.recv(1)
        arm.uplink.poller.unregister(ours.fileno())


def test_an_address_that_is_none_is_refused(stage: Stage) -> None:
    journal = Journal(stage.folder / "arm", "arm")
    secret, learner = (certs.read_secret(stage.folder / "keys" / "arm.secret"),
                       certs.read_public(stage.folder / "keys" / "learner.public"))  # fmt: skip
    for address in ("127.0.0.1:9", "tcp://127.0.0.1", "tcp://127.0.0.1:99999", "carrier://pigeon"):
        with pytest.raises(ValueError, match=f"{address} is no address: it is as tcp"):
            Uplink(journal, address, secret, learner)
    journal.close()
