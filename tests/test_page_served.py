"""A robot's page in its process: it stops a robot, and nobody who knocks does anything else."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import psutil
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rl.bridge import states
from rl.bridge.desk import Desk
from rl.bridge.messages import Status
from rl.bridge.page import board
from rl.bridge.page.board import Board
from rl.bridge.page.watcher import Watcher
from rl.bridge.wire import Link
from tests.rig import Rig, go2
from tests.test_bridge import ROOT, bridge, child, ended
from tests.test_page import ARM, BLANK, FIXTURE, status

DEADLINE_S = 60.0


class Served:
    """A page in its process, and the desk that it comes to in this one."""

    def __init__(self, port: int) -> None:
        self.desk = Desk(ARM, ("127.0.0.1", 0), (0.0, 0.0))
        words = [FIXTURE, f"--desk=127.0.0.1:{self.desk.door.port}", f"--port={port}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rl.bridge.page.paged", *map(str, words)], cwd=ROOT, text=True,
            stdout=subprocess.PIPE, close_fds=False,
            env=os.environ | {"PYTHONPATH": str(ROOT), "MUJOCO_GL": "none"},
        )  # fmt: skip
        self.said = self.process.stdout.readline()
        self.at = self.said.split()[1].removeprefix("http://")
        self.port = int(self.at.split(":")[1])

    def browser(self, origin: str | None = "", **more: Any) -> Any:
        origin = f"http://{self.at}" if origin == "" else origin
        return connect(f"ws://{self.at}/live", origin=origin, proxy=None, **more)

    def get(self, request: bytes) -> bytes:
        """All that is answered to it."""
        with socket.create_connection(("127.0.0.1", self.port), DEADLINE_S) as link:
            link.sendall(request)
            return b"".join(iter(lambda: link.recv(1 << 16), b""))

    def heard(self) -> list[bytes]:
        return [datagram for source, datagram in self.desk.collect() if source == "watcher"]


@pytest.fixture
def served() -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        made = Served(probe.getsockname()[1])  # which is taken
    yield made
    made.process.kill()
    made.process.wait()
    made.process.stdout.close()
    made.desk.close()


def until(served: Served, browser: Any, what: Any, said: Status) -> dict[str, Any]:
    """Let the bridge say so, until the browser is told something that is `what`."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        served.desk.collect()
        served.desk.tell(said)
        told = json.loads(browser.recv(DEADLINE_S))
        if what(told):
            return told
    raise AssertionError("it was not told")


def test_a_stop_that_is_pressed_is_a_fault(served: Served) -> None:
    rig = Rig(spec=ARM)
    rig.tick(BLANK)
    rig.tick(BLANK, event=states.STAND)
    assert rig.core.state == states.READY
    with served.browser() as browser:
        until(served, browser, lambda x: x.get("state") == states.READY, status(1, states.READY))
        browser.send("stop")
        deadline = time.monotonic() + DEADLINE_S
        while not (heard := served.heard()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for datagram in heard:
            rig.core.hear("watcher", datagram)
        rig.tick(BLANK)
        assert rig.core.state == states.FAULT
        told = until(served, browser, lambda x: x.get("state") == states.FAULT, rig.core.status(2))
        assert told["why"] == "its operator said so"
        time.sleep(0.2)  # of what was said before it knew
        served.heard()
        time.sleep(0.2)
        assert served.heard() == []  # a robot that was cleared is not stopped once more
        served.desk.bye(lost=False)
        while json.loads(browser.recv(DEADLINE_S))["bridge"] != board.GONE:
            pass
    assert served.process.wait(DEADLINE_S) == 0


def test_it_is_at_the_next_port_that_is_free_and_its_pictures_may_fail(served: Served) -> None:
    assert " is taken)" in served.said
    answer = served.get(f"GET / HTTP/1.1\r\nHost: {served.at}\r\n\r\n".encode())
    head, _, html = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"default-src 'none'" in head
    assert html == (ROOT / "rl/bridge/page/page.html").read_bytes()
    assert len(html.splitlines()) <= 300
    with served.browser() as browser:
        told = until(served, browser, lambda x: "OSMesa" in x.get("note", ""), status())
        assert told["state"] == states.ARMED


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1"])
def test_a_page_of_somebody_else_is_refused(served: Served, origin: Any) -> None:
    with pytest.raises(InvalidStatus, match="403"):
        served.browser(origin)
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1", f"{served.at}.evil"):
        for path in ("/", "/live"):
            told = served.get(f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert told.startswith(b"HTTP/1.1 403")
    for more in ("", f"Host: {served.at}\r\nHost: evil.example\r\n"):
        assert served.get(f"GET / HTTP/1.1\r\n{more}\r\n".encode()).startswith(b"HTTP/1.1 403")
    with served.browser(f"http://localhost:{served.port}"):
        pass


def test_whatever_else_is_said_does_nothing(served: Served) -> None:
    for words in ("start", "arm", b"stop", "stop" * 1000, '{"event": "clear"}'):
        with served.browser() as browser:
            browser.send(words)
            with contextlib.suppress(ConnectionClosed):
                while True:
                    browser.recv(DEADLINE_S)
            assert browser.close_code in (1008, 1009)  # not allowed, or too long
    for path in ("/other", "//live", "/page.html", "/../../etc/passwd", "/?x=/live"):
        told = served.get(f"GET {path} HTTP/1.1\r\nHost: {served.at}\r\n\r\n".encode())
        assert told.startswith(b"HTTP/1.1 404")
    told = served.get(f"POST / HTTP/1.1\r\nHost: {served.at}\r\n\r\nstop".encode())
    assert b"200 OK" not in told
    assert served.heard() == []


@pytest.mark.long
def test_who_only_knocks_takes_nothing(served: Served) -> None:
    rng, links = np.random.default_rng(0), []
    with served.browser() as browser:
        until(served, browser, lambda x: "state" in x, status())
        process = psutil.Process(served.process.pid)
        before = process.memory_info().rss
        for _ in range(300):
            link = socket.create_connection(("127.0.0.1", served.port), DEADLINE_S)
            link.setblocking(False)
            links.append(link)
            noise = rng.bytes(20_000), b"GET / HTTP/1.1\r\nX: " + 1_000_000 * b"x", b"GET"
            with contextlib.suppress(OSError):
                link.send(noise[len(links) % 3])
        until(served, browser, lambda x: x.get("time") == 9 * 0.05, status(9))
        browser.send("stop")  # who is in, is heard
        deadline = time.monotonic() + DEADLINE_S
        while not served.heard():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert process.memory_info().rss - before < 100 << 20
        for link in links:
            link.close()
    with served.browser(open_timeout=DEADLINE_S):
        pass


def test_who_watches_hears_that_its_bridge_is_another_robots() -> None:
    desk = Desk(go2(), ("127.0.0.1", 0), (0.0, 0.0))
    watcher = Watcher(Board(ARM), Link(("127.0.0.1", 0), ("127.0.0.1", desk.door.port)))
    watcher.mind()
    desk.collect()
    with pytest.raises(ValueError, match="The bridge is named go2, and not so101-reach"):
        watcher.mind()
    desk.close()
    watcher.link.close()


@pytest.mark.long
def test_a_robot_goes_on_without_its_page() -> None:
    ages = {"state-age": 9, "operator-age": 9, "late": 9, "plan-age": 900}
    patient = [f"--limits.{name}={age}" for name, age in ages.items()]
    run = bridge("run", FIXTURE, "--robot", "sim", "--seconds", 2, "--runtime", "numpy",
                 "--command", 0.2, 0, 0.05, *patient, "--page")  # fmt: skip
    said = iter(run.stdout.readline, "")
    assert any("running" in line for line in said), run.stderr.read()
    child(run, "page.paged").send_signal(signal.SIGKILL)
    code, said = ended(run)
    assert code == 0, said
    assert said.count("page     has ended; the robot goes on") == 1
    assert int(said.split("stopped")[1].split()[0]) >= 2 * 20 - 1  # to the end
