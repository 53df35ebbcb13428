"""A robot driven with a gamepad, by Linux's joystick interface: /dev/input/js0.

It tells changes alone, eight bytes each: that nothing changes is no news of a hand.  So a button is
held until it is said to be let go, or the gamepad is gone.
"""

import fcntl
import os
import stat
import struct
import time
from pathlib import Path
from types import TracebackType

import numpy as np

from rl.bridge import states
from rl.bridge.acting import GRIP, ONE
from rl.bridge.hand import Hand, share_of, turned
from rl.bridge.messages import Status
from rl.bridge.pilot import AGAIN_S, Word
from rl.spec import Spec

DEVICE = Path("/dev/input/js0")
EVENT = struct.Struct("<IhBB")  # js_event of linux/joystick.h: time in ms, value, type, number
AXES = 0x80016A11  # JSIOCGAXES: how many it has, which no other kind of device tells
BUTTON, AXIS, INIT = 1, 2, 0x80  # types; of INIT is how it was when it was opened
# As the drivers xpad and playstation number them alike.
A, B, X, Y, LEFT, RIGHT = range(6)
HAT_X, HAT_Y, STICKS = 6, 7, (1, 0, 3, 4)  # of a command's numbers; ahead and left are negative
EVENTS = {X: states.WAIT, Y: states.RELAX}
NAMES = {
    states.STAND: "A", states.ARM: "A", states.STOP: "B", states.WAIT: "X", states.RELAX: "Y",
    states.CLEAR: "cross up", states.TAKE: "cross down", states.GIVE: "cross down",
}  # fmt: skip
FULL = 32767  # of an axis at its end
GOAL_S = 4.0  # s in which a goal goes through its range
# What is pushed in the place of a policy that learns, which needs no shoulder held.
PUSHES = {"x": 1, "y": 0, "yaw": 3, "z": 4, ONE: 1}  # by axis; ahead, left and up are negative
PRESSED = {
    "x": "left stick", "y": "left stick", "yaw": "right stick", "z": "right stick",
    GRIP: "cross right opens, left shuts", ONE: "cross right and left, left stick",
}  # fmt: skip
ACTS_HELP = """gamepad  A: stand up and go  B, or both shoulders: STOP  X: hold  Y: relax
         cross: up clears a stop, down takes it in hand or gives it back
         left shoulder: it failed, begin anew
         {}; a push, or the right shoulder, takes it in hand, and letting go gives it back"""
HELP = """gamepad  A: stand up and go  B, or both shoulders: STOP  X: hold  Y: relax
         sticks: {}, with the right shoulder held
         cross: up clears a stop, down takes joints in hand or gives them back, left and right
         choose one, which the left stick moves"""


class Gamepad:
    """What is pushed and pressed, as words; use it in a `with`."""

    def __init__(self, spec: Spec, path: Path) -> None:
        self.spec, self.path, self.hand = spec, path, Hand(spec, NAMES)
        self.walks = spec.max_tilt < 180  # it falls where it is held
        self.paced = np.array([c.unit.endswith("/s") for c in spec.command], bool)
        self.command, self.time = self.hand.none, np.inf
        self.file, self.tried, self.there, self.left = -1, -np.inf, False, b""
        self.lost = False  # it was gone while it had a hand on a policy that learns
        self.down: set[int] = set()  # buttons
        self.axes: dict[int, int] = {}
        self._open()
        if self.file < 0:
            raise ValueError(f"There is no gamepad at {self.path}: plug it in, or name another.")
        if not _tells(self.file):
            self._close()
            raise ValueError(
                f"{self.path} is no gamepad: Linux has them at /dev/input/js0, js1, ..."
            )

    def __enter__(self) -> "Gamepad":
        names = ", ".join(channel.name for channel in self.spec.command[: len(STICKS)])
        acting = self.hand.acting
        help = ACTS_HELP.format(acting.help(PRESSED)) if acting else HELP.format(names or "nothing")
        print(help, flush=True)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        print()

    def word(self, status: Status) -> Word:
        hand, pressed = self.hand, self._read()
        if hand.acting:
            return self._acts(status, pressed)
        held, dt = RIGHT in self.down, float(np.clip(status.time - self.time, 0, 0.1))
        self.time = status.time
        self.command = self._asked(held and status.state == states.ARMED, dt)
        event = self._event(pressed, status)
        if not self.walks and not held and status.state == states.ARMED:
            hand.goes, event = False, event or states.WAIT
        if self.walks or held or status.state == states.PASSIVE:
            event = event or hand.going(status)
        hand.show(status, self.command, "" if self.there else "   NO GAMEPAD")
        return Word(event, self.command, hand.jog(self._pushed(STICKS[0])), held)

    def _acts(self, status: Status, pressed: list[tuple[int, int, int]]) -> Word:
        """What is done in the place of a policy, that goes on with no hand on it."""
        hand, acting = self.hand, self.hand.acting
        assert acting
        event, failed = self._event(pressed, status), (BUTTON, LEFT) in [x[1:] for x in pressed]
        pushed = {name: self._pushed(axis) for name, axis in PUSHES.items()}
        for value in (self.axes.get(HAT_X, 0), *(x for x, _, axis in pressed if axis == HAT_X)):
            pushed[GRIP] = float(np.sign(value)) or pushed.get(GRIP, 0.0)
        held = RIGHT in self.down or bool(acting.felt(pushed))
        event = event or hand.going(status) or acting.turns(status, held)
        action = acting.action(status, pushed)
        hand.show(status, self.command, "" if self.there else "   NO GAMEPAD")
        over = status.begun if failed and status.state in states.MOVING else 0
        return Word(event, self.command, None, held, action=action, over=over)

    def silent(self, seconds: float) -> bool:
        self.hand.silent(seconds)
        return False

    def _event(self, pressed: list[tuple[int, int, int]], status: Status) -> str:
        """What is asked for by buttons, and the cross, that were pressed since the last look."""
        hand, event = self.hand, ""
        self.lost &= (BUTTON, A) not in [x[1:] for x in pressed]
        if self.lost or not self.there:
            hand.goes = False
            # Who has it practise would have it stand up again from a hold.
            held = (states.HOLD,) if self.lost else ()
            event = states.WAIT if status.state in (states.READY, *states.MOVING, *held) else ""
        for value, kind, number in pressed:
            if kind == BUTTON and (number == B or {LEFT, RIGHT} <= self.down):
                hand.goes = False
                return states.STOP
            if kind == BUTTON:
                hand.goes = number == A or (hand.goes and number not in EVENTS)
                event = EVENTS.get(number, event)
            elif number == HAT_Y:
                event = states.CLEAR if value < 0 else turned(status)
            else:
                hand.other(1 if value > 0 else -1)
        return event

    def _pushed(self, axis: int) -> float:
        """How far, to the front, the left or up, -1 to 1."""
        return -share_of(self.axes.get(axis, 0), FULL)

    def _asked(self, held: bool, dt: float) -> np.ndarray:
        """The command [C]: a speed is as far as its stick is pushed, and a goal goes that way."""
        hand = self.hand
        pushed = [self._pushed(axis) * held for axis in STICKS[: len(hand.none)]]
        share = np.array(pushed + [0.0] * (len(hand.none) - len(pushed)))
        paced = hand.none + np.where(share > 0, hand.high - hand.none, hand.none - hand.low) * share
        goal = self.command + share * (hand.high - hand.low) / GOAL_S * dt
        return np.clip(np.where(self.paced, paced, goal), hand.low, hand.high)

    def _read(self) -> list[tuple[int, int, int]]:
        """Value, type and number of the presses of buttons and the cross since the last look."""
        if self.file < 0 and time.monotonic() - self.tried > AGAIN_S:
            self._open()
        if self.file < 0:
            return []
        try:
            data = os.read(self.file, 64 * EVENT.size)
        except BlockingIOError:
            return []
        except OSError:  # it was unplugged
            data = b""
        if not data:
            self._gone()
            return []
        if not self.there:
            self.there = True
            self.hand.note(f"The gamepad {self.path} is there.")
        data = self.left + data
        whole = len(data) - len(data) % EVENT.size
        self.left = data[whole:]
        return [event[1:] for event in EVENT.iter_unpack(data[:whole]) if self._take(*event[1:])]

    def _take(self, value: int, kind: int, number: int) -> bool:
        """A change; whether something was pressed."""
        if kind & ~INIT == BUTTON:
            (self.down.add if value else self.down.discard)(number)
            return kind == BUTTON and bool(value)
        self.axes[number] = value
        return kind == AXIS and number in (HAT_X, HAT_Y) and bool(value)

    def _open(self) -> None:
        self.tried = time.monotonic()
        try:
            self.file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            self.file = -1

    def _close(self) -> None:
        if self.file >= 0:
            os.close(self.file)
        self.file, self.left = -1, b""

    def _gone(self) -> None:
        """Nothing is held any more."""
        if self.there:
            self.lost = self.hand.acting is not None
            self.hand.note("The gamepad is gone: the robot is held until it is back and A pressed.")
        self._close()
        self.there, self.down, self.axes = False, set(), {}


def _tells(file: int) -> bool:
    """Whether it is a joystick, or a pipe that somebody writes its events to."""
    if stat.S_ISFIFO(os.fstat(file).st_mode):
        return True
    try:
        fcntl.ioctl(file, AXES, bytes(1))
    except OSError:
        return False
    return True
