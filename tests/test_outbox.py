"""Steps from a bridge to who keeps them: each once and in order, whatever is lost or killed."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from rl.bridge import wire
from rl.bridge.learn import outbox
from rl.bridge.learn.outbox import HEAD, Inbox, Outbox, labelled


class Keeper:
    """Who keeps steps, until it is killed; what it has kept outlives it."""

    def __init__(self) -> None:
        self.address = wire.address(wire.free_address())
        self.kept: list[bytes] = []
        self.room = True
        self.begin()

    def begin(self) -> None:
        self.inbox = Inbox(self.address, self._keep)

    def die(self) -> None:
        self.inbox.link.close()

    def _keep(self, record: bytes) -> bool:
        if self.room:
            self.kept.append(record)
        return self.room

    @property
    def steps(self) -> list[bytes]:
        return [found[2] for record in self.kept if (found := labelled(record))]


@pytest.fixture
def keeper() -> Iterator[Keeper]:
    made = Keeper()
    yield made
    made.die()


@pytest.fixture
def box(keeper: Keeper) -> Iterator[Outbox]:
    made = Outbox(keeper.address)
    yield made
    made.link.close()


def settle(box: Outbox, keeper: Keeper, seconds: float = 2.0) -> bool:
    """Whether all is kept in time."""
    until = time.monotonic() + seconds
    while box.waiting and time.monotonic() < until:
        _ = box.kept
        keeper.inbox.hear()
        time.sleep(0.005)
    return not box.waiting


def test_steps_are_kept_in_their_order(keeper: Keeper, box: Outbox) -> None:
    sent = [bytes([i]) * (i + 1) for i in range(200)]
    for step in sent:
        box.put(step)
        keeper.inbox.hear()
    assert settle(box, keeper)
    assert keeper.steps == sent
    assert box.kept
    assert box.close()


def test_what_is_lost_or_comes_twice_or_too_early_is_kept_once(
    keeper: Keeper, box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "AGAIN_S", 0.01)
    rng = np.random.default_rng(0)
    send, held = box.link.send_raw, list[bytes]()

    def badly(datagram: bytes) -> None:
        held.append(datagram)
        rng.shuffle(held)  # type: ignore[arg-type]
        for _ in range(int(rng.integers(0, 3))):  # lost, passed on, or passed on twice
            send(held[0])
        if len(held) > 3:
            held.pop()

    box.link.send_raw = badly  # type: ignore[method-assign]
    sent = [i.to_bytes(2, "big") for i in range(300)]
    for step in sent:
        box.put(step)
        keeper.inbox.hear()
    assert settle(box, keeper, 20.0)
    assert keeper.steps == sent


def test_who_is_killed_and_begun_again_loses_nothing(
    keeper: Keeper, box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "AGAIN_S", 0.01)
    rng = np.random.default_rng(1)
    sent = [i.to_bytes(2, "big") for i in range(400)]
    for step in sent:
        box.put(step)
        _ = box.kept
        if rng.random() < 0.1:
            keeper.die()
            keeper.begin()
        keeper.inbox.hear()
    assert settle(box, keeper)
    # Whose word that a step is kept was lost, it keeps again; who reads tells by the number.
    found = dict.fromkeys(keeper.steps)
    assert [*found] == sent


def test_a_bridge_says_when_nobody_keeps_what_it_does(
    keeper: Keeper, box: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "KEPT_S", 0.1)
    keeper.room = False
    assert box.kept
    box.put(b"step")
    keeper.inbox.hear()
    assert box.kept  # not yet
    time.sleep(0.15)
    keeper.inbox.hear()
    assert not box.kept
    keeper.room = True
    assert settle(box, keeper)
    assert box.kept
    assert keeper.steps == [b"step"]


def test_a_new_bridge_is_heard_from_its_first(keeper: Keeper) -> None:
    for name in (b"one", b"two"):
        box = Outbox(keeper.address)
        box.put(name)
        assert settle(box, keeper)
        box.close()
    assert keeper.steps == [b"one", b"two"]
    assert len({labelled(x)[0] for x in keeper.kept if labelled(x)}) == 2  # type: ignore[index]


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_no_step_and_no_word(keeper: Keeper, box: Outbox, seed: int) -> None:
    rng = np.random.default_rng(seed)
    stranger = wire.Link(("127.0.0.1", 0), keeper.address)
    for _ in range(300):
        noise = rng.bytes(int(rng.integers(0, 80)))
        stranger.send_raw(noise)
        stranger.send_raw(HEAD.pack(outbox.STEP, box.bridge, 5, 9) + noise)  # older than its oldest
        keeper.inbox.hear()
        box._hear(noise)
    assert keeper.kept == []
    box.put(b"step")
    assert settle(box, keeper)
    assert keeper.steps == [b"step"]
    stranger.close()
