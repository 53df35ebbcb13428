"""A web page that shows a robot, and can stop it: python -m rl.bridge.page.paged ARTEFACT

It comes to a bridge's desk as a watcher, from a process of its own, so that no browser can hold up
a robot.  It is for this machine alone, and all that a browser can say to it is "stop".
"""

import asyncio
import contextlib
import errno
import json
import logging
import os
import resource
import signal
import socket
import sys
import time
from dataclasses import dataclass
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Origin

from rl import artefact
from rl.bridge import states, wire
from rl.bridge.page.board import PORT, Board, facts
from rl.bridge.page.watcher import Watcher
from rl.bridge.wire import Link
from rl.guard import guard

TRIED = 10  # ports, from the first on
LOOK_S, IDLE_S = 0.04, 0.2  # s between two looks, and if nothing came
PICTURE_S = 0.25  # s between two pictures
DRAWN_S = 30.0  # s for a picture, of which the first takes seconds
GONE_S = 120.0  # s of silence after which a bridge is given up: its policy compiles
LAST_S = 0.3  # s for browsers to hear that it is over
MOST_PAGES, MOST_FILES = 16, 128  # open at once; and with all who only knock
SENDS = 1 << 16  # bytes on their way to a browser: what is older than that is left out
NO_GL = (
    "No picture: neither EGL nor OSMesa can draw here (Debian, Ubuntu: apt-get install libegl1 "
    "libgl1, or libosmesa6)."
)


class Page:
    """One robot's."""

    def __init__(self, path: Path, board: Board, watcher: Watcher, port: int) -> None:
        self.path, self.board, self.watcher = path, board, watcher
        self.hosts = [f"{host}:{port}" for host in ("127.0.0.1", "localhost")]
        self.html = resources.files("rl.bridge.page").joinpath("page.html").read_bytes()
        self.browsers: set[ServerConnection] = set()
        self.shown: dict[str, Any] = {}  # the newest look
        self.picture, self.note = b"", "Drawing..."
        self.turn = asyncio.Event()  # set when there is something newer

    def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """To a request of HTTP: the page, a refusal; None to a socket, which is let in."""
        if request.headers.get_all("Host") not in ([host] for host in self.hosts):
            at = f"This page is at http://{self.hosts[0]} alone.\n"
            return connection.respond(HTTPStatus.FORBIDDEN, at)
        if request.path == "/live":
            return None
        if request.path != "/":
            return connection.respond(HTTPStatus.NOT_FOUND, "There is one page here, at /.\n")
        sources = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; " \
                  "img-src blob: data:; connect-src 'self'; frame-ancestors 'none'"  # fmt: skip
        headers = Headers({
            "Content-Type": "text/html; charset=utf-8", "Content-Length": f"{len(self.html)}",
            "Content-Security-Policy": sources, "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff", "Connection": "close",
        })  # fmt: skip
        return Response(200, "OK", headers, self.html)

    async def browse(self, connection: ServerConnection) -> None:
        """A browser's socket, until it is closed."""
        if len(self.browsers) >= MOST_PAGES:
            return await connection.close(1013, f"{MOST_PAGES} of these pages are open already.")
        self.browsers.add(connection)
        telling = asyncio.create_task(self.tell(connection))
        try:
            async for word in connection:
                if word != states.STOP:
                    return await connection.close(1008, "A page can say stop, and nothing else.")
                self.watcher.stop()
        except ConnectionClosed:
            pass
        finally:
            self.browsers.discard(connection)
            telling.cancel()
        return None

    async def tell(self, connection: ServerConnection) -> None:
        """Send what is newest, as fast as it is taken; what became old meanwhile is left out."""
        changes, picture = 0, b""
        with contextlib.suppress(ConnectionClosed):
            await connection.send(json.dumps({"facts": facts(self.board.spec)}))
            while True:
                turn, news = self.turn, [x for x in self.board.changes if x.number > changes]
                changes = news[-1].number if news else changes
                shown = self.shown | {"changes": [x._asdict() for x in news], "note": self.note}
                await connection.send(json.dumps(shown, allow_nan=False))
                if self.picture is not picture:
                    picture = self.picture
                    await connection.send(picture)
                await turn.wait()

    async def look(self) -> None:
        """Until the bridge says goodbye; ValueError if it falls silent."""
        heard, shown_at = None, 0.0
        while self.board.gone is None:
            self.watcher.mind()
            now = time.monotonic()
            if now - self.watcher.heard > GONE_S:
                raise ValueError(f"The bridge said nothing for {GONE_S:g} s.")
            if self.board.status is not heard or now - shown_at > IDLE_S:
                heard, shown_at = self.board.status, now
                self.publish()
            await asyncio.sleep(LOOK_S)

    def publish(self) -> None:
        self.shown = self.board.look(time.time())
        turn, self.turn = self.turn, asyncio.Event()
        turn.set()

    async def draw(self) -> None:
        """Pictures, while somebody looks, by whatever can draw here."""
        chosen = os.environ.get("MUJOCO_GL")
        for backend in [chosen] if chosen else ["egl", "osmesa"]:
            painter = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "rl.bridge.page.painter", str(self.path),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=os.environ | {"MUJOCO_GL": backend, "LP_NUM_THREADS": "1"},
            )  # fmt: skip
            try:
                await self.drawn_by(painter)
            except (OSError, asyncio.IncompleteReadError):  # of which a timeout is one
                pass
            finally:
                with contextlib.suppress(ProcessLookupError):
                    painter.kill()
        self.picture, self.note = b"", NO_GL

    async def drawn_by(self, painter: asyncio.subprocess.Process) -> None:
        assert painter.stdin
        assert painter.stdout
        drawn = None
        while True:
            await asyncio.sleep(PICTURE_S)
            status = self.board.status
            if status is None or status is drawn or not self.browsers:
                continue
            drawn, sensors = status, self.board.spec.sensors
            row = np.concatenate([status.readings[s.name] for s in sensors])
            async with asyncio.timeout(DRAWN_S):
                painter.stdin.write(np.nan_to_num(row).astype("<f4").tobytes())
                size = int.from_bytes(await painter.stdout.readexactly(4), "little")
                self.picture, self.note = await painter.stdout.readexactly(size), ""


async def live(page: Page, listening: socket.socket) -> None:
    """Serve until the bridge says goodbye, or this process is to end."""
    logging.getLogger("websockets").setLevel(logging.CRITICAL)  # whoever knocks
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))
    looking, drawing = asyncio.create_task(page.look()), asyncio.create_task(page.draw())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, looking.cancel)
    async with serve(
        page.browse, sock=listening, process_request=page.answer, compression=None,
        origins=[Origin(f"http://{host}") for host in page.hosts], server_header=None, max_size=16,
        max_queue=4, open_timeout=5, ping_interval=5, ping_timeout=5, close_timeout=1,
    ):  # fmt: skip
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await looking
            page.watcher.mind()
            page.publish()
            await asyncio.sleep(LAST_S)
        finally:
            drawing.cancel()


def listen(port: int) -> socket.socket:
    """A socket at `port` of this machine, or the next that is free; ValueError if none is."""
    for at in range(port, min(port + TRIED, 65536)):
        try:
            listening = socket.create_server(("127.0.0.1", at))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ValueError(f"No page can be at port {at}: {error.strerror}.") from None
            continue
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDS)
        return listening
    raise ValueError(f"--page: ports from {port} to {at} are taken; name another.")


@dataclass(frozen=True)
class Args:
    """Show a robot in a browser."""

    artefact: tyro.conf.Positional[Path]
    desk: str = "127.0.0.1:9871"  # of the bridge
    port: int = PORT


def main(args: Args) -> None:
    os.nice(5)  # after whatever serves the robot
    spec = artefact.read(args.artefact).spec
    listening = listen(args.port)
    board, port = Board(spec), listening.getsockname()[1]
    watcher = Watcher(board, Link(("0.0.0.0", 0), wire.address(args.desk)))
    taken = f" ({args.port} is taken)" if port != args.port else ""
    print(f"page     http://127.0.0.1:{port}{taken}", flush=True)
    asyncio.run(live(Page(args.artefact, board, watcher, port), listening))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # its bridge says when it is over
    guard(lambda: main(tyro.cli(Args, prog="python -m rl.bridge.page.paged")))
