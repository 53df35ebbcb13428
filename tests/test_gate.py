"""A learner's port among strangers: what is no actor of its is put out, and holds up none."""

import contextlib
import os
import random
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from rl.bridge.learn import certs, frames
from rl.bridge.learn.gate import Gate
from tests.apart import Actor, Learner, Stage, keys, port_of, rows_of, until


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()


def delivers(arm: Actor, learner: Learner) -> bool:
    """Whether more records are acknowledged."""
    for _ in range(10):
        arm.uplink.append(os.urandom(300))
    until(lambda: not arm.uplink.pending, arm, learner)
    return arm.uplink.up


class Peer:
    """Who has keys, and sends what it likes."""

    def __init__(self, place: Path, address: str) -> None:
        secret = certs.read_secret(place / "keys" / "bad.secret")
        learner = certs.read_public(place / "keys" / "learner.public")
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.DEALER)
        self.socket.set(zmq.CURVE_SERVERKEY, learner)
        self.socket.set(zmq.CURVE_SECRETKEY, secret)
        self.socket.set(zmq.CURVE_PUBLICKEY, zmq.curve_public(secret))
        self.socket.connect(address)

    def close(self) -> None:
        self.context.destroy(linger=0)


@contextmanager
def known(stage: Stage, learner: Learner) -> Iterator[zmq.Socket[bytes]]:
    """A socket of who has keys, and sends what it likes."""
    secret = certs.read_secret(stage.folder / "keys" / "bad.secret")
    public = certs.read_public(stage.folder / "keys" / "learner.public")
    with zmq.Context() as context, context.socket(zmq.DEALER) as made:
        made.set(zmq.LINGER, 0)
        made.set(zmq.CURVE_SERVERKEY, public)
        made.set(zmq.CURVE_SECRETKEY, secret)
        made.set(zmq.CURVE_PUBLICKEY, zmq.curve_public(secret))
        made.connect(learner.address)
        yield made


def test_a_port_that_is_taken_is_refused(stage: Stage) -> None:
    learner = stage.learner()
    with pytest.raises(ValueError, match=rf"Cannot listen on {learner.address}: Address"):
        Gate(learner.address, certs.read_secret(stage.folder / "keys" / "learner.secret"), {})


def strange(stage: Stage, address: str, *ours: str) -> Actor:
    """An actor with keys from elsewhere, but for these."""
    folder = stage.folder / "elsewhere"
    keys(folder, "arm")
    for name in ours:
        shutil.copy(stage.folder / "keys" / name, folder / "keys" / name)
    arm = stage.actor(address, keys=folder / "keys", journal=folder / "journal")
    arm.uplink.append(b"not for you")
    return arm


def test_a_key_that_is_not_known_is_told_so(stage: Stage) -> None:
    learner, arm = stage.pair()
    other = strange(stage, learner.address, "learner.public")
    why = "The learner does not know the key of this actor."
    until(lambda: other.uplink.trouble == why, other, learner)
    until(lambda: learner.gate.counts["keys that are not known"] >= 2, other, learner)  # goes on
    assert delivers(arm, learner)
    assert {row.boot for row in rows_of(stage.folder)} == {arm.journal.boot}


def test_a_learner_with_another_key_is_no_learner(stage: Stage) -> None:
    learner = stage.learner()
    arm = strange(stage, learner.address, "arm.public", "arm.secret")
    until(lambda: "has another key" in arm.uplink.trouble, arm, learner)
    assert rows_of(stage.folder) == []


def test_garbage_on_the_port_is_put_out_and_counted(stage: Stage) -> None:
    learner, arm = stage.pair()
    rng, at = random.Random(0), ("127.0.0.1", port_of(learner.address))
    for _ in range(30):
        with socket.create_connection(at) as one:
            one.sendall(rng.randbytes(rng.randint(1, 5000)))
            learner.turn()
    with socket.create_connection(at) as one:
        one.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        assert delivers(arm, learner)
    until(lambda: learner.gate.counts["disconnections"] >= 25, learner)


def test_who_sends_a_byte_now_and_then_is_put_out_and_holds_up_nobody(stage: Stage) -> None:
    learner, arm = stage.pair()
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(48)
    at = "127.0.0.1", port_of(learner.address)
    slow = [socket.create_connection(at) for _ in range(20)]
    for byte in greeting:
        if all(map(closed, slow)):
            break
        for one in slow:
            with contextlib.suppress(OSError):
                one.send(bytes([byte]))
        assert delivers(arm, learner)
        time.sleep(0.2)
    assert all(map(closed, slow))
    for one in slow:
        one.close()


def closed(one: socket.socket) -> bool:
    """Whether the other side has closed it."""
    one.setblocking(False)
    try:
        while one.recv(1000):
            pass
        return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_an_actors_name_is_its_keys(stage: Stage) -> None:
    """A secret is in other hands, or a flag is wrong."""
    learner = stage.learner()
    bad = stage.actor(learner.address, "bad", called="arm", journal=stage.folder / "stolen")
    bad.uplink.append(b"as arm")
    why = "This key is bad's, not arm's: use its own."
    until(lambda: bad.uplink.trouble == why, bad, learner)
    assert rows_of(stage.folder) == []
    assert learner.intake.refused["name"] > 0


@pytest.mark.parametrize("size", [frames.FRAME + 1, 10 * frames.FRAME])
def test_what_is_too_large_is_not_taken(size: int, stage: Stage) -> None:
    """And who sends what is far too large is put out."""
    learner, arm = stage.pair()
    counts, why = learner.intake.malformed, "oversize"
    if size > 2 * frames.FRAME:
        counts, why = learner.gate.counts, "disconnections"
    with known(stage, learner) as bad:
        bad.send(bytes(size))
        until(lambda: counts[why] == 1, learner)
        assert delivers(arm, learner)


def test_ten_thousand_damaged_frames_of_a_known_peer_harm_nobody(stage: Stage) -> None:
    learner, arm = stage.pair()
    rng, boot = random.Random(0), bytes(16)
    whole = [
        frames.Hello("bad", boot, b"", {boot: 0}, ""), frames.Ping(1.0), frames.Bye(),
        frames.data(boot, 0, [b"x" * 50, b"y" * 50]), frames.Pull(1, 0), frames.Stats({"a": 1}),
    ]  # fmt: skip
    sent = [frames.encode(message) for message in whole]
    with known(stage, learner) as bad:
        for number in range(10_000):
            frame = bytearray(rng.choice(sent))
            for _ in range(rng.randint(0, 4)):
                frame[rng.randrange(len(frame))] = rng.randrange(256)
            bad.send_multipart([bytes(frame)] * rng.choice([1, 1, 1, 2]))
            if number % 500 == 0:
                arm.uplink.append(b"%d" % number)
            if number % 20 == 0:
                learner.turn()
                arm.turn()
        counts = learner.intake.malformed
        until(lambda: not arm.uplink.pending and counts.total() > 5000, arm, learner)
    assert [row.record for row in rows_of(stage.folder) if row.actor == "arm"] == [
        b"%d" % number for number in range(0, 10_000, 500)
    ]
    records = {row.record for row in rows_of(stage.folder) if row.actor == "bad"}
    assert records <= {b"x" * 50, b"y" * 50}
    assert {"parts", "fields", "format", "kind", "version", "crc"} <= {*counts}
