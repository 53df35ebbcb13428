"""Noise, strangers' frames and old ones of friends: none is heeded, all are counted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import fuzz
from benchmarks.forgeries import DAMAGED, FORGED, Known, forged
from rl.bridge import messages, states, wire
from rl.bridge.messages import Operator, Plan
from rl.bridge.wire import Command, State
from tests.rig import Rig, body, go2, of

REST = of("rest")
ZEROS, ASKED = np.zeros(12), np.zeros(3)
GOOD = [
    wire.encode(message)
    for message in (
        wire.state_message(go2(), State(9, 0.1, body(), reset=False)),
        wire.command_message(go2(), Command(9, REST, ZEROS, ZEROS, False, ASKED), 0.0),
        messages.plan_message(go2(), Plan(9, REST[None]), 0.0),
        messages.operator_message(go2(), Operator(9, 1, 3, False, ASKED, ZEROS), 0.0),
    )
]


def read(datagram: bytes) -> list[Any]:
    """What all who may hear it make of it; whether motors would do it or not, it raises nothing."""
    message, spec = wire.decode(datagram), go2()
    readers = messages.ask_of, messages.plan_of, messages.operator_of, messages.status_of
    found = [reader(spec, message) for reader in readers]
    return [*found, message and wire.state_of(spec, message)] if message else found


@given(st.binary(max_size=400))
def test_bytes_are_no_message(noise: bytes) -> None:
    assert read(noise) == [None] * 4


@given(st.sampled_from(GOOD), st.data())
def test_a_frame_in_which_a_byte_is_another_is_no_message(good: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(good) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda x: x != good[at]))
    assert wire.decode(good[:at] + bytes([byte]) + good[at + 1 :]) is None


@pytest.mark.parametrize("kind", FORGED)
@given(st.integers(0, 2**32), st.sampled_from(GOOD))
def test_no_forged_frame_is_a_command_of_what_is_no_number(
    kind: Any, seed: int, good: bytes
) -> None:
    frame = kind(Known(go2(), np.random.default_rng(seed), good))
    read(frame)
    message = wire.decode(frame)
    command = message and wire.command_of(go2(), message)
    if command:
        assert np.isfinite(np.concatenate(command[1:4])).all()


def lived(ticks: int, each: int) -> list[bytes]:
    """Commands to a robot, while so many old and damaged frames follow each good one."""
    rng, noise, rig = np.random.default_rng(3), np.random.default_rng(4), Rig(ticks=ticks)
    rig.armed()
    hear, old = rig.core.hear, dict[str, list[bytes]]()

    def heard(source: str, datagram: bytes) -> None:
        hear(source, datagram)
        old.setdefault(source, []).append(datagram)
        for _ in range(each):
            hear(source, forged(go2(), noise, old[source], DAMAGED))

    rig.core.hear = heard
    before, told = rig.core.ears.counts.total(), []
    for _ in range(200):
        angles = body(REST + rng.normal(0, 0.01, 12))
        told.append(rig.tick(angles, REST + rng.normal(0, 1, 12)).datagram)
    assert rig.core.ears.counts.total() - before == each * sum(map(len, old.values()))
    assert rig.core.state == states.ARMED
    return told


@pytest.mark.parametrize("ticks", [1, 5])
def test_old_and_damaged_frames_of_friends_change_no_command(ticks: int) -> None:
    """Between all that they say; and each is counted, once."""
    assert lived(ticks, 0) == lived(ticks, 3)


@pytest.mark.long
def test_a_flight_among_strangers_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    results = tmp_path / "a.jsonl"
    fuzz.main(fuzz.Args(frames=3000, seconds=1.0, results=results))
    (row,) = map(json.loads, results.read_text().splitlines())
    assert (row["ticks"], row["different"], row["damaged"]["different"]) == (500, 0, 0)
    assert sum(row["sent"].values()) == 3000
    assert min(row["sent"].values()) > 500
    assert row["counted"]["sim"] == row["sent"]["sim"]
    assert 0.9 * row["sent"]["desk"] < row["counted"]["robotd"] <= row["sent"]["desk"]
