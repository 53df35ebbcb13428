"""What a learner apart is put to: kills, intruders, and as many records as it takes."""

import json
from pathlib import Path

import pytest

from benchmarks import ingest, learner_kills, trespass
from benchmarks.distant_actor import record
from benchmarks.learner_kills import Life, Said, judged
from rl.bridge.learn.ledger import Ledger

BOOT = bytes(16)


def test_nothing_is_lost_whoever_is_killed(tmp_path: Path) -> None:
    args = learner_kills.Args(kills=4, actor_kills=1, seed=1, results=tmp_path / "a.jsonl")
    learner_kills.main(args)
    (row,) = map(json.loads, args.results.read_text().splitlines())
    assert row["what"] == "hil/learner_kills"
    assert (row["lost"], row["duplicated"], row["corrupt"], row["misread"]) == (0, 0, 0, 0)
    assert row["boots"] == 2
    assert row["records"] > 100


def test_what_is_lost_or_comes_twice_or_damaged_is_noticed(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger")
    for seq in (0, 1, 3, 4, 6):
        body = record(BOOT, seq)
        ledger.append("arm", BOOT, seq, [b"x" + body[1:] if seq == 4 else body])
    ledger.append("other", BOOT, 0, [record(BOOT, 0)])
    ledger.close()
    (tmp_path / "learner.json").write_text('{"count": 5, "sum": 0}')
    assert judged(tmp_path, Said({BOOT: 8})) == {
        "records": 6, "boots": 1, "lost": 4, "duplicated": 1, "corrupt": 1, "misread": 1,
    }  # fmt: skip


def test_what_the_last_learner_had_sent_is_no_acknowledgement_of_the_next() -> None:
    life = Life(10.0, 12.0, True)
    assert life.took([9.0, 10.01, 10.7, 11.0]) == 10.7 - 10.0
    assert life.took([9.0, 10.01, 12.5]) == float("inf")


@pytest.mark.long
def test_intruders_are_counted_and_the_actors_records_come(tmp_path: Path) -> None:
    kinds = "replay", "again", "fuzz"  # others in test_gate.py
    args = trespass.Args(kinds, seconds=0.3, frames=500, results=tmp_path / "a.jsonl")
    trespass.main(args)
    (row,) = map(json.loads, args.results.read_text().splitlines())
    assert (row["lost"], row["wrong"], row["foreign"]) == (0, 0, 0)
    counted = {kind: one["counted"] for kind, one in row["kinds"].items()}
    assert counted["replay"]["handshakes that failed"] > 0
    assert counted["again"]["duplicates"] >= 10
    assert sum(x for why, x in counted["fuzz"].items() if why.startswith("malformed")) > 300


def test_every_record_that_is_timed_is_acknowledged() -> None:
    assert ingest.rate(98_000, 40) > 0
