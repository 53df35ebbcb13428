"""A policy takes its last step again before it is asked for the next, which changes nothing."""

import time
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from rl import artefact
from rl.bridge import messages, wire
from rl.bridge.messages import Ask
from rl.bridge.policyd import PING_S, REHEARSED_S, Policyd
from rl.bridge.wire import Link

PATH = Path(__file__).parent.parent / "benchmarks" / "policies" / "go2-joystick-flat"


@pytest.mark.parametrize("runtime", ["jax", "numpy"])
def test_a_rehearsal_is_forgotten(runtime: Any) -> None:
    found = artefact.read(PATH / "artefact-0.zip")
    policy, golden = artefact.deploy(found, runtime), found.golden
    policy.rehearse()  # of nothing, yet
    for t, want in enumerate(golden.targets):
        readings = {name: x[t] for name, x in golden.readings.items()}
        np.testing.assert_allclose(policy.step(readings, golden.command[t]), want, atol=1e-6)
        for _ in range(t % 3):
            policy.rehearse()


@pytest.mark.parametrize("waits", [False, True])
def test_it_rehearses_once_for_each_question_where_time_goes_on(waits: bool) -> None:
    found = artefact.read(PATH / "artefact-0.zip")
    policy, spec = artefact.deploy(found, "numpy"), found.spec
    desk = Link(("127.0.0.1", 0))
    link, rehearsed = Link(("127.0.0.1", 0), ("127.0.0.1", desk.port)), []
    bridge = desk.beside(("127.0.0.1", link.port))
    policy.rehearse = lambda: rehearsed.append(len(rehearsed))
    daemon = Policyd(policy, link, lambda: None, 0, 0.0)
    living = Thread(target=daemon.live)
    living.start()
    readings = {name: x[0] for name, x in found.golden.readings.items()}
    plans = 0
    for period in range(3):
        ask = Ask(period, 0.0, readings, found.golden.command[0], False, waits)
        bridge.send(messages.ask_message(spec, ask))
        while (got := bridge.receive(spec.control_dt + PING_S)) and got[0].kind != wire.PLAN:
            pass  # greetings
        plans += got is not None
        until = time.monotonic() + spec.control_dt + REHEARSED_S
        while (left := until - time.monotonic()) > 0:  # nothing comes but greetings
            got = bridge.receive(left)
            assert got is None or got[0].kind == wire.HELLO
    bridge.send(wire.Message(wire.BYE, 0, spec.hash, 0, 0.0, np.zeros(0, "<f4")))
    living.join(10)
    assert not living.is_alive()
    for one in (bridge, link, desk):
        one.close()
    assert plans == 3
    assert len(rehearsed) == (0 if waits else 3)
