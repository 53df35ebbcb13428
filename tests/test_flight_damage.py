"""Of a log with a damaged tick the rest is what it was."""

from pathlib import Path

import pytest

from rl.bridge.drivers.udp import Codec
from rl.bridge.log import flight, replay, review
from rl.bridge.log.review import Told
from tests import flights
from tests.flights import eventful
from tests.rig import go2


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return flights.write(tmp_path_factory.mktemp("flight") / "a.mcap", eventful())


@pytest.fixture(scope="module")
def told(log: Path) -> Told:
    return review.of(flight.read(log), log)


def spoilt(log: Path, hits: list[int], path: Path) -> Path:
    """The log, a byte of each of these ticks being another."""
    whole, ends = bytearray(log.read_bytes()), flights.ends(log)
    for i in hits:
        whole[ends[i] - 9] ^= 1
    path.write_bytes(whole)
    return path


def test_what_is_before_it_is_lived_through_again(log: Path, told: Told, tmp_path: Path) -> None:
    count = len(told.flight.rows)
    found = flight.read(spoilt(log, [200], tmp_path / "a.mcap"))
    assert (len(found.rows), found.whole, found.rows[200].lost) == (count - 1, False, 1)
    again = replay.replay(found, Codec(go2()))
    assert (again.ticks, again.different, again.left) == (200, 0, count - 201)


def test_a_report_tells_the_rest_as_it_was(log: Path, told: Told, tmp_path: Path) -> None:
    hits = [i for i, row in enumerate(told.flight.rows) if row.now > told.spans[2].begin + 0.1][:2]
    path = spoilt(log, hits, tmp_path / "a.mcap")
    found = review.of(flight.read(path), path)
    assert not found.flight.whole
    assert (len(found.lived), found.missed) == (len(told.lived) - 2, 0)
    assert [x.why for x in found.spans] == [x.why for x in told.spans]
    assert (found.counts, found.refused) == (told.counts, told.refused)
    assert found.answers.asked >= told.answers.asked - 1
    assert (found.answers.late, found.answers.never) == (told.answers.late, told.answers.never)


def test_a_log_that_lacks_a_tick_is_not_whole(log: Path, tmp_path: Path) -> None:
    whole = bytearray(log.read_bytes())
    whole[flights.ends(log)[100]] = 0xF0  # the next record is of no kind that is known
    (path := tmp_path / "a.mcap").write_bytes(whole)
    assert not flight.read(path).whole
