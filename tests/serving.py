"""A policy server in this process, and a client of openpi's format that shares no line with it."""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import msgpack
import numpy as np
from websockets.sync.client import ClientConnection, connect

from rl import artefact
from rl.artefact import Artefact, Deployed
from rl.bridge.serve.facts import facts
from rl.bridge.serve.server import Server

PATH = Path(__file__).parent.parent / "benchmarks" / "policies" / "go2-joystick-flat"
PATH /= "artefact-0.zip"
DEADLINE_S = 30.0


class Served:
    """At an address of this machine, until it is closed."""

    def __init__(self, server: Server, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.server, self.listening = server, socket.create_server(("127.0.0.1", port))
        self.port = self.listening.getsockname()[1]
        self.at = f"{'wss' if tls else 'ws'}://127.0.0.1:{self.port}"
        self.begun = Event()
        self.thread = Thread(target=lambda: asyncio.run(self.live(tls)))
        self.thread.start()
        self.begun.wait()

    async def live(self, tls: ssl.SSLContext | None) -> None:
        self.loop, self.task = asyncio.get_running_loop(), asyncio.current_task()
        self.begun.set()
        with suppress(asyncio.CancelledError):
            await self.server.live(self.listening, tls)

    def close(self) -> None:
        if self.thread.is_alive():
            self.loop.call_soon_threadsafe(self.task.cancel)
            self.thread.join()


@contextmanager
def served(found: Artefact, policy: Any = None, **more: Any) -> Iterator[Served]:
    """With a policy of one's own, a token (`word`), other metadata (`told`)."""
    policy = policy or artefact.deploy(found, "numpy")
    told = more.pop("told", facts(found, "numpy"))
    made = Served(Server(policy, told, more.pop("word", "")), **more)
    try:
        yield made
    finally:
        made.close()


def altered(policy: Deployed, then: Callable[[np.ndarray], Any]) -> Deployed:
    """A policy of whose targets something becomes."""
    call = policy.call

    def other(*words: Any) -> Any:
        targets, *carry = call(*words)
        return [then(targets), *carry]

    policy.call = other
    return policy


def encoded(x: Any) -> dict[bytes, Any]:
    if isinstance(x, np.generic):
        return {b"__npgeneric__": True, b"data": x.item(), b"dtype": x.dtype.str}
    return {b"__ndarray__": True, b"data": x.tobytes(), b"dtype": x.dtype.str, b"shape": x.shape}


def decoded(x: dict[Any, Any]) -> Any:
    if b"__ndarray__" in x:
        return np.ndarray(x[b"shape"], np.dtype(x[b"dtype"]), x[b"data"])
    return x


def packed(message: Any) -> bytes:
    made: Any = msgpack.packb(message, default=encoded)
    return made


class Client:
    """That asks as openpi's does."""

    def __init__(self, at: str, **more: Any) -> None:
        self.connection = connect(at, compression=None, proxy=None, **more)
        self.socket: ClientConnection = self.connection.__enter__()
        self.metadata = msgpack.unpackb(self.socket.recv(DEADLINE_S), object_hook=decoded)

    def ask(self, observation: Any) -> Any:
        """The answer; RuntimeError of a text."""
        self.socket.send(packed(observation))
        answer = self.socket.recv(DEADLINE_S)
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return msgpack.unpackb(answer, object_hook=decoded)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.__exit__(None, None, None)


def golden(found: Artefact, t: int, **more: Any) -> dict[str, Any]:
    """The observation of a tick."""
    readings = {name: x[t] for name, x in found.golden.readings.items()}
    return readings | {"command": found.golden.command[t]} | more


def until(what: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)
