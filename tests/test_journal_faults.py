"""An actor's journal on disks that are full or damaged, and in processes that are killed."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl.bridge.learn import journal as module
from rl.bridge.learn import segments
from rl.bridge.learn.segments import Full
from tests.disks import full_disk
from tests.test_journal import APPENDS, again, everything


@pytest.mark.parametrize("torn", [b"", bytes(50), b"\xff" * 50], ids=["", "0", "1"])
def test_a_torn_end_is_cut_off_wherever_it_is_torn(torn: bytes, tmp_path: Path) -> None:
    journal = again(tmp_path / "whole")
    for i in range(3):
        journal.append(b"%d" % i * (20 + i))
    journal.close()
    (path,) = segments.numbered(tmp_path / "whole")
    data = path.read_bytes()
    ends = [end for _, end in segments.scan(path)]
    for size in range(len(data)):
        folder = tmp_path / str(size)
        folder.mkdir()
        (folder / "actor").write_text("arm")
        (folder / path.name).write_bytes(data[:size] + torn)
        journal = again(folder)
        whole = sum(end <= size for end in ends)
        assert [*everything(journal).values()] == [[b"%d" % i * (20 + i) for i in range(whole)]] * (
            whole > 0
        )
        journal.append(b"next")
        assert [*everything(journal).values()][-1] == [b"next"]
        journal.close()


def test_a_file_that_is_damaged_before_the_last_is_refused_and_can_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind it are then sent after those before it."""
    monkeypatch.setattr(module, "SEGMENT", 200)
    journal = again(tmp_path)
    boot = journal.boot
    for i in range(10):
        journal.append(b"%d" % i * 100)
    journal.close()
    path = segments.numbered(tmp_path)[4]
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match=rf"at byte 0\. .*: truncate -s 0 {path}"):
        again(tmp_path)
    os.truncate(path, 0)
    journal = again(tmp_path)
    assert journal.pending == 9
    assert journal.held()[boot] == range(4)
    journal.acknowledged(boot, 3)
    assert journal.held()[boot] == range(5, 10)
    assert journal.read(boot, 5, 1) == [b"5" * 100]
    journal.close()


def test_a_full_disk_leaves_no_half_of_a_record(tmp_path: Path) -> None:
    journal = again(tmp_path)
    journal.append(b"a" * 1000)
    with full_disk(1500):
        for _ in range(5):
            with pytest.raises(Full, match="has no room: File too large"):
                journal.append(b"b" * 1000)
        (path,) = segments.numbered(tmp_path)
        assert path.stat().st_size == journal.size
        journal.append(b"c" * 100)
        journal.acknowledged(journal.boot, 1)  # of the file that is written to, which then can go
        assert journal.append(b"d" * 1000) == 2
    assert everything(journal) == {journal.boot: [b"d" * 1000]}
    journal.append(b"e")
    journal.close()
    journal = again(tmp_path)
    assert [*everything(journal).values()] == [[b"d" * 1000, b"e"]]
    journal.close()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_fills_halfway_through_a_write(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, write, left = again(tmp_path), os.pwrite, [10**9]

    def some(handle: int, data: memoryview, at: int) -> int:
        if not left[0]:
            raise OSError(code, os.strerror(code))
        count = write(handle, data[: left[0]], at)
        left[0] -= count
        return count

    monkeypatch.setattr(os, "pwrite", some)
    journal.append(b"a" * 1000)
    for room in (0, 1, 7, 8, 32, 500, 999):
        left[0] = room
        with pytest.raises(Full):
            journal.append(b"b" * 1000)
    left[0] = 10**9
    assert journal.append(b"c" * 10) == 1
    journal.close()
    journal = again(tmp_path)
    assert [*everything(journal).values()] == [[b"a" * 1000, b"c" * 10]]
    journal.close()


def test_no_file_can_be_begun_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT", 200)
    journal, opened = again(tmp_path), os.open
    journal.append(b"a" * 100)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        for _ in range(3):
            with pytest.raises(Full):
                journal.append(b"b" * 100)
    assert os.open is opened
    journal.acknowledged(journal.boot, 0)
    assert journal.append(b"c" * 100) == 1
    assert everything(journal) == {journal.boot: [b"c" * 100]}
    journal.close()


def test_a_killed_process_loses_at_most_what_it_was_writing(tmp_path: Path) -> None:
    told: dict[bytes, int] = {}
    for number in range(6):
        with subprocess.Popen(
            [sys.executable, "-c", APPENDS, tmp_path], stdout=subprocess.PIPE
        ) as process:
            assert process.stdout
            boot = bytes.fromhex(process.stdout.readline().decode())
            time.sleep(0.013 * number)
            process.send_signal(signal.SIGKILL)
            lines = process.stdout.read().decode().split("\n")[:-1]
        told |= {boot: int(lines[-1])} if lines else {}
    assert told
    journal = again(tmp_path)
    found = everything(journal)
    for boot, records in found.items():
        assert len(records) - 1 - told.get(boot, -1) in (0, 1)
        assert all(record == b"%d" % i * 99 for i, record in enumerate(records))
    assert told.keys() <= found.keys()
    journal.close()
