"""A flight's log holds all to the last bit, whatever becomes of it, and is lived through again."""

import signal
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl.bridge import states, wire
from rl.bridge.core import Setup
from rl.bridge.drivers.udp import Codec
from rl.bridge.limits import Limits
from rl.bridge.log import flight, recorder, replay
from rl.bridge.log.flight import SOURCES, About, Heard, Log, Row
from tests.flights import ends
from tests.rig import Rig, body, go2, of

heard = st.builds(Heard, st.sampled_from(SOURCES), st.booleans(), st.binary(max_size=300))
rows = st.builds(
    Row, st.integers(0, 2**64 - 1), st.floats(allow_nan=False), st.floats(allow_nan=False),
    st.floats(allow_nan=False), st.lists(heard, max_size=4).map(tuple), st.binary(max_size=300),
    st.sampled_from(states.STATES), st.integers(0, 2**16 - 1),
    st.integers(0, 3).map(lambda n: np.arange(2.0 * n).reshape(n, 2 if n else 0)),
)  # fmt: skip


@given(rows)
def test_a_tick_is_read_as_it_was(row: Row) -> None:
    got = flight.unpack(flight.pack(row))
    assert got is not None
    assert got[:-2] == row[:-2]
    np.testing.assert_array_equal(got.stages, row.stages)


@given(rows, st.data())
def test_a_damaged_tick_is_none(row: Row, data: st.DataObject) -> None:
    whole = flight.pack(row)
    at, flip = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(1, 255))
    assert flight.unpack(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]) is None
    assert flight.unpack(whole[:at]) is None


QUICK = Limits(stand_s=0.5, blend_s=0.1)


def about() -> About:
    return About(Setup(go2(), QUICK, 5, artefact="a" * 64), "udp", 1.75e9)


def flown(ticks: int = 400) -> list[Row]:
    """A robot that stands up, walks among faults, is stopped, cleared and stands up again."""
    rng, rig, found = np.random.default_rng(0), Rig(QUICK, 5), []
    said = [Heard("policy", False, wire.encode(wire.hello(go2())))]  # which a rig heard before
    hear, sense, asked = rig.core.hear, rig.core.sense, [False]

    def heard(source: str, datagram: bytes) -> None:
        said.append(Heard(source, asked[0], datagram))
        hear(source, datagram)

    def sensed() -> bytes:
        question = sense()
        asked[0] = True
        return question

    rig.core.hear, rig.core.sense = heard, sensed  # type: ignore[method-assign]
    events = {2: "stand", 200: "arm", 300: "stop", 340: "clear", 350: "stand"}
    at = of("rest") + 0.1
    for t in range(ticks):
        asked[0] = False
        if rng.random() < 0.1:
            heard("watcher", rng.bytes(20))
        wish = of("rest") + rng.normal(0, 0.5, 12) * (rng.random() > 0.05 or np.nan)
        told = rig.tick(body(at), wish, event=events.get(t, ""), late=rng.random() * 1e-3)
        if told.command is not None and not told.command.damp:
            at = at + 0.2 * (told.command.targets - at)
        stages = told.stages if told.stages.size else np.zeros((0, 0))
        found.append(Row(t, rig.core.now, rig.core.late, np.nan, tuple(said), told.datagram,
                         told.state, int(told.mask), stages))  # fmt: skip
        said.clear()
    return found


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flight") / "a.mcap"
    made = Log(path, about().text())
    for row in flown():
        made.add(flight.pack(row))
    made.close()
    return path


def test_a_log_lived_through_again_agrees_to_the_last_bit(log: Path) -> None:
    found = flight.read(log)
    assert found.whole
    assert found.about == about()
    assert {row.state for row in found.rows} >= {"passive", "ready", "armed", "fault"}
    again = replay.replay(found, Codec(go2()))
    assert (again.ticks, again.different, again.first) == (400, 0, "")


@pytest.mark.parametrize("what", ["datagram", "late", "told"])
def test_what_was_otherwise_is_seen(log: Path, what: str) -> None:
    found = flight.read(log)
    at = next(i for i, row in enumerate(found.rows) if row.state == "ready") + 50
    row = found.rows[at]
    changes: dict[str, Any] = {
        "datagram": {"heard": row.heard[1:]},
        "late": {"now": row.now + 0.3},
        "told": {"told": row.told[:-1] + bytes([row.told[-1] ^ 1])},
    }
    changed = [*found.rows[:at], row._replace(**changes[what]), *found.rows[at + 1 :]]
    again = replay.replay(found._replace(rows=changed), Codec(go2()))
    assert again.different > 0
    assert again.first.startswith(f"tick {at}: ")


def test_of_a_log_that_was_cut_every_whole_tick_is_read(log: Path, tmp_path: Path) -> None:
    whole, after = log.read_bytes(), ends(log)
    assert len(after) == 400
    rng = np.random.default_rng(0)
    for cut in [len(whole) // 2, *map(int, rng.integers(after[0], len(whole), 30)), after[7]]:
        (path := tmp_path / "cut.mcap").write_bytes(whole[:cut])
        found = flight.read(path)
        assert len(found.rows) == sum(end <= cut for end in after)
        assert not found.whole
    (path := tmp_path / "half.mcap").write_bytes(whole[: len(whole) // 2])
    again = replay.replay(flight.read(path), Codec(go2()))
    assert (again.different, again.ticks > 150) == (0, True)


def test_what_is_no_log_is_refused(tmp_path: Path, log: Path) -> None:
    for noise in (b"", b"no log", log.read_bytes()[:50]):
        (path := tmp_path / "a.mcap").write_bytes(noise)
        with pytest.raises(ValueError, match=r"a\.mcap is no log of a flight"):
            flight.read(path)
    with pytest.raises(ValueError, match="There is no log"):
        flight.read(tmp_path / "none.mcap")


def test_a_recorder_that_is_frozen_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for ever at the end, when it is given up, and said to be."""
    monkeypatch.setattr(recorder, "ENDS_S", 0.5)
    feed = recorder.Feed(tmp_path / "a.mcap", about())
    feed.process.send_signal(signal.SIGSTOP)
    row = Row(0, 0.0, 0.0, 0.0, (), bytes(1000), states.ARMED, 0, np.zeros((3, 12)))
    for number in range(500):  # more than a pipe has room for
        feed.tick(row._replace(number=number))
    assert feed.backlog > 100_000
    assert not feed.close()
    assert feed.process.returncode == -signal.SIGKILL


def test_a_disk_that_is_full_holds_nobody_up_and_keeps_what_was_written(tmp_path: Path) -> None:
    feed = recorder.Feed(path := tmp_path / "a.mcap", about())
    row = Row(0, 0.0, 0.0, 0.0, (), bytes(1000), states.ARMED, 0, np.zeros((3, 12)))
    psutil.Process(feed.process.pid).rlimit(psutil.RLIMIT_FSIZE, (100_000, 100_000))
    number = 0
    while not feed.broken:
        feed.tick(row._replace(number=number))
        number += 1
        assert number < 1_000_000
    assert not feed.close()
    found = flight.read(path)
    assert not found.whole
    assert 50 < len(found.rows) < 100  # of some 1,400 bytes each
    assert [x.number for x in found.rows] == list(range(len(found.rows)))
