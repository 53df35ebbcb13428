"""A robot driven from a keyboard, in a terminal."""

import os
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any

import numpy as np

from rl.bridge import states
from rl.bridge.checks import said
from rl.bridge.messages import Status
from rl.bridge.pilot import AGAIN_S, Word
from rl.spec import Spec

STEPS = 8  # presses of a key from nothing to the most
EVENTS = {
    " ": states.STOP, "h": states.WAIT, "r": states.RELAX, "c": states.CLEAR, "u": states.STAND,
}  # fmt: skip
MORE, LESS = "wqa", "sed"  # of the first three numbers of a command: forward, left, turn left
HELP = """keys     g: stand up and go  h: hold  r: relax  SPACE: STOP  c: clear a stop  z: leave
         w s  q e  a d: more and less of {}   x: none"""


class Keys:
    """What is pressed, as words; use it in a `with`, which leaves the terminal as it was."""

    def __init__(self, spec: Spec, stream: Any = None) -> None:
        self.spec, self.stream = spec, stream or sys.stdin
        self.low, self.high = (np.array([getattr(c, k) for c in spec.command])
                               for k in ("low", "high"))  # fmt: skip
        self.command = np.clip(np.zeros(len(spec.command)), self.low, self.high)
        self.goes, self.tried, self.shown = False, -np.inf, ""

    def __enter__(self) -> "Keys":
        self.before = termios.tcgetattr(self.stream)
        tty.setcbreak(self.stream)
        names = ", ".join(channel.name for channel in self.spec.command[: len(MORE)])
        print(HELP.format(names or "nothing"), flush=True)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self.stream, termios.TCSADRAIN, self.before)
        print()

    def word(self, status: Status) -> Word:
        event, leaves = "", False
        for key in self.pressed():
            leaves |= key == "z"
            self.goes = key == "g" or (self.goes and key not in EVENTS)
            event = states.STOP if event == states.STOP else EVENTS.get(key, event)
            self.change(key)
        self.show(status)
        return Word(event or self.going(status), self.command.copy(), leaves=leaves)

    def pressed(self) -> str:
        """Keys since the last look."""
        if not select.select([self.stream], [], [], 0)[0]:
            return ""
        return os.read(self.stream.fileno(), 64).decode(errors="ignore")

    def change(self, key: str) -> None:
        """The command, by a key."""
        step = (self.high - self.low) / 2 / STEPS
        if key == "x":
            self.command = np.clip(np.zeros_like(self.command), self.low, self.high)
        for keys, sign in ((MORE, 1), (LESS, -1)):
            if (at := keys.find(key)) >= 0 and at < len(self.command):
                self.command[at] += sign * step[at]
        self.command = np.clip(np.where(abs(self.command) < 1e-9, 0, self.command), self.low,
                               self.high)  # fmt: skip

    def going(self, status: Status) -> str:
        """What leads on from where it is to being armed, if that is wanted."""
        wanted = {states.PASSIVE: states.STAND, states.READY: states.ARM, states.HOLD: states.ARM}
        self.goes &= status.state in wanted
        if not self.goes or time.monotonic() - self.tried < AGAIN_S:
            return ""
        self.tried = time.monotonic()
        return wanted[status.state]

    def show(self, status: Status) -> None:
        asked = " ".join(f"{x:+.2f}" for x in self.command)
        why = f" ({said(status.why)})" if status.why and status.state != states.ARMED else ""
        line = f"{status.state}{why}   asked {asked or 'nothing'}"
        if line != self.shown:
            print(f"\r\x1b[K{line}", end="", flush=True)
            self.shown = line
