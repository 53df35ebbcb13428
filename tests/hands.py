"""What is pressed and pushed, as tests have it: a clock that they set, and the ends of devices."""

import fcntl
import os
import pty
import select
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rl.bridge import acting, gamepad, hand, keys, spacemouse, states
from rl.bridge.gamepad import EVENT
from rl.bridge.keys import Keys
from rl.bridge.messages import Own, Status
from rl.bridge.pilot import Word
from rl.spec import Channel, Spec
from tests.rig import body, go2, of


def spec(*names: str) -> Spec:
    """Of an arm whose policy learns, and has actions of these names."""
    action = tuple(Channel(name, "1", -1.0, 1.0) for name in names)
    return replace(go2(), max_tilt=180.0, command=(), action=action)


HAND = spec("x", "y", "z", "yaw", "grip")
JOINTS = spec("hip", "knee", "ankle")


def now(state: str, own: Any = None, begun: int = 1) -> Status:
    told = None if own is None else Own(np.array(own, float), 0.0, 0)
    return Status(7, 0.14, state, 0, 0, 0, body(), of("rest"), begun=begun, own=told)


class Clock:
    """The time that all hands know, s."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        for module in (acting, gamepad, hand, keys, spacemouse):
            patch.setattr(module, "time", SimpleNamespace(monotonic=lambda: self.now))


class Driven:
    """A robot that is armed, and does what a human's words ask for."""

    def __init__(self, human: Any, clock: Clock, state: str = states.ARMED) -> None:
        self.human, self.clock, self.state = human, clock, state
        self.own = np.zeros(len(human.spec.action))  # what its policy does
        self.events: list[str] = []

    def live(self, seconds: float = 0.05) -> Word:
        """So many s of words, one in 0.05 s; the last."""
        for _ in range(max(round(seconds / 0.05), 1)):
            self.clock.now += 0.05
            word = self.human.word(now(self.state, self.own))
            assert word.action is not None
            assert np.isfinite(word.action).all()
            assert np.abs(word.action).max() <= 1
            if word.event:
                self.events.append(word.event)
                self.state = states.after(self.state, word.event)
        return word

    def does(self, *action: float) -> None:
        np.testing.assert_allclose(self.live().action, action, atol=1e-6)


@contextmanager
def terminal(spec: Spec, beside: Any = None) -> Iterator[tuple[Keys, Any]]:
    """A keyboard, and how to press on it."""
    end, other = pty.openpty()
    with os.fdopen(other, "rb", buffering=0) as stream, Keys(spec, stream, beside) as made:

        def press(text: str) -> None:
            os.write(end, text.encode())
            select.select([stream], [], [], 5)  # a terminal has it a little later

        yield made, press
    os.close(end)


class Pad:
    """A gamepad's other end."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path, self.end = path, os.open(path, os.O_RDWR)

    def push(self, kind: int, number: int, value: int = 1) -> None:
        os.write(self.end, EVENT.pack(9, value, kind, number))

    def out(self) -> None:
        os.close(self.end)

    def back(self) -> None:
        self.end = os.open(self.path, os.O_RDWR)


class Mouse:
    """A SpaceMouse's other end: a pipe that hands on report by report, as hidraw does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.back()

    def back(self) -> None:
        self.read, self.end = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        fcntl.fcntl(self.end, fcntl.F_SETPIPE_SZ, 1 << 20)  # a page for each report
        self.path.symlink_to(f"/proc/self/fd/{self.read}")

    def out(self) -> None:
        self.path.unlink()
        os.close(self.end)
        os.close(self.read)

    def say(self, kind: int, *numbers: int) -> None:
        os.write(self.end, bytes([kind]) + np.array(numbers, "<i2").tobytes())

    def press(self, buttons: int) -> None:
        os.write(self.end, bytes([3, buttons, 0]))
