"""A robot driven from a keyboard, in a terminal, and by what is beside it: a SpaceMouse."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol

import numpy as np

from rl.bridge import states
from rl.bridge.acting import GRIP, ONE
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
# What is pushed in the place of a policy that learns: a little, and with the shift all the way.
PUSHES = {
    "w": ("x", 1), "s": ("x", -1), "q": ("y", 1), "e": ("y", -1), "i": ("z", 1), "k": ("z", -1),
    "a": ("yaw", 1), "d": ("yaw", -1), "o": (GRIP, 1), "p": (GRIP, -1),
    "+": (ONE, 1), "=": (ONE, 1), "-": (ONE, -1),
}  # fmt: skip
LITTLE = 0.2  # share of an action: a tap moves an arm's tool by some mm
PRESSED = {
    "x": "w s", "y": "q e", "z": "i k", "yaw": "a d", GRIP: "o opens, p shuts", ONE: "n b + -",
}  # fmt: skip
HELP = """keys     SPACE: STOP  g: stand up and go  u: stand up  h: hold{}  r: relax
         c: clear a stop  z: leave{}
         t: take {} in hand, or give {} back{}"""
COMMAND_HELP = "\n         w s  q e  a d: more and less of {}   x: none"
JOGS_HELP = "  n b: the next, the one before  + -: move it"
ACTS_HELP = """  y: it is done  f: it failed, begin anew
         in hand  {}{}"""
# What a terminal sends for an arrow, F1 or Alt with a letter: its last letter was not pressed.  A
# space always was: no stop is lost.
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[@-~]|O?[^ ]?)")
FAR = "; five times as far with the shift"


class Beside(Protocol):
    """What else is pushed."""

    help: str

    def pushed(self, note: Callable[[str], None]) -> dict[str, float]:
        """How far, -1 to 1, what is pushed: of acting.MOVES, GRIP and ONE; `note` shows a line."""
        ...

    def close(self) -> None: ...


class Keys:
    """What is pressed, as words; use it in a `with`, which leaves the terminal as it was."""

    def __init__(self, spec: Spec, stream: Any = None, beside: Beside | None = None) -> None:
        self.spec, self.stream, self.hand = spec, stream or sys.stdin, Hand(spec, NAMES)
        self.beside = beside
        self.command, self.stops = self.hand.none, False
        self.fast = np.array([c.unit.endswith("/s") for c in spec.command], bool)
        self.jogs, self.pressed_at = 0, -np.inf  # which way, and when it was said last
        self.pushes: dict[str, tuple[float, float]] = {}  # how far, and likewise

    def __enter__(self) -> "Keys":
        try:
            self.before = termios.tcgetattr(self.stream)
        except termios.error:
            raise ValueError("There is no terminal whose keys could drive it.") from None
        tty.setcbreak(self.stream)
        names = ", ".join(channel.name for channel in self.spec.command[: len(MORE)])
        command = COMMAND_HELP.format(names) if names else ""
        falls = " (it may fall)" if self.spec.max_tilt < 180 else ""
        who, more, acting = ("joints", "them"), JOGS_HELP, self.hand.acting
        if acting:
            who, more = ("it", "it"), ACTS_HELP.format(acting.help(PRESSED), FAR * acting.hand)
        print(HELP.format(falls, command, *who, more), flush=True)
        if self.beside:
            print(self.beside.help, flush=True)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        termios.tcsetattr(self.stream, termios.TCSADRAIN, self.before)
        if self.beside:
            self.beside.close()
        print()

    def word(self, status: Status) -> Word:
        event, leaves, done, hand = states.STOP * self.stops, False, False, self.hand
        self.stops = False
        if self.fast.any() and status.state not in states.MOVING:
            self.command = hand.none  # nobody is to run off as soon as it is armed
        keys = self.pressed()
        for key in keys:
            if key == "g" and status.state == states.FAULT:
                hand.note(states.nowhere(status.state, states.ARM, NAMES))
            leaves, done = leaves or key == "z", done or key == "y"
            hand.goes = key == "g" or (hand.goes and key not in EVENTS)
            said = turned(status) if key == "t" else EVENTS.get(key, event)
            event = states.STOP if event == states.STOP else said
            if hand.acting and status.state == states.INTERVENE and key.lower() in PUSHES:
                name, way = PUSHES[key.lower()]
                self.pushes[name] = way * (1 if key.isupper() else LITTLE), time.monotonic()
            else:
                self.change(key)
        pushed = self.beside.pushed(hand.note) if self.beside else {}
        word = Word(event or hand.going(status), self.command.copy(), leaves=leaves, done=done)
        word = self._acts(status, word, pushed, "f" in keys) if hand.acting else self._jogs(
            word, pushed.get("x", 0.0))  # fmt: skip
        hand.show(status, self.command)
        return word

    def _jogs(self, word: Word, share: float) -> Word:
        """A word, and how the joint that is chosen goes."""
        held = time.monotonic() - self.pressed_at < PRESSED_S
        share = float(self.jogs) if held else share
        return word._replace(jog=self.hand.jog(share), deadman=held or share != 0)

    def _acts(self, status: Status, word: Word, pushed: dict[str, float], failed: bool) -> Word:
        """A word, and what is done in a policy's place."""
        acting, now = self.hand.acting, time.monotonic()
        assert acting
        pushed |= {name: x for name, (x, at) in self.pushes.items() if now - at < PRESSED_S}
        held = bool(acting.felt(pushed))
        return word._replace(
            event=word.event or acting.turns(status, held), action=acting.action(status, pushed),
            deadman=held, over=status.begun if failed and status.state in states.MOVING else 0,
        )  # fmt: skip

    def silent(self, seconds: float) -> bool:
        self.hand.silent(seconds)
        if self.beside:
            self.beside.pushed(self.hand.note)  # and forgotten
        keys = self.pressed()
        self.stops |= " " in keys  # said as soon as it is heard again; nothing else is
        return "z" in keys

    def pressed(self) -> str:
        """Keys since the last look."""
        if not select.select([self.stream], [], [], 0)[0]:
            return ""
        return ESCAPES.sub("", os.read(self.stream.fileno(), 64).decode(errors="ignore"))

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
