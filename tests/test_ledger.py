"""A learner's ledger: what is durable is read once, by others too, and nothing else is."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl.bridge.learn import ledger as module
from rl.bridge.learn import segments
from rl.bridge.learn.ledger import Ledger, Position, Row, Tail
from rl.bridge.learn.segments import Full
from tests.disks import full_disk

A, B = b"a" * 16, b"b" * 16  # boots
WRITES = """
import sys
from pathlib import Path
from rl.bridge.learn import ledger as module
module.SEGMENT = 3000
ledger = module.Ledger(Path(sys.argv[1]))
while True:
    first = ledger.last("arm", b"a" * 16) + 1
    ledger.append("arm", b"a" * 16, first, [b"%d" % i * 50 for i in range(first, first + 3)])
    if first % 2:
        ledger.sync()
        sys.stdout.write(f"{first + 2}\\n")
        sys.stdout.flush()
"""


def all_of(tail: Tail) -> list[Row]:
    rows = []
    while found := tail.read():
        rows += found
    return rows


def numbers(rows: list[Row]) -> list[int]:
    return [row.seq for row in rows]


def test_records_are_read_when_they_are_durable_and_not_before(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert tail.read() == []
    ledger = Ledger(tmp_path)
    ledger.append("arm", A, 0, [b"x", b"y"])
    ledger.append("leg", A, 0, [b"z"])
    assert tail.read() == []
    assert (ledger.last("arm", A), ledger.last("leg", B), ledger.durable) == (1, -1, {})
    ledger.sync()
    assert [row[:4] for row in tail.read()] == [
        ("arm", A, 0, b"x"), ("arm", A, 1, b"y"), ("leg", A, 0, b"z"),
    ]  # fmt: skip
    assert ledger.durable == {("arm", A): 1, ("leg", A): 0}
    ledger.append("arm", B, 7, [b"w"])
    assert tail.read() == []
    ledger.close()
    assert [row[:4] for row in tail.read()] == [("arm", B, 7, b"w")]
    assert tail.read() == []


def test_a_record_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for sync in (False, True):
        ledger.append("arm", A, 10 * sync, [b"x", b"y"])
        if sync:
            ledger.sync()
        with pytest.raises(ValueError, match=f"has record {10 * sync + 1} of arm already"):
            ledger.append("arm", A, 10 * sync + 1, [b"z"])
    ledger.close()
    assert numbers(all_of(Tail(tmp_path))) == [0, 1, 10, 11]


def test_a_reader_goes_on_from_wherever_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT", 500)
    ledger = Ledger(tmp_path)
    for i in range(0, 60, 3):
        ledger.append("arm", A, i, [b"%02d" % (i + j) * 20 for j in range(3)])
        ledger.sync()
    ledger.close()
    assert len(segments.numbered(tmp_path)) > 5
    rows = all_of(Tail(tmp_path))
    assert numbers(rows) == [*range(60)]
    for row in rows:
        again = Position(*map(int, row.after))  # as of a file of JSON
        assert all_of(Tail(tmp_path, again)) == rows[row.seq + 1 :]
    again = Ledger(tmp_path)
    assert again.durable == {("arm", A): 59}
    again.close()


def test_many_rows_are_read_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANY", 1000)
    ledger = Ledger(tmp_path)
    for i in range(100):
        ledger.append("arm", A, i, [bytes(100)])
        ledger.sync()
    ledger.close()
    tail, found = Tail(tmp_path), list[Row]()
    while rows := tail.read():
        assert len(rows) < 12
        found += rows
    assert numbers(found) == [*range(100)]


def test_a_torn_end_is_cut_off_wherever_it_is_torn(tmp_path: Path) -> None:
    """What was durable is there, and what was whole, too."""
    whole = Ledger(tmp_path / "whole")
    whole.append("arm", A, 0, [b"0" * 20, b"1" * 20])
    whole.sync()
    durable = whole._kept
    whole.append("arm", A, 2, [b"2" * 20, b"3" * 20])
    (path,) = segments.numbered(tmp_path / "whole")
    data = path.read_bytes()
    whole.close()
    ends = [end for body, end in segments.scan(path) if body[:1] == b"R"]
    for size in range(durable, len(data)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / path.name).write_bytes(data[:size] + os.urandom(5))
        assert numbers(all_of(Tail(folder))) == [0, 1]
        ledger = Ledger(folder)
        count = sum(end <= size for end in ends)
        assert ledger.durable == {("arm", A): count - 1}
        assert numbers(all_of(Tail(folder))) == [*range(count)]
        ledger.append("arm", A, count, [b"next"])
        ledger.close()
        assert numbers(all_of(Tail(folder))) == [*range(count + 1)]


def test_damage_of_what_was_durable_is_refused_and_not_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT", 400)
    ledger = Ledger(tmp_path)
    for i in range(12):
        ledger.append("arm", A, i, [b"%02d" % i * 30])
        ledger.sync()
    ledger.close()
    first, *_, last = segments.numbered(tmp_path)
    for path, opens in ((last, False), (first, True)):
        data = path.read_bytes()
        path.write_bytes(data.replace(b"0" * 8, b"1" * 8).replace(b"1111", b"2222"))
        if opens:  # it reads the last alone
            Ledger(tmp_path).close()
        else:
            with pytest.raises(ValueError, match=f"{path.name} is damaged at byte"):
                Ledger(tmp_path)
        with pytest.raises(ValueError, match=f"{path.name} is damaged at byte"):
            all_of(Tail(tmp_path)) if opens else Ledger(tmp_path)
        path.write_bytes(data)
    assert numbers(all_of(Tail(tmp_path))) == [*range(12)]


def test_another_process_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    with pytest.raises(ValueError, match=f"Process {os.getpid()} writes the ledger"):
        Ledger(tmp_path)
    ledger.close()
    Ledger(tmp_path).close()


def test_a_full_disk_leaves_what_was_durable_and_it_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    ledger, tail = Ledger(tmp_path), Tail(tmp_path)
    ledger.append("arm", A, 0, [b"0" * 1000])
    ledger.sync()
    with full_disk(2000):
        ledger.append("arm", A, 1, [b"1" * 400])
        for _ in range(3):
            with pytest.raises(Full, match="has no room"):
                ledger.append("arm", A, ledger.last("arm", A) + 1, [b"2" * 3000])
            assert ledger.last("arm", A) == 0
            ledger.sync()
    assert len(segments.numbered(tmp_path)) <= 2
    ledger.append("arm", A, 1, [b"3" * 1000])
    ledger.sync()
    assert [row.record[:1] for row in all_of(tail)] == [b"0", b"3"]
    ledger.close()
    assert [row.record[:1] for row in all_of(Tail(tmp_path))] == [b"0", b"3"]
    with full_disk(100):
        again = Ledger(tmp_path)  # is there, and refuses
        with pytest.raises(Full):
            again.append("arm", A, 2, [b"4" * 3000])
        again.close()


@pytest.mark.parametrize("marks", [False, True])
def test_a_sync_that_fails_makes_nothing_durable(
    marks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`marks`: it does not, and that it did cannot be said."""
    ledger, tail = Ledger(tmp_path), Tail(tmp_path)
    ledger.append("arm", A, 0, [b"0" * 99])
    ledger.sync()
    ledger.append("arm", A, 1, [b"1" * 99])

    def fails(*_: object) -> int:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite" if marks else "fdatasync", fails)
        with pytest.raises(OSError, match="Input/output"):
            ledger.sync()
    assert ledger.durable == {("arm", A): int(marks)} == {("arm", A): ledger.last("arm", A)}
    assert numbers(all_of(tail)) == [0]
    ledger.append("arm", A, 1 + marks, [b"2" * 99])
    ledger.sync()
    assert [row.record[:1] for row in all_of(tail)] == [b"1", b"2"][1 - marks :]
    ledger.close()
    again = Ledger(tmp_path)
    assert again.durable == {("arm", A): 1 + marks}
    again.close()


def test_a_killed_process_loses_nothing_durable_and_its_reader_reads_on(tmp_path: Path) -> None:
    tail, rows = Tail(tmp_path), list[Row]()
    for number in range(6):
        words = [sys.executable, "-c", WRITES, tmp_path]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            until = time.monotonic() + 0.02 * number
            while time.monotonic() < until:
                rows += tail.read()
            process.send_signal(signal.SIGKILL)
            lines = process.stdout.read().decode().split("\n")[:-1]
        ledger = Ledger(tmp_path)
        rows += all_of(tail)
        assert numbers(rows) == [*range(ledger.last("arm", A) + 1)]
        assert not lines or ledger.last("arm", A) >= int(lines[-1])
        ledger.close()
    assert all(row.record == b"%d" % row.seq * 50 for row in rows)
    assert all_of(Tail(tmp_path)) == rows
    assert len(segments.numbered(tmp_path)) > 3
