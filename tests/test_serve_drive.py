"""A server in its process, and a robot driven by its policy that loses it on the way."""

import os
import re
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import InvalidStatus

from benchmarks import flights
from rl.bridge import states, wire
from rl.bridge.log import flight as log
from rl.bridge.messages import Status
from rl.bridge.pilot import Word
from rl.bridge.serve import token
from tests.serving import PATH, Client, golden
from tests.test_bridge import ROOT, bridge, ended
from tests.test_serve import found

PERIODS = 10  # that a robot may go on without a target
AGES = {"state-age": 9, "operator-age": 9, "late": 9, "hold-s": 9, "plan-age": PERIODS}
PATIENT = [f"--limits.{name}={age}" for name, age in AGES.items()]
GOES = {states.PASSIVE: states.STAND, states.HOLD: states.STAND, states.READY: states.ARM}


def serving(*words: object) -> tuple[subprocess.Popen[str], str]:
    """A server, and where it says that it is."""
    made = bridge("serve", PATH, "--runtime", "numpy", *words)
    line = made.stdout.readline()
    assert line.startswith("serving  go2-joystick-flat with numpy at ws"), ended(made)
    return made, line.split()[-1]


def test_a_server_says_where_it_is_makes_a_token_and_ends_when_it_is_told(tmp_path: Path) -> None:
    file = tmp_path / "token"
    made, at = serving("--listen=127.0.0.1:0", f"--token={file}")
    assert made.stdout.readline().startswith(f"token    {file}, made now; ")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    word = token.read(file)
    assert len(word) == 43
    known = {"additional_headers": token.header(word)}
    for more, code in (({}, "401"), (known | {"origin": "http://evil.example"}, "403")):
        with pytest.raises(InvalidStatus, match=code):
            Client(at, **more)
    with Client(at, **known) as client:
        np.testing.assert_allclose(
            client.ask(golden(found(), 0))["actions"][0], found().golden.targets[0], atol=1e-5
        )
        made.terminate()
        code, said = ended(made)
    assert code == 143
    told = [line.split()[0] for line in said.splitlines()]
    assert told == ["refused", "refused", "came", "left", "ended"]
    assert "  403: " in said
    assert re.match(r"refused  127\.0\.0\.1:\d+  401: Who asks needs a token\.\n", said)
    again, _ = serving("--listen=127.0.0.1:0", f"--token={file}")
    assert again.stdout.readline().startswith(f"token    {file}, as it was; ")
    again.kill()
    ended(again)
    assert token.read(file) == word


@pytest.mark.parametrize(("words", "why"), [
    (["--listen=0.0.0.0:8000"], "--listen 0.0.0.0:8000 is heard on a network: it takes a --token"),
    (["--token=open"], "--token open can be read by others: chmod 600 open"),
    (["--token=short"], "--token short has no token: that is a line of 16 to 200 characters"),
    (["--token=nowhere/a"], "nowhere/a: No such file or directory."),
    (["--cert=short"], "--cert and --key: TLS takes both"),
    (["--cert=short", "--key=short"], "--cert short and --key short are no certificate"),
    (["--listen=127.0.0.1:1"], ""),
])  # fmt: skip
def test_what_cannot_be_served_is_refused(words: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "open").write_text("a" * 40)
    (tmp_path / "short").write_text("a" * 15 + "\n")
    (tmp_path / "open").chmod(0o640)
    (tmp_path / "short").chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if not why:
            at = f"127.0.0.1:{taken.getsockname()[1]}"
            words, why = [f"--listen={at}"], f"Cannot listen on {at}: Address already in use. Name"
        ran = subprocess.run(
            [sys.executable, "-m", "rl.bridge", "serve", PATH, *words], cwd=tmp_path, text=True,
            capture_output=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith(f"error: {why}")


def test_a_robot_whose_server_is_not_there_says_so_and_ends() -> None:
    words = "--robot=sim", "--command", 0, 0, 0, "--policy=ws://127.0.0.1:1"
    code, said = ended(bridge("run", PATH, *words))
    assert code == 1
    assert "error: No server answers at ws://127.0.0.1:1: Connection refused. Start one" in said


class Drives:
    """A pilot that stands a robot up and arms it, and at each step waits until something is so."""

    def __init__(self, steps: Sequence[tuple[bool, Callable[[Status], bool]]]) -> None:
        """Whether it drives, and until when."""
        self.steps = [*steps]
        self.seen: list[list[str]] = [[]]  # states, in each step

    def word(self, status: Status) -> Word:
        self.seen[-1].append(status.state)
        drives, until = self.steps[0]
        if until(status):
            self.steps.pop(0)
            self.seen.append([])
        if not self.steps:
            return Word(leaves=True)
        event = GOES.get(status.state, "") if drives else ""
        return Word(event, np.array([0.3, 0.0, 0.0]))


class For:
    """So many s in a state, one after another."""

    def __init__(self, state: str, seconds: float) -> None:
        self.state, self.seconds, self.since = state, seconds, np.inf

    def __call__(self, status: Status) -> bool:
        now = time.monotonic()
        self.since = min(self.since, now) if status.state == self.state else np.inf
        return now - self.since >= self.seconds


def test_a_robot_whose_server_is_killed_is_held_and_goes_on_by_its_pilots_word(
    tmp_path: Path,
) -> None:
    file = tmp_path / "token"
    servers = [serving("--listen=127.0.0.1:0", f"--token={file}")]
    at = servers[0][1]

    def kill(_: Status) -> bool:
        servers[0][0].kill()
        return True

    def begin(_: Status) -> bool:
        words = "serve", PATH, "--runtime=numpy", f"--listen={at[5:]}", f"--token={file}"
        servers.append((bridge(*words), at))
        return True

    sim = "--pace=real", "--rate=100", "--no-episodes"
    policy = f"--policy={at}", f"--token={file}"
    try:
        with flights.flight(
            PATH, tmp_path, sim, [*PATIENT, "--limits.stand-s=0.3"], policy
        ) as made:
            drives = Drives([
                (True, For(states.ARMED, 0.5)), (False, kill), (False, For(states.HOLD, 0.2)),
                (False, begin), (False, lambda _: "answers again" in made.said("policyd")),
                (False, For(states.HOLD, 0.3)), (True, For(states.ARMED, 0.5)),
            ])  # fmt: skip
            pilot = made.pilot()
            pilot.meet(flights.ENDS_S)
            assert pilot.live(drives) == "left"
            pilot.bye()
            pilot.link.close()
            made.ends("robotd", "policyd")
    finally:
        for process, _ in servers:
            process.kill()
            ended(process)
    assert not drives.steps, made.said("policyd")
    assert set(drives.seen[2]) == {states.ARMED, states.HOLD}  # once, and not back
    assert {state for seen in drives.seen[3:6] for state in seen} == {states.HOLD}
    judge(log.read(tmp_path / "flight.mcap").rows)


def judge(rows: list[Any]) -> None:
    """Of a flight at two ticks a period: it was held when its last plan was so old, and has others
    once it was armed again."""
    plans = [any(kind(x) == wire.PLAN for x in row.heard if x.source == "policy") for row in rows]
    armed = [row.state == states.ARMED for row in rows]
    held = max(i for i in range(1, len(rows)) if armed[i - 1] and rows[i].state == states.HOLD)
    last = max(i for i in range(held) if plans[i])
    assert abs(held - last - 2 * PERIODS) <= 2
    assert sum(map(all, zip(plans[held:], armed[held:], strict=True))) > 10


def kind(heard: Any) -> int | None:
    message = wire.decode(heard.datagram)
    return message and message.kind
