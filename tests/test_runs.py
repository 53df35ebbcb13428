"""A run's files as they are found: damaged, or short of rows."""

from pathlib import Path

import pytest

from rl import record, runs


def test_rows_that_are_lost_or_damaged_are_told_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with record.Record(tmp_path / "run", 40, seeds=[0], config={}) as log:
        log.log(1, {"q": 1.0})
        log.log(2, {"q": 2.0})
    before = (log.out / "manifest.json").read_text()
    whole = (log.out / "metrics.jsonl").read_bytes()
    (log.out / "metrics.jsonl").write_bytes(b"garbage\n" + whole)
    with pytest.raises(ValueError, match=r"Line 1 of .*metrics\.jsonl is damaged: delete it"):
        record.Record.again(log.out)
    assert (log.out / "manifest.json").read_text() == before
    (log.out / "metrics.jsonl").write_bytes(whole[: len(whole) // 2 + 9])
    with record.Record.again(log.out) as again:
        again.rewind(2)
    assert "warning: metrics.jsonl has lost rows before step 2" in capsys.readouterr().err
    (log.out / "metrics.jsonl").write_bytes(whole)
    with record.Record.again(log.out) as again:
        again.rewind(2)
    assert not capsys.readouterr().err


def test_a_run_is_not_written_over_a_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(ValueError, match="taken is a file: give --out a directory"):
        runs.free(tmp_path / "taken")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
