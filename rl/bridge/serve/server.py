"""A policy that answers over websocket, in openpi's frames (docs/serve.md).

Nothing that a client sends can end it, and no client holds up another's answers for longer than a
step takes.
"""

import asyncio
import contextlib
import copy
import socket
import ssl
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from rl.artefact import Deployed
from rl.bridge.serve import frames, token
from rl.bridge.wire import by_name
from rl.spec import Spec

MOST_SERVED = 16  # connections at once
GREETS_S, PING_S, CLOSES_S = 5.0, 5.0, 1.0  # s to be let in, between pings and to answer one, to go
MOST_PARTS = 1000  # of a frame
QUEUED = 2  # frames of one that does not wait for its answers
ROOM = 1 << 16  # bytes of a frame beside its numbers
REFUSED, FAILED, FULL = 1008, 1011, 1013  # codes of closing


class Question(NamedTuple):
    readings: dict[str, np.ndarray]
    command: np.ndarray  # [C], or rl/guided.py's
    reset: bool  # forget all that was


def question(spec: Spec, said: Any) -> Question:
    """What an observation asks; ValueError of what is none of this spec's."""
    sizes = {sensor.name: sensor.size for sensor in spec.sensors} | {"command": spec.asked}
    if not isinstance(said, dict):
        raise ValueError("An observation is a map from names of readings to their numbers.")
    if strange := [name for name in said if name not in sizes and name != "reset"]:
        names = ", ".join([*sizes, "reset"])
        raise ValueError(f"There is no {strange[0]!r:.80} in an observation; there are {names}.")
    if not isinstance(reset := said.get("reset", False), bool | np.bool_):
        raise ValueError("reset is true or false.")
    found = [_numbers(said, name, size) for name, size in sizes.items()]
    with np.errstate(over="ignore"):
        flat = np.concatenate(found).astype(np.float32)
    if not np.isfinite(flat).all():
        raise ValueError("An observation has a number that is none, or none of float32.")
    count = flat.size - spec.asked
    return Question(by_name(spec, flat[:count]), flat[count:], bool(reset))


def _numbers(said: Mapping[str, Any], name: str, size: int) -> np.ndarray:
    """[size] of what is said by this name; of no numbers nothing need be said."""
    if name not in said and size:
        raise ValueError(f"The observation has no {name!r}, of {size} numbers.")
    try:
        found = np.asarray(said.get(name, ()))
    except ValueError:  # lists in lists that are no array
        found = np.asarray(None)
    if found.dtype.kind not in "fiub" or found.shape != (size,):
        raise ValueError(f"{name} is {found.dtype} {[*found.shape]}; it takes [{size}] numbers.")
    return found


def infer(policy: Deployed, frame: bytes | str) -> dict[str, Any]:
    """The answer to a frame; ValueError of one that cannot be answered."""
    asked = question(policy.spec, frames.unpack(frame))
    if asked.reset:
        policy.reset()
    began = time.monotonic()
    targets = policy.step(asked.readings, asked.command)
    return {"actions": targets[None], "server_timing": {"infer_ms": _ms(began)}}


def _ms(began: float) -> float:
    return 1e3 * (time.monotonic() - began)


class Server:
    """Of one policy; each connection has a memory of its own."""

    def __init__(self, policy: Deployed, told: dict[str, Any], word: str) -> None:
        """What is told first; and the token, "" if none is asked for."""
        self.policy, self.told, self.word = policy, frames.pack(told), word
        self.served: set[ServerConnection] = set()
        # One: of two steps at once each would take twice as long.
        self.worker = ThreadPoolExecutor(1, "policy")
        self.most = 9 * (sum(s.size for s in policy.spec.sensors) + policy.spec.asked) + ROOM

    async def live(self, listening: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Serve until this is cancelled."""
        async with serve(
            self.converse, sock=listening, ssl=tls, process_request=self.enter, origins=[None],
            process_response=self.told_off, compression=None, server_header=None,
            max_size=self.most, max_queue=QUEUED, open_timeout=GREETS_S, ping_interval=PING_S,
            ping_timeout=PING_S, close_timeout=CLOSES_S,
        ) as server:  # fmt: skip
            await server.serve_forever()

    def enter(self, connection: ServerConnection, request: Request) -> Response | None:
        """To a request of HTTP: that it is well, or a refusal; None to who is let in."""
        if request.path == "/healthz":
            return connection.respond(HTTPStatus.OK, "OK\n")
        if request.path != "/":
            return connection.respond(HTTPStatus.NOT_FOUND, "There is one policy here, at /.\n")
        said = request.headers.get_all("Authorization")
        if self.word and not token.allows(self.word, said):
            why = "has another" if said else "needs a"
            return connection.respond(HTTPStatus.UNAUTHORIZED, f"Who asks {why} token.\n")
        return None

    def told_off(self, connection: ServerConnection, request: Request, response: Response) -> None:
        """Say who is not let in."""
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            why = (response.body or b"").decode(errors="replace").strip() or response.reason_phrase
            who = "{}:{}".format(*connection.remote_address or ("gone", ""))
            tell("refused", who, f"{response.status_code}: {why}")

    async def converse(self, connection: ServerConnection) -> None:
        """A connection, until it is closed."""
        if len(self.served) >= MOST_SERVED:
            return await connection.close(FULL, f"{MOST_SERVED} are served already.")
        self.served.add(connection)
        who, why = "{}:{}".format(*connection.remote_address or ("gone", "")), ""
        try:
            tell("came", who, f"{len(self.served)} of {MOST_SERVED}")
            await self._answer(connection)
        except ConnectionClosed as error:
            why = str(error) if error.sent or error.rcvd else "hung up"
        except ValueError as error:
            why = str(error)
            await self._refuse(connection, why, REFUSED)
        except Exception as error:  # whatever a policy makes of an observation
            why = f"The policy failed: {error!r}."
            await self._refuse(connection, why, FAILED)
        finally:
            self.served.discard(connection)
            tell("left", who, why)
        return None

    async def _answer(self, connection: ServerConnection) -> None:
        policy, timing = copy.copy(self.policy), dict[str, float]()  # a step changes its own alone
        loop = asyncio.get_running_loop()
        await connection.send(self.told)
        while True:
            frame = await self._frame(connection)
            began = time.monotonic()
            answer = await loop.run_in_executor(self.worker, infer, policy, frame)
            answer["server_timing"] |= timing
            await connection.send(frames.pack(answer))
            timing = {"prev_total_ms": _ms(began)}

    async def _frame(self, connection: ServerConnection) -> bytes | str:
        """The next, of few parts: those that are empty have no end that a size would set."""
        parts: list[Any] = []
        async for part in connection.recv_streaming():
            parts.append(part)
            if len(parts) > MOST_PARTS:
                raise ValueError(f"The frame comes in more than {MOST_PARTS} parts.")
        return parts[0][:0].join(parts)

    async def _refuse(self, connection: ServerConnection, why: str, code: int) -> None:
        """In a frame of text, as openpi's server does."""
        with contextlib.suppress(ConnectionClosed):
            await connection.send(why)
            await connection.close(code, "The frame before says why.")


def tell(what: str, who: str, more: str) -> None:
    shown = "".join(x if x.isprintable() else "?" for x in more)  # it may have a client's words
    print(f"{what:8} {who}  {shown}", flush=True)
