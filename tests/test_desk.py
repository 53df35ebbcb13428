"""A bridge's desk: who is let in, and that strangers, however many, change nothing for them."""

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from rl.bridge import desk as module
from rl.bridge import messages, wire
from rl.bridge.clock import LockStep
from rl.bridge.desk import PILOT, POLICY, REFUSED, WATCHER, Desk
from rl.bridge.messages import Plan
from rl.bridge.wire import Link
from tests.rig import Rig, body, go2, of

HOME = "127.0.0.1"


@pytest.fixture
def links() -> Iterator[list[Link]]:
    """All that were opened in a test."""
    opened: list[Link] = []
    yield opened
    for link in opened:
        link.close()


@pytest.fixture
def desk(links: list[Link]) -> Iterator[Desk]:
    made = Desk(go2(), (HOME, 0), (1.0, 1.0))
    yield made
    made.close()


def come(desk: Desk, links: list[Link], flags: int, host: str = HOME) -> Link:
    """Somebody from `host`, who has greeted."""
    links.append(link := Link((host, 0), desk.door.socket.getsockname()))
    link.send(wire.hello(go2())._replace(flags=flags))
    desk.collect()
    return link


def answer(link: Link) -> wire.Message:
    got = link.receive(1.0)
    assert got is not None
    return got[0]


def plan(first: int) -> bytes:
    return wire.encode(messages.plan_message(go2(), Plan(first, of("rest")[None]), 0.0))


def asked(desk: Desk) -> float:
    return desk.ask(b"a question", True, 7, 0.0)


def bye() -> wire.Message:
    return wire.Message(wire.BYE, 0, go2().hash, 0, 0.0, np.zeros(0, "<f4"))


def test_a_flood_of_strangers_loses_nothing_of_who_was_let_in(
    desk: Desk, links: list[Link]
) -> None:
    """And all of it is counted: what was read, and what the kernel threw away."""
    policy = come(desk, links, POLICY)
    links.append(stranger := Link(("127.0.0.9", 0), desk.door.socket.getsockname()))
    for i in range(3000):
        stranger.send_raw(plan(7) if i % 2 else bytes(100))
    policy.send_raw(plan(7))
    assert asked(desk) < 1.0
    heard = desk.collect()
    assert heard == [("policy", plan(7))]
    for _ in range(3):
        assert desk.collect() == []
    assert desk.turned_away().total() == 3000


def test_a_strangers_goodbye_ends_nothing(desk: Desk, links: list[Link]) -> None:
    pilot, watcher = come(desk, links, PILOT), come(desk, links, WATCHER, "127.0.0.2")
    links.append(stranger := Link(("127.0.0.3", 0), desk.door.socket.getsockname()))
    for link in (stranger, watcher):
        link.send(bye())
        desk.collect()
    assert not desk.left
    pilot.send(bye())
    desk.collect()
    assert desk.left


@pytest.mark.parametrize("flag", [POLICY, PILOT])
def test_nobody_takes_a_place_from_who_is_not_silent(
    flag: int, desk: Desk, links: list[Link]
) -> None:
    first = come(desk, links, flag)
    assert not answer(first).flags & REFUSED
    for i in range(2, 40):
        assert answer(come(desk, links, flag, f"127.0.0.{i}")).flags & REFUSED
    first.send_raw(plan(7))
    assert plan(7) in [each.datagram for each in desk.collect()]
    assert desk.turned_away() == {"of others who would drive it": 38}


@pytest.mark.parametrize("flag", [POLICY, PILOT])
def test_another_takes_the_place_of_who_fell_silent(
    flag: int, desk: Desk, links: list[Link]
) -> None:
    who = {POLICY: "policy", PILOT: "operator"}[flag]
    first = come(desk, links, flag)
    desk.told += module.SILENT_S + 0.1  # who is told, and says nothing
    second = come(desk, links, flag)
    assert not answer(second).flags & REFUSED
    desk.collect()
    first.send_raw(b"a ghost")
    second.send_raw(b"alive")
    assert desk.collect() == [(who, b"alive")]


def test_who_does_not_answer_in_lock_step_makes_way_at_once(desk: Desk, links: list[Link]) -> None:
    desk.patience["policy"] = 0.01
    come(desk, links, POLICY)
    assert np.isnan(asked(desk))
    assert not answer(come(desk, links, POLICY)).flags & REFUSED


def test_watchers_have_places_and_no_more(desk: Desk, links: list[Link]) -> None:
    come(desk, links, POLICY)
    come(desk, links, PILOT)
    watchers = [come(desk, links, 0, f"127.0.1.{i}") for i in range(1, 40)]
    assert len(desk.watchers) == module.MOST_WATCHERS
    for watcher in watchers[:3]:
        watcher.send_raw(b"a word")
    assert desk.collect().count(("watcher", b"a word")) == 3
    for at in desk.watchers:
        desk.spoke[at] -= module.GONE_S
    desk.tell(rig_status())
    assert not desk.watchers


def rig_status() -> Any:
    rig = Rig()
    rig.tick(body())
    return rig.core.status(0)


def test_another_robots_greeting_is_answered_and_let_in_nowhere(
    desk: Desk, links: list[Link]
) -> None:
    links.append(other := Link((HOME, 0), desk.door.socket.getsockname()))
    for flag in (POLICY, PILOT, 0):
        other.send(wire.hello(go2())._replace(hash=bytes(8), flags=flag))
    desk.collect()
    assert answer(other).hash == go2().hash
    assert (desk.links, desk.watchers) == ({}, {})


def test_a_strangers_token_or_goodbye_moves_no_clock(links: list[Link]) -> None:
    """A bridge's clock in lock step hears its robot alone."""
    links.append(robot := Link((HOME, 0)))
    clock = LockStep(go2(), robot.socket.getsockname(), 0.3)
    links.append(clock.link)
    got = robot.receive(1.0)
    assert got is not None
    links.append(stranger := Link(("127.0.0.9", 0)))
    for kind in (wire.TOKEN, wire.BYE):
        stranger.answer(bye()._replace(kind=kind, seq=3), (HOME, got[1][1]))
    assert clock.wait() is None
    robot.answer(bye()._replace(kind=wire.TOKEN, seq=4), got[1])
    assert clock.wait().number == 4


def test_a_port_that_is_taken_is_refused_though_links_are_beside_it(links: list[Link]) -> None:
    links.append(door := Link((HOME, 0)))
    links.append(door.beside((HOME, 9)))
    with pytest.raises(ValueError, match="Cannot listen on"):
        Link(door.socket.getsockname())


def test_who_was_paused_itself_waits_on(
    desk: Desk, links: list[Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a SIGSTOP for longer than its patience, in which the answer comes."""
    policy = come(desk, links, POLICY)
    clock, paused, receive = time.monotonic, 0.0, Link.receive_raw

    def stopped(link: Link, timeout: float) -> Any:
        nonlocal paused
        if link is desk.links["policy"] and not paused:
            paused = 99.0
            policy.send_raw(plan(7))
            return None
        return receive(link, timeout)

    monkeypatch.setattr(module.time, "monotonic", lambda: clock() + paused)
    monkeypatch.setattr(Link, "receive_raw", stopped)
    assert desk.ask(b"a question", True, 7, 0.0) >= 99
    assert desk.silent == set()


def test_greetings_at_the_door_do_not_come_after_words(desk: Desk, links: list[Link]) -> None:
    """As of a bridge that was paused while its pilot greeted it again and again."""
    links.append(pilot := Link((HOME, 0), desk.door.socket.getsockname()))
    for _ in range(3 * module.STRANGERS):
        pilot.send(wire.hello(go2())._replace(flags=PILOT))
    kinds = [message.kind for x in desk.collect() if (message := wire.decode(x.datagram))]
    assert kinds == [wire.HELLO]
    said = messages.Operator(1, -1, 0, False, np.full(3, 0.5), np.zeros(12))
    pilot.send(messages.operator_message(go2(), said, 0.0))
    heard = [x for _ in range(4) for x in desk.collect()]
    assert [wire.decode(x.datagram).kind for x in heard] == [wire.OPERATOR]  # pyright: ignore
