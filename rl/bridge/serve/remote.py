"""A policy that a server runs, as a robot's own: what it does not answer in time, it does not.

The server remembers what was for as long as a connection lasts.  Where that was lost, nothing is
answered until all is to be forgotten, so that no robot goes on with a policy that began anew.
"""

import asyncio
import contextlib
import itertools
import os
import ssl
import sys
from concurrent.futures import Future
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from rl.artefact import TOLERANCE, Artefact, Deployed, Leaves
from rl.bridge.clock import urgent
from rl.bridge.serve import frames, token
from rl.bridge.serve.elsewhere import Elsewhere
from rl.bridge.serve.facts import check

WAITS = 25  # periods for an answer: a robot is held long before
MEETS_S = 10.0  # s for a server to be reached, and to prove itself
AGAIN_S = 0.5  # s until it is tried again
PING_S, CLOSES_S = 5.0, 1.0  # s between pings and to answer one; to say goodbye
OTHER = {"ws": "wss", "wss": "ws"}


class Link(NamedTuple):
    number: int
    connection: ClientConnection


class Remote(Deployed):
    """Its carry is the number of the connection on which it is remembered."""

    def __init__(self, found: Artefact, where: Elsewhere) -> None:
        """ValueError unless a server of this artefact answers, as its golden vectors have it."""
        super().__init__(found.spec, self._ask, (), ())
        self.found, self.at = found, where.policy
        self.header = token.header(token.read(where.token) if where.token else "")
        cafile = where.cert and str(where.cert)
        tls = ssl.create_default_context(cafile=cafile) if self.at.startswith("wss:") else None
        self.tls, self.patience = tls, WAITS * found.spec.control_dt
        self.link: Link | None = None
        self.why = ""  # its last answer was none
        met: Future[None] = Future()
        self.thread = Thread(target=self._run, args=(met,), daemon=True)
        self.thread.start()
        met.result()

    def rehearse(self) -> None:
        """Nothing: the server would remember it."""

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join()

    def _run(self, met: Future[None]) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._live(met))

    def _ask(self, _: Leaves, carry: Leaves, readings: Leaves, command: np.ndarray) -> Leaves:
        """TimeoutError where it does not answer, or has forgotten what was."""
        link = self.link
        if link is None or (carry and carry[0] != link.number):
            raise TimeoutError(f"{self.at} does not answer")
        observation = self._observation(readings, command, reset=not carry)
        asked = asyncio.run_coroutine_threadsafe(
            self._exchange(link.connection, observation), self.loop
        )
        try:
            return [asked.result(), np.asarray(link.number)]
        except (ConnectionClosed, ValueError) as error:
            raise TimeoutError(str(error)) from error

    def _observation(self, readings: Leaves, command: np.ndarray, reset: bool) -> bytes:
        names = [sensor.name for sensor in self._sensors]
        said: dict[str, Any] = dict(zip(names, readings, strict=True))
        return frames.pack(said | {"command": command, "reset": reset})

    async def _exchange(self, connection: ClientConnection, frame: bytes) -> np.ndarray:
        """The targets [A] of an observation.  Where there are none the connection is ended: what
        comes later would be taken for the answer to another."""
        try:
            async with asyncio.timeout(self.patience):
                await connection.send(frame)
                return self._targets(await connection.recv())
        except (TimeoutError, ConnectionClosed, ValueError) as error:
            self.why = str(error) or f"no answer came within {self.patience:g} s"
            connection.transport.abort()
            raise

    def _targets(self, answer: bytes | str) -> np.ndarray:
        if isinstance(answer, str):
            raise ValueError(f"The server at {self.at} says: {answer}")
        said, count = frames.unpack(answer), self.found.golden.targets.shape[1]
        actions = said.get("actions") if isinstance(said, dict) else None
        if not isinstance(actions, np.ndarray) or actions.shape != (1, count):
            raise ValueError(f"The server at {self.at} gave no [1, {count}] actions.")
        return actions[0]

    async def _live(self, met: Future[None]) -> None:
        """Keep a connection, once one was `met`, and where it is lost make another."""
        self.loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task
        self.task = task
        urgent("policy")
        try:
            connection = await self._meet()
        except Exception as error:
            return met.set_exception(error)
        for number in itertools.count():
            self.link, self.why = Link(number, connection), ""
            if number:
                self._tell("answers again: its robot goes on when it is armed")
            else:
                met.set_result(None)
            try:
                await connection.wait_closed()
            finally:
                self.link = None
                await connection.close()
            connection = await self._again()

    async def _again(self) -> ClientConnection:
        """Another connection, as soon as there can be one."""
        why, told = self.why or "it hung up", ""
        while True:
            if why != told:
                self._tell(f"is lost: {why}")
            told = why
            await asyncio.sleep(AGAIN_S)
            try:
                return await self._meet()
            except Exception as error:  # whatever a server makes of itself meanwhile
                why = str(error)

    async def _meet(self) -> ClientConnection:
        """A connection to a server that is the right one; ValueError where there is none."""
        try:
            async with asyncio.timeout(MEETS_S):
                connection = await connect(
                    self.at, additional_headers=self.header, ssl=self.tls, compression=None,
                    proxy=None, ping_interval=PING_S, ping_timeout=PING_S, close_timeout=CLOSES_S,
                )  # fmt: skip
                try:
                    await self._prove(connection)
                except BaseException:
                    connection.transport.abort()
                    raise
                return connection
        except (OSError, WebSocketException) as error:
            raise ValueError(unmet(error, self.at)) from error

    async def _prove(self, connection: ClientConnection) -> None:
        """Raise ValueError unless it runs our artefact as that was trained."""
        check(self.found, frames.unpack(await connection.recv()), self.at)
        golden = self.found.golden
        for t, want in enumerate(golden.targets):
            readings = [golden.readings[sensor.name][t] for sensor in self._sensors]
            asked = self._observation(readings, golden.command[t], reset=t == 0)
            got = await self._exchange(connection, asked)
            if not (off := float(np.abs(got - want).max())) <= TOLERANCE:
                raise ValueError(
                    f"The server at {self.at} is {off:.2g} off its golden targets at tick {t}, and "
                    f"may be {TOLERANCE:g} off: it does not run the policy as it was trained."
                )

    def _tell(self, what: str) -> None:
        print(f"policy   {self.at} {what}", file=sys.stderr, flush=True)


def unmet(error: Exception, at: str) -> str:
    """Why there is no server, and what helps."""
    match error:
        case InvalidStatus():
            said = bytes(error.response.body or b"")[:200].decode("ascii", "replace").strip()
            return f"The server at {at} refuses ({error.response.status_code}): {said}"
        case ssl.SSLCertVerificationError():
            why = "--cert takes a copy of its file"
            return f"The certificate of {at} is not believed, {error.verify_message}: {why}."
        case ConnectionClosed():
            return f"The server at {at} hung up: {error}."
        case WebSocketException() | ssl.SSLError() | ConnectionResetError():
            return f"What listens at {at} speaks otherwise: is it {OTHER[at.split(':')[0]]}://?"
        case TimeoutError():
            return f"The server at {at} did not answer in time."
        case _:
            number = getattr(error, "errno", None) or 0  # asyncio's own words are longer
            why = os.strerror(number) if number > 0 else error
            return (
                f"No server answers at {at}: {why}. Start one: python -m rl.bridge serve ARTEFACT"
            )
