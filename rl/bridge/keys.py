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
from rl.bridge.hand import Hand, turned
from rl.bridge.messages import Status
from rl.bridge.pilot import Word
from rl.spec import Spec

STEPS = 8  # presses of a key from nothing to the most
EVENTS = {
    " ": states.STOP, "h": states.WAIT, "r": states.RELAX, "c": states.CLEAR, "u": states.STAND,
}  # fmt: skip
NAMES = {event: key for key, event in EVENTS.items()} | {
    states.STOP: "SPACE", states.ARM: "g", states.TAKE: "t", states.GIVE: "t",
}  # fmt: skip
MORE, LESS = "wqa", "sed"  # of the first three numbers of a command: forward, left, turn left
NEXT, JOGS = {"n": 1, "b": -1}, {"+": 1, "=": 1, "-": -1}  # =: a plus without the shift
PRESSED_S = 0.15  # s that a key which jogs counts as held: a terminal does not tell its release
HELP = """keys     SPACE: STOP  g: stand up and go  u: stand up  h: hold{}  r: relax
         c: clear a stop  y: it is done, to who learns of it  z: leave
         w s  q e  a d: more and less of {}   x: none
         t: take joints in hand, or give them back  n b: the next, the one before  + -: move it"""


class Keys:
    """What is pressed, as words; use it in a `with`, which leaves the terminal as it was."""

    def __init__(self, spec: Spec, stream: Any = None) -> None:
        self.spec, self.stream, self.hand = spec, stream or sys.stdin, Hand(spec, NAMES)
        self.command, self.stops = self.hand.none, False
        self.fast = np.array([c.unit.endswith("/s") for c in spec.command], bool)
        self.jogs, self.pressed_at = 0, -np.inf  # which way, and when it was said last

    def __enter__(self) -> "Keys":
        try:
            self.before = termios.tcgetattr(self.stream)
        except termios.error:
            raise ValueError("There is no terminal whose keys could drive it.") from None
        tty.setcbreak(self.stream)
        names = ", ".join(channel.name for channel in self.spec.command[: len(MORE)])
        falls = " (it may fall)" if self.spec.max_tilt < 180 else ""
        print(HELP.format(falls, names or "nothing"), flush=True)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self.stream, termios.TCSADRAIN, self.before)
        print()

    def word(self, status: Status) -> Word:
        event, leaves, done, hand = states.STOP * self.stops, False, False, self.hand
        self.stops = False
        if self.fast.any() and status.state not in states.MOVING:
            self.command = hand.none  # nobody is to run off as soon as it is armed
        for key in self.pressed():
            if key == "g" and status.state == states.FAULT:
                hand.note(states.nowhere(status.state, states.ARM, NAMES))
            leaves, done = leaves or key == "z", done or key == "y"
            hand.goes = key == "g" or (hand.goes and key not in EVENTS)
            said = turned(status) if key == "t" else EVENTS.get(key, event)
            event = states.STOP if event == states.STOP else said
            self.change(key)
        hand.show(status, self.command)
        held = time.monotonic() - self.pressed_at < PRESSED_S
        return Word(
            event or hand.going(status), self.command.copy(), hand.jog(self.jogs * held), held,
            leaves, done=done,
        )  # fmt: skip

    def silent(self, seconds: float) -> bool:
        self.hand.silent(seconds)
        keys = self.pressed()
        self.stops |= " " in keys  # said as soon as it is heard again; nothing else is
        return "z" in keys

    def pressed(self) -> str:
        """Keys since the last look."""
        if not select.select([self.stream], [], [], 0)[0]:
            return ""
        return os.read(self.stream.fileno(), 64).decode(errors="ignore")

    def change(self, key: str) -> None:
        """The command, or the joint that is jogged, by a key."""
        hand = self.hand
        hand.other(NEXT.get(key, 0))
        if key in JOGS:
            self.jogs, self.pressed_at = JOGS[key], time.monotonic()
        step = (hand.high - hand.low) / 2 / STEPS
        ends = key == "x" or EVENTS.get(key) in (states.STOP, states.RELAX, states.CLEAR)
        command = hand.none.copy() if ends else self.command.copy()
        for keys, sign in ((MORE, 1), (LESS, -1)):
            if (at := keys.find(key)) >= 0 and at < len(command):
                command[at] += sign * step[at]
        self.command = np.clip(np.where(abs(command) < 1e-9, 0, command), hand.low, hand.high)
