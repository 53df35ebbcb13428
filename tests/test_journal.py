"""An actor's journal: what was appended is there, whatever happens, until it is acknowledged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl.bridge.learn import journal as module
from rl.bridge.learn import segments
from rl.bridge.learn.frames import RECORD
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.segments import Full

APPENDS = """
import sys
from pathlib import Path
from rl.bridge.learn.journal import Journal
journal = Journal(Path(sys.argv[1]), "arm")
sys.stdout.write(journal.boot.hex() + "\\n")
while True:
    sys.stdout.write(f"{journal.append(b'%d' % journal.next * 99)}\\n")
    sys.stdout.flush()
"""


def everything(journal: Journal, most: int = 10_000) -> dict[bytes, list[bytes]]:
    """All records in it, by boot."""
    found = {}
    for boot, span in journal.held().items():
        records = found[boot] = list[bytes]()
        while more := journal.read(boot, span.start + len(records), most):
            records += more
        assert len(records) == len(span)
    return {boot: records for boot, records in found.items() if records}


def killed(journal: Journal) -> None:
    """As of a process that was."""
    journal._shut()
    journal._lock.close()


def again(path: Path) -> Journal:
    return Journal(path, "arm")


def test_what_was_done_for_a_run_is_in_a_journal_of_its_own(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a", "arm", run="hil-1f")
    journal.append(b"x")
    journal.close()
    again(tmp_path / "b").close()  # as before runs had names
    for folder, theirs, ours in (("a", "hil-1f", "hil-2b"), ("b", "a run without a name", "hil-2b"),
                                 ("a", "hil-1f", "")):  # fmt: skip
        with pytest.raises(ValueError, match=f"done for {theirs}, and not for {ours or 'one'}: na"):
            Journal(tmp_path / folder, "arm", run=ours)
    same = Journal(tmp_path / "a", "arm", run="hil-1f")
    assert [*everything(same).values()] == [[b"x"]]
    same.close()
    again(tmp_path / "b").close()


def test_records_are_numbered_from_0_and_read_as_they_were(tmp_path: Path) -> None:
    journal = again(tmp_path)
    records = [os.urandom(1 + 97 * i) for i in range(300)]
    assert [journal.append(record) for record in records] == list(range(300))
    assert everything(journal) == {journal.boot: records}
    assert journal.read(journal.boot, 250, 1) == records[250:251]
    assert journal.read(journal.boot, 299, 10**6) == records[299:]
    assert journal.read(journal.boot, 300, 10**6) == journal.read(b"other", 0, 1) == []
    journal.close()


def test_what_is_left_of_earlier_boots_comes_first(tmp_path: Path) -> None:
    boots, kept = [], []
    for number in range(3):
        journal = again(tmp_path)
        boots.append(journal.boot)
        kept.append([b"%d %d" % (number, i) for i in range(5)])
        for record in kept[-1]:
            journal.append(record)
        assert journal.pending == 5 * (number + 1)
        journal.close()
    journal = again(tmp_path)
    assert len({*boots, journal.boot}) == 4
    assert [*everything(journal).items()] == [*zip(boots, kept, strict=True)]
    journal.acknowledged(boots[1], 4)
    assert [*everything(journal)] == [boots[0], boots[2]]
    journal.close()


def test_whole_files_go_when_all_in_them_is_acknowledged_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SEGMENT", 1000)
    journal = again(tmp_path)
    for i in range(30):
        journal.append(b"%02d" % i * 100)
    files = len(segments.numbered(tmp_path))
    assert files >= 8
    for i in range(30):
        journal.acknowledged(journal.boot, i)
        assert journal.pending == 29 - i
        held = everything(journal)[journal.boot]
        assert held[-(29 - i) :] == [b"%02d" % j * 100 for j in range(i + 1, 30)] or i == 29
    assert len(segments.numbered(tmp_path)) == 1
    assert journal.append(b"next") == 30
    journal.acknowledged(journal.boot, 30)
    journal.close()
    assert segments.numbered(tmp_path) == []


def test_who_acknowledges_more_than_there_is_removes_nothing_of_what_comes(tmp_path: Path) -> None:
    journal = again(tmp_path)
    journal.append(b"a")
    journal.acknowledged(journal.boot, 10**6)
    journal.acknowledged(b"no boot of ours.", 10**6)
    journal.append(b"b")
    assert journal.pending == 1
    journal.close()
    journal = again(tmp_path)
    assert [records[-1] for records in everything(journal).values()] == [b"b"]
    journal.close()


def test_another_process_and_another_actor_are_refused(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", APPENDS, tmp_path], stdout=subprocess.PIPE) as one:
        assert one.stdout
        assert one.stdout.readline()
        assert one.stdout.readline()
        with pytest.raises(ValueError, match=f"Process {one.pid} writes the journal"):
            again(tmp_path)
        one.kill()
    with pytest.raises(ValueError, match="is the journal of arm, not of leg: name another"):
        Journal(tmp_path, "leg")
    with pytest.raises(ValueError, match=r"'Arm\\n' is no actor's name"):
        Journal(tmp_path, "Arm\n")
    (tmp_path / "actor").unlink()
    with pytest.raises(ValueError, match="is no actor's journal"):
        again(tmp_path)


def test_what_is_damaged_is_told_of_and_what_is_torn_is_not(tmp_path: Path) -> None:
    journal = again(tmp_path)
    for i in range(9):
        journal.append(b"%d" % i * 100)
    journal.close()
    (path,) = segments.numbered(tmp_path)
    whole, each = path.read_bytes(), path.stat().st_size // 9
    at = 4 * each
    for place in (0, 4, 40):  # of the fifth: its length, its sum, what it says
        hurt = bytearray(whole)
        hurt[at + place] ^= 1
        path.write_bytes(hurt)
        with pytest.raises(ValueError, match=f"is damaged at byte {at}.*truncate -s {at} "):
            again(tmp_path)
    path.write_bytes(whole[: -each // 2])
    journal = again(tmp_path)
    assert journal.pending == 8
    journal.close()


@pytest.mark.parametrize("record", [b"", bytes(RECORD + 1)])
def test_a_record_of_no_size_is_refused(record: bytes, tmp_path: Path) -> None:
    journal = again(tmp_path)
    with pytest.raises(ValueError, match=f"has {len(record)} bytes: it takes 1 to"):
        journal.append(record)
    assert journal.append(bytes(RECORD)) == 0
    journal.close()


def test_a_journal_keeps_to_its_quota_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "arm", quota=20_000)
    count = 0
    while journal.size < 19_800:
        assert journal.append(b"%d" % count * 100) == count
        count += 1
    with pytest.raises(Full, match=r"not acknowledged, and may hold 20000"):
        journal.append(b"%d" % count * 100)
    assert sum(x.stat().st_size for x in segments.numbered(tmp_path)) == journal.size <= 20_000
    assert len(everything(journal)[journal.boot]) == count == journal.pending > 80
    journal.acknowledged(journal.boot, count // 2)
    assert journal.append(b"next") == count
    assert everything(journal)[journal.boot][-1] == b"next"
    journal.close()


@settings(max_examples=30)
@given(data=st.data())
def test_a_journal_is_as_its_model(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Appended to, acknowledged, killed, torn and opened again, in any order."""
    folder, few = tmp_path_factory.mktemp("journal"), st.integers(0, 9)
    model, acked = dict[bytes, list[bytes]](), dict[bytes, int]()
    journal = Journal(folder, "arm", quota=4000)
    try:
        for _ in range(data.draw(st.integers(1, 40))):
            match data.draw(st.sampled_from(["append", "append", "acknowledge", "open", "tear"])):
                case "append":
                    record = os.urandom(1 + 60 * data.draw(few))
                    if journal.size + len(record) + 32 <= 4000:
                        seq = journal.append(record)
                        assert seq == len(model.setdefault(journal.boot, []))
                        model[journal.boot].append(record)
                case "acknowledge" if model:
                    boot = data.draw(st.sampled_from([*model]))
                    seq = data.draw(st.integers(0, len(model[boot])))
                    journal.acknowledged(boot, seq)
                    acked[boot] = max(acked.get(boot, -1), min(seq, len(model[boot]) - 1))
                case "open" | "tear" as how:
                    killed(journal)
                    if how == "tear" and (paths := segments.numbered(folder)):
                        with paths[-1].open("ab") as file:
                            file.write(os.urandom(data.draw(few)))
                    journal = Journal(folder, "arm", quota=4000)
            assert journal.size <= 4000
            held = journal.held()
            for boot, records in model.items():
                left = records[acked.get(boot, -1) + 1 :]
                there = [journal.read(boot, i, 1)[0] for i in held.get(boot, ())]
                assert there[len(there) - len(left) :] == left
    finally:
        killed(journal)
