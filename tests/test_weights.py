"""Weights on their way: whole and newer, or not taken."""

import hashlib
import os
from pathlib import Path

import pytest

from rl.bridge.learn import weights
from rl.bridge.learn.frames import CHUNK, Chunk, Manifest, Pull
from rl.bridge.learn.weights import AHEAD, PATIENCE_S, Fetch, Shelf, Weights

BLOB = bytes(range(256)) * 2000  # 8 pieces


def manifest(version: int, blob: bytes = BLOB) -> Manifest:
    return Manifest(version, hashlib.sha256(blob).digest(), len(blob))


def piece(pull: Pull, blob: bytes = BLOB) -> Chunk:
    return Chunk(*pull, blob[pull.offset : pull.offset + CHUNK])


def pulled(fetch: Fetch, blob: bytes, now: float) -> int:
    """Answer all that is asked for; how many pieces that were."""
    count = 0
    while asks := fetch.asks(now):
        count += len(asks)
        for pull in asks:
            fetch.arrived(piece(pull, blob), now)
    return count


def test_what_was_published_is_there_whole_and_older_ones_go(tmp_path: Path) -> None:
    shelf, folder = Shelf(tmp_path / "w"), tmp_path / "w"
    assert not shelf.look()
    for version in (1, 2, 7):
        assert weights.publish(folder, version, BLOB + b"%d" % version)
        assert shelf.look()
        assert not shelf.look()
        assert shelf.newest == manifest(version, BLOB + b"%d" % version)
    assert len([*folder.iterdir()]) == weights.KEPT
    for version in (7, 3):
        assert not weights.publish(folder, version, b"older")
        assert not shelf.look()
    assert shelf.newest == manifest(7, BLOB + b"7")


@pytest.mark.parametrize("blob", [b"", bytes(weights.WEIGHTS + 1)], ids=["empty", "large"])
def test_weights_of_no_size_are_refused(blob: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="they take 1 to"):
        weights.publish(tmp_path, 1, blob)


@pytest.mark.parametrize("version", [-1, 10**12])
def test_a_version_that_no_name_can_have_is_refused(version: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"Weights of version {version}: it takes"):
        weights.publish(tmp_path, version, b"x")


def test_a_folder_that_cannot_be_read_has_no_newer_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(24, "Too many open files")

    weights.publish(tmp_path, 1, BLOB)
    shelf = Shelf(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(weights, "_listed", fails)
        assert not shelf.look()
        assert shelf.chunk("arm", Pull(1, 0)) is None
    assert shelf.look()


def test_what_a_killed_learner_left_half_is_removed(tmp_path: Path) -> None:
    (tmp_path / "000000000001-ab.weights.partial").write_bytes(b"half")
    (tmp_path / "notes.weights").write_bytes(b"whatever")
    shelf = Shelf(tmp_path)
    assert not shelf.look()
    weights.publish(tmp_path, 1, BLOB)
    assert not list(tmp_path.glob("*.partial"))
    assert shelf.look()


def test_weights_that_are_being_pulled_stay_though_newer_ones_come(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    weights.publish(tmp_path, 1, BLOB)
    assert shelf.chunk("arm", Pull(1, 0)) == piece(Pull(1, 0))
    for version in range(2, 9):
        weights.publish(tmp_path, version, b"newer")
    assert shelf.chunk("arm", Pull(1, CHUNK)) == piece(Pull(1, CHUNK))
    assert shelf.chunk("leg", Pull(1, CHUNK)) is None
    assert shelf.chunk("arm", Pull(8, 0)) == Chunk(8, 0, b"newer")
    assert shelf.chunk("arm", Pull(1, 0)) is None
    assert shelf.chunk("arm", Pull(8, 5)) is None
    shelf.close()


def test_few_pieces_are_under_way_at_once() -> None:
    fetch = Fetch()
    fetch.offered(manifest(1))
    asks = fetch.asks(0.0)
    assert asks == [Pull(1, CHUNK * i) for i in range(AHEAD)]
    assert fetch.asks(0.0) == []
    fetch.arrived(piece(asks[0]), 0.0)
    assert fetch.asks(0.0) == [Pull(1, CHUNK * AHEAD)]
    assert pulled(fetch, BLOB, 0.0) == 0  # those before have not come


def test_weights_come_whole() -> None:
    fetch = Fetch()
    fetch.offered(manifest(4))
    assert pulled(fetch, BLOB, 0.0) == 8
    assert fetch.newest == Weights(4, BLOB)
    assert pulled(fetch, BLOB, 99.0) == 0


def test_what_does_not_come_is_asked_for_again_from_there_on() -> None:
    fetch = Fetch()
    fetch.offered(manifest(1))
    first, second, *_ = fetch.asks(0.0)
    fetch.arrived(piece(first), 0.5)
    fetch.arrived(piece(first), 0.5)  # twice
    fetch.arrived(piece(second._replace(version=2)), 0.5)
    assert fetch.asks(0.5 + 0.9 * PATIENCE_S) == [Pull(1, CHUNK * AHEAD)]
    assert fetch.asks(0.5 + PATIENCE_S)[0] == second
    fetch.arrived(piece(second), 2.0)
    for at in range(2, AHEAD + 1):
        fetch.arrived(piece(Pull(1, CHUNK * at)), 2.0)
    pulled(fetch, BLOB, 2.0)
    assert fetch.newest == Weights(1, BLOB)


def test_older_weights_are_refused_and_counted() -> None:
    fetch = Fetch()
    fetch.offered(manifest(5))
    pulled(fetch, BLOB, 0.0)
    fetch.offered(manifest(5))  # told again
    fetch.offered(manifest(4))
    fetch.offered(manifest(5, b"another fifth"))
    assert fetch.counts == {"older": 2}
    assert pulled(fetch, BLOB, 9.0) == 0
    assert fetch.newest == Weights(5, BLOB)


def test_damaged_weights_are_not_taken_and_are_pulled_again() -> None:
    fetch, damaged = Fetch(), bytearray(BLOB)
    damaged[-1] ^= 1
    fetch.offered(manifest(1))
    assert pulled(fetch, bytes(damaged), 0.0) == 8
    assert (fetch.newest, fetch.counts) == (None, {"damaged": 1})
    assert pulled(fetch, BLOB, 0.5) == 0  # not at once
    assert pulled(fetch, BLOB, PATIENCE_S) == 8
    assert fetch.newest == Weights(1, BLOB)


def test_newer_weights_wait_until_those_that_are_pulled_have_come_or_are_given_up() -> None:
    fetch, newer = Fetch(), os.urandom(3 * CHUNK)
    fetch.offered(manifest(1))
    first = fetch.asks(0.0)[0]
    fetch.offered(manifest(2, newer))
    assert fetch.asks(0.1) == []
    fetch.arrived(piece(first), 0.2)
    assert fetch.asks(0.2) == [Pull(1, CHUNK * AHEAD)]
    assert pulled(fetch, newer, 0.2 + PATIENCE_S) == 3
    assert fetch.newest == Weights(2, newer)
    fetch.offered(manifest(3))
    fetch.asks(5.0)
    fetch.offered(manifest(4, newer))
    for at in range(8):
        fetch.arrived(piece(Pull(3, CHUNK * at)), 5.0)
    assert fetch.newest == Weights(3, BLOB)
    assert pulled(fetch, newer, 5.0) == 3
    assert fetch.newest == Weights(4, newer)
