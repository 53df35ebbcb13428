"""What a learner makes of what actors say: each record is taken once, whoever says what."""

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl.bridge.learn import frames, weights
from rl.bridge.learn.frames import Message
from rl.bridge.learn.intake import GONE_S, SILENT_S, Intake
from rl.bridge.learn.ledger import Ledger
from rl.bridge.learn.weights import Shelf
from tests.apart import rows_of

A, B = b"a" * 16, b"b" * 16  # boots
PEER, OTHER = b"peer", b"other"


class Rig(Intake):
    """That tells its answers to a list."""

    def __init__(self, folder: Path, spec: bytes = b"", run: str = "") -> None:
        self.told = list[tuple[bytes, Message]]()
        ledger, shelf = Ledger(folder / "ledger"), Shelf(folder / "weights")
        super().__init__(
            ledger, shelf, spec, lambda peer, message: self.told.append((peer, message)), run
        )

    def says(
        self, *messages: Message | str, peer: bytes = PEER, actor: str = "arm"
    ) -> list[Message]:
        """What the peer is told when it says so."""
        for message in messages:
            self.hear(peer, actor, message)
        self.commit()
        told, self.told = self.told, []
        assert all(to == peer for to, _ in told)
        return [message for _, message in told]

    def close(self) -> None:
        self.ledger.close()
        self.shelf.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def hello(
    boot: bytes = A, held: dict[bytes, int] | None = None, spec: bytes = b"", run: str = ""
) -> Message:
    return frames.Hello("arm", boot, spec, held or {boot: 0}, run)


def some(first: int, count: int, boot: bytes = A) -> Message:
    return frames.data(boot, first, [b"%d" % i for i in range(first, first + count)])


def taken(folder: Path, boot: bytes = A) -> list[int]:
    rows = [row for row in rows_of(folder) if row.boot == boot]
    assert all(row.record == b"%d" % row.seq for row in rows)
    return [row.seq for row in rows]


def test_records_are_acknowledged_when_others_can_read_them(rig: Rig, tmp_path: Path) -> None:
    assert rig.says(hello()) == [frames.Welcome({A: -1})]
    rig.hear(PEER, "arm", some(0, 3))
    assert rig.told == []
    assert taken(tmp_path) == []
    assert rig.says(some(3, 2)) == [frames.Ack({A: 4})]  # both at once
    assert taken(tmp_path) == [0, 1, 2, 3, 4]


def test_what_comes_again_is_taken_once(rig: Rig, tmp_path: Path) -> None:
    rig.says(hello(), some(0, 5))
    assert rig.says(some(0, 5)) == rig.says(some(2, 1)) == [frames.Ack({A: 4})]
    assert rig.says(some(3, 4)) == [frames.Ack({A: 6})]  # half of it is new
    assert taken(tmp_path) == [*range(7)]
    assert (rig.counts["records"], rig.counts["duplicates"]) == (7, 8)


def test_behind_a_gap_nothing_is_taken_and_it_is_said_once_from_where_on(
    rig: Rig, tmp_path: Path
) -> None:
    rig.says(hello(), some(0, 2))
    assert rig.says(some(3, 1)) == [frames.Welcome({A: 1})]
    assert rig.says(some(4, 1), some(5, 1)) == []  # which was under way
    assert rig.says(some(2, 2)) == [frames.Ack({A: 3})]
    assert rig.says(some(5, 1)) == [frames.Welcome({A: 3})]
    assert taken(tmp_path) == [*range(4)]
    assert rig.counts["gaps"] == 4


def test_a_boot_that_was_not_told_of_is_not_taken(rig: Rig, tmp_path: Path) -> None:
    rig.says(hello())
    assert rig.says(some(0, 1, B)) == [frames.Welcome({A: -1})]
    assert taken(tmp_path, B) == []


def test_a_learner_that_begins_anew_is_told_what_it_had(rig: Rig, tmp_path: Path) -> None:
    rig.says(hello(), some(0, 5))
    rig.close()
    again = Rig(tmp_path)
    assert again.says(some(5, 1))[0] == frames.Refused(
        "The learner does not know who this is: greet it."
    )
    assert again.says(hello(B, {A: 0, B: 0})) == [frames.Welcome({A: 4, B: -1})]
    assert again.says(some(3, 3), some(0, 1, B)) == [frames.Ack({A: 5, B: 0})]
    again.close()
    assert (taken(tmp_path), taken(tmp_path, B)) == ([*range(6)], [0])


def test_what_another_ledger_has_is_not_waited_for(rig: Rig, tmp_path: Path) -> None:
    """An actor no longer has what was acknowledged to it; what is behind is not lost for that."""
    assert rig.says(hello(held={A: 7})) == [frames.Welcome({A: 6})]
    assert rig.says(some(6, 1)) == [frames.Ack({A: -1})]
    assert rig.says(some(7, 2)) == [frames.Ack({A: 8})]
    assert rig.says(hello(held={A: 20})) == [frames.Welcome({A: 19})]
    assert rig.says(some(20, 2)) == [frames.Ack({A: 21})]
    assert taken(tmp_path) == [7, 8, 20, 21]
    assert rig.counts["elsewhere"] == 11  # of a boot that was known


def test_an_actor_is_who_its_key_says(rig: Rig, tmp_path: Path) -> None:
    (told,) = rig.says(hello(), actor="leg")
    assert told == frames.Refused("This key is leg's, not arm's: use its own.")
    rig.says(some(0, 1), actor="leg")
    assert (rig.refused, taken(tmp_path)) == ({"name": 1, "no greeting": 1}, [])


def test_actors_of_another_spec_are_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path, b"12345678")
    (told,) = rig.says(hello())
    assert told == frames.Refused("The learner is for robots of spec 3132333435363738, not none.")
    assert rig.says(hello(spec=b"12345678")) == [frames.Welcome({A: -1})]
    rig.close()


def test_a_second_process_is_refused_until_the_first_is_silent(rig: Rig, tmp_path: Path) -> None:
    rig.says(hello(), some(0, 1))
    (told,) = rig.says(hello(B), peer=OTHER)
    assert isinstance(told, frames.Refused)
    assert "Another process is this actor, and spoke 0.0 s ago: end it" in told.text
    assert rig.says(some(1, 1)) == [frames.Ack({A: 1})]
    rig.sessions["arm"].heard -= SILENT_S
    assert rig.says(hello(B), peer=OTHER) == [frames.Welcome({B: -1})]
    assert isinstance(rig.says(some(2, 1))[0], frames.Refused)  # the first wakes up
    assert isinstance(rig.says(hello())[0], frames.Refused)
    assert rig.says(some(0, 1, B), peer=OTHER) == [frames.Ack({B: 0})]
    rig.says(frames.Bye(), peer=OTHER)
    assert rig.says(hello()) == [frames.Welcome({A: 1})]


def test_a_process_that_comes_again_is_welcome_at_once(rig: Rig) -> None:
    rig.says(hello(), some(0, 1))
    assert rig.says(hello(), peer=OTHER) == [frames.Welcome({A: 0})]


def test_who_is_gone_is_forgotten(rig: Rig) -> None:
    rig.says(hello())
    rig.look()
    assert rig.sessions
    rig.sessions["arm"].heard -= GONE_S + 1
    rig.look()
    assert not rig.sessions


def test_a_ping_is_answered_with_the_learners_clock(rig: Rig) -> None:
    rig.says(hello())
    before = time.monotonic()
    (pong,) = rig.says(frames.Ping(-3.0))
    assert isinstance(pong, frames.Pong)
    assert before <= pong.received <= pong.replied <= time.monotonic()
    assert pong.sent == -3.0


def test_what_is_malformed_is_counted_and_answered_only_if_it_is_of_another_version(
    rig: Rig,
) -> None:
    rig.says(hello())
    assert rig.says("crc", "format", "format", frames.Welcome({}), frames.Refused("no")) == []
    assert rig.malformed == {"crc": 1, "format": 2, "not an actor's": 2}
    assert rig.says("version") == [frames.Refused("The learner speaks version 2 alone.")]


def test_a_full_disk_is_not_acknowledged_to_and_is_tried_again(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    rig.says(hello(), some(0, 2))
    for call in ("pwrite", "fdatasync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fails)
            acks = rig.says(some(2, 2))
            assert acks in ([], [frames.Ack({A: 1})])
            rig.says(some(4, 1))
    assert rig.says(hello()) == [frames.Welcome({A: 1})]
    assert rig.says(some(2, 3)) == [frames.Ack({A: 4})]
    assert taken(tmp_path) == [*range(5)]
    assert rig.counts["writes that failed"] >= 2
    assert "No space left" in rig.trouble


def test_weights_are_told_of_and_given_in_pieces(rig: Rig, tmp_path: Path) -> None:
    blob = os.urandom(100_000)
    rig.says(hello())
    weights.publish(tmp_path / "weights", 3, blob)
    rig.look()
    (manifest,) = rig.says()
    assert isinstance(manifest, frames.Manifest)
    assert (manifest.version, manifest.nbytes) == (3, 100_000)
    chunks = rig.says(frames.Pull(3, 0), frames.Pull(3, 65536), frames.Pull(3, 100_000))
    assert b"".join(x.data for x in chunks if isinstance(x, frames.Chunk)) == blob
    assert chunks[2:] == [manifest]  # there is no more
    assert rig.says(frames.Pull(9, 0)) == [manifest]
    rig.look()
    assert rig.says() == []
    assert rig.says(hello()) == [frames.Welcome({A: -1}), manifest]
