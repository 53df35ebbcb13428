"""A policy server: each client is answered as its own policy would, whatever others send."""

import contextlib
import socket
import time
from collections.abc import Iterator
from functools import cache
from threading import Event
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rl import artefact
from rl.artefact import Artefact
from rl.bridge.serve import server as program
from tests.serving import DEADLINE_S, PATH, Client, Served, altered, golden, served, until

WORD = "a-token-of-31-characters-or-so."


@cache
def found() -> Artefact:
    return artefact.read(PATH)


@pytest.fixture
def made() -> Iterator[Served]:
    with served(found()) as made:
        yield made


def targets(runtime: Any, ticks: list[int]) -> list[np.ndarray]:
    """What the policy wants of these observations, one after another."""
    policy, told = artefact.deploy(found(), runtime), found().golden
    return [
        policy.step({name: x[t] for name, x in told.readings.items()}, told.command[t])
        for t in ticks
    ]


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_answers_are_the_policys_to_the_last_bit(runtime: Any) -> None:
    """To two clients at once, each of whom it remembers."""
    forth, back = [*range(16)], [*reversed(range(16))]
    with (
        served(found(), artefact.deploy(found(), runtime)) as made,
        Client(made.at) as one,
        Client(made.at) as two,
    ):
        wanted = zip(targets(runtime, forth), targets(runtime, back), forth, back, strict=True)
        for *want, t, s in wanted:
            got = [one.ask(golden(found(), t)), two.ask(golden(found(), s))]
            for x, y in zip(got, want, strict=True):
                assert x["actions"].shape == (1, 12)
                np.testing.assert_array_equal(x["actions"][0], y)
        assert got[0]["server_timing"].keys() == {"infer_ms", "prev_total_ms"}
        again = one.ask(golden(found(), 0, reset=True))["actions"][0]
        np.testing.assert_array_equal(again, targets(runtime, [0])[0])
        other = two.ask(golden(found(), 0))["actions"][0]
        assert (other != again).any()  # it has not forgotten


def test_what_a_client_is_told_first(made: Served) -> None:
    with Client(made.at) as client:
        told = client.metadata
    assert (told["server"], told["artefact"]) == ("robotrl", found().digest)
    assert told["spec"]["control_dt"] == 0.02
    assert told["spec"]["sensors"][0] == {
        "name": "FR_hip_pos", "size": 1, "unit": "rad", "frame": "FR_hip"
    }  # fmt: skip
    assert [x["name"] for x in told["spec"]["actuators"]] == [
        x.name for x in found().spec.actuators
    ]


def test_numbers_may_be_of_any_kind(made: Served) -> None:
    seen = golden(found(), 0)
    want = targets("numpy", [0])[0]
    for kind in (np.float64, list):
        told = {name: kind(x) if kind is list else x.astype(kind) for name, x in seen.items()}
        told = {name: [float(y) for y in x] if kind is list else x for name, x in told.items()}
        with Client(made.at) as client:
            np.testing.assert_array_equal(client.ask(told)["actions"][0], want)
    with Client(made.at) as client:
        client.ask({name: np.zeros(x.shape, np.int8) for name, x in seen.items()})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"gyro": None}, "gyro is object []; it takes [3] numbers."),
        ({"gyro": np.zeros(4)}, "gyro is float64 [4]; it takes [3] numbers."),
        ({"gyro": ["a", "b", "c"]}, "gyro is <U1 [3]; it takes [3] numbers."),
        ({"gyro": [[1], [2, 3], 4]}, "gyro is object []; it takes [3] numbers."),
        ({"gyro": np.array([0, np.nan, 0])}, "a number that is none"),
        ({"gyro": np.array([0, 1e300, 0])}, "a number that is none, or none of float32."),
        ({"command": np.zeros(2)}, "command is float64 [2]; it takes [3] numbers."),
        ({"gryo": np.zeros(3)}, "There is no 'gryo' in an observation; there are FR_hip"),
        ({"reset": 1}, "reset is true or false."),
    ],
)
def test_an_observation_that_is_none_is_refused(
    made: Served, change: dict[str, Any], why: str
) -> None:
    with Client(made.at) as client, Client(made.at) as other:
        with pytest.raises(RuntimeError) as told:
            client.ask(golden(found(), 0) | change)
        assert why in str(told.value)
        with pytest.raises(ConnectionClosed, match="1008"):
            client.socket.recv(DEADLINE_S)
        other.ask(golden(found(), 0))


def test_what_is_lacking_is_named(made: Served) -> None:
    for name, size in (("gyro", 3), ("command", 3)):
        told = golden(found(), 0)
        del told[name]
        with Client(made.at) as client, pytest.raises(RuntimeError) as why:
            client.ask(told)
        assert str(why.value) == f"The observation has no '{name}', of {size} numbers."


@pytest.mark.parametrize(
    ("sent", "code", "why"),
    [
        ("reset", 1008, "one of text"),
        (b"", 1008, "cannot be read"),
        (b"\xc1", 1008, "cannot be read"),
        (b"\x91" * 2000, 1008, "cannot be read"),
        ([b""] * 3000, 1008, "in more than 1000 parts"),
        (bytes(1 << 17), 1009, ""),
    ],
)
def test_a_frame_that_is_none_ends_its_connection_alone(
    made: Served, sent: Any, code: int, why: str
) -> None:
    with Client(made.at) as client, Client(made.at) as other:
        with contextlib.suppress(ConnectionClosed):
            client.socket.send(sent)
        told = ""
        with contextlib.suppress(ConnectionClosed):
            while True:
                told += str(client.socket.recv(DEADLINE_S))
        assert client.socket.close_code == code
        assert why in told
        other.ask(golden(found(), 0))


def test_a_policy_that_fails_ends_a_connection_and_not_the_server() -> None:
    broken = altered(artefact.deploy(found(), "numpy"), lambda targets: 1 / 0)
    with served(found(), broken) as made:
        for _ in range(2):
            with Client(made.at) as client:
                with pytest.raises(RuntimeError, match=r"The policy failed: ZeroDivisionError"):
                    client.ask(golden(found(), 0))
                with pytest.raises(ConnectionClosed, match="1011"):
                    client.socket.recv(DEADLINE_S)


def test_whoever_has_no_token_is_not_let_in() -> None:
    with served(found(), word=WORD) as made:
        for said, why in (
            ({}, "Who asks needs a token."),
            ({"Authorization": f"Api-Key {WORD}x"}, "Who asks has another token."),
            ({"Authorization": f"Bearer {WORD}"}, "Who asks has another token."),
            ({"Authorization": f"Api-Key {WORD[:-1]}\xff"}, "Who asks has another token."),
            ([("Authorization", f"Api-Key {WORD}")] * 2, "Who asks has another token."),
        ):
            with pytest.raises(InvalidStatus, match="401") as refused:
                Client(made.at, additional_headers=said)
            assert refused.value.response.body.decode() == f"{why}\n"
        with Client(made.at, additional_headers={"Authorization": f"Api-Key {WORD}"}) as client:
            client.ask(golden(found(), 0))
        assert b"200 OK" in got(made, "/healthz")  # of who has none


def got(made: Served, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", made.port), DEADLINE_S) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: {made.at}\r\n\r\n".encode())
        return b"".join(iter(lambda: link.recv(1 << 16), b""))


def test_what_is_asked_for_by_http(made: Served) -> None:
    head, _, body = got(made, "/healthz").partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"HTTP/1.1 200 OK", b"OK\n")
    assert got(made, "/other").startswith(b"HTTP/1.1 404")
    assert got(made, "/").startswith(b"HTTP/1.1 426")
    with pytest.raises(InvalidStatus, match="403"):  # a page in a browser of this machine
        connect(made.at, origin="http://evil.example", proxy=None)


def test_so_many_are_served_and_no_more(made: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MOST_SERVED", 3)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Client(made.at)) for _ in range(3)]
        with pytest.raises(ConnectionClosed, match="3 are served already"):
            Client(made.at)
        clients[0].socket.close()
        until(lambda: len(made.server.served) == 2)
        stack.enter_context(Client(made.at)).ask(golden(found(), 0))


def test_pings_are_answered_while_a_policy_thinks() -> None:
    going, policy = Event(), artefact.deploy(found(), "numpy")
    thinks = altered(policy, lambda targets: (going.wait(DEADLINE_S), targets)[1])
    with served(found(), thinks) as made, Client(made.at) as client:
        client.socket.send(program.frames.pack(golden(found(), 0)))
        assert client.socket.ping().wait(DEADLINE_S)
        assert b"200 OK" in got(made, "/healthz")
        with pytest.raises(TimeoutError):
            client.socket.recv(0.05)
        going.set()
        assert client.socket.recv(DEADLINE_S)


def test_who_only_knocks_or_is_slow_or_gone_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program, "GREETS_S", 0.5)
    monkeypatch.setattr(program, "PING_S", 0.5)
    with served(found()) as made, contextlib.ExitStack() as stack:
        links = []
        for i in range(100):
            link = socket.create_connection(("127.0.0.1", made.port), DEADLINE_S)
            links.append(stack.enter_context(link))
            link.sendall((b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01" * 99)[i % 3])
        gone = stack.enter_context(Client(made.at)).socket
        gone.socket.sendall(b"\x82\xfe\xff\xff" + bytes(100))  # half of a frame
        client = stack.enter_context(Client(made.at))
        for t in range(16):
            client.ask(golden(found(), t))
        assert links[0].recv(1 << 16) == b""  # thrown out
        until(lambda: len(made.server.served) == 2)
        gone.protocol.receive_data = lambda data: None  # it hears no ping any more
        until(lambda: len(made.server.served) == 1)
        client.ask(golden(found(), 0))


def test_who_does_not_read_its_answers_stops_nobody(made: Served) -> None:
    with Client(made.at) as greedy, Client(made.at) as client:
        frame = program.frames.pack(golden(found(), 0))
        for _ in range(100):
            greedy.socket.send(frame)
        began = time.monotonic()
        client.ask(golden(found(), 0))
        assert time.monotonic() - began < DEADLINE_S
        assert len([greedy.socket.recv(DEADLINE_S) for _ in range(100)]) == 100
