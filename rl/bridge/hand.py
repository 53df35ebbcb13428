"""What a hand at keys and one at a gamepad have in common: the way to being armed, joints that are
jogged, a policy in whose place it acts, and what is shown."""

import time
from collections.abc import Mapping

import numpy as np

from rl.bridge import states
from rl.bridge.acting import Acting
from rl.bridge.checks import said
from rl.bridge.messages import Status
from rl.bridge.pilot import AGAIN_S
from rl.bridge.refusals import RISING, Refused
from rl.spec import Spec

WANTED = {states.PASSIVE: states.STAND, states.READY: states.ARM, states.HOLD: states.ARM}
JOG_S = 10.0  # s in which a joint that is jogged goes through its range
DEAD = 0.1  # share of an axis's way that is nothing


class Hand:
    """One human's, at one robot."""

    def __init__(self, spec: Spec, names: Mapping[str, str]) -> None:
        """`names` of what it presses, by what that asks for."""
        self.spec, self.names = spec, names
        self.low, self.high = (np.array([getattr(c, k) for c in spec.command])
                               for k in ("low", "high"))  # fmt: skip
        # A place to be at has no zero: the middle of where it may be.
        zero = (self.low <= 0) & (self.high >= 0)
        self.none = np.where(zero, 0.0, (self.low + self.high) / 2)
        self.goes, self.tried = False, -np.inf
        self.joint = 0  # that is jogged
        self.acting = Acting(spec.action) if spec.action else None  # in a policy's place
        self.shown, self.refused = "", Refused()

    def going(self, status: Status) -> str:
        """What leads on from where it is to being armed, if that is wanted."""
        self.goes &= status.state in WANTED
        if not self.goes or time.monotonic() - self.tried < AGAIN_S:
            return ""
        self.tried = time.monotonic()
        return WANTED[status.state]

    def other(self, by: int) -> None:
        """Have the joint, or the number of an action, that comes so many after this one."""
        if self.acting:
            self.acting.other(by)
        self.joint = (self.joint + by) % len(self.spec.actuators)

    def jog(self, share: float) -> np.ndarray:
        """Speeds [A] of the joints, rad/s or m/s, where one goes at a share of its pace."""
        speeds, motor = np.zeros(len(self.spec.actuators)), self.spec.actuators[self.joint]
        speeds[self.joint] = share * (motor.high - motor.low) / JOG_S
        return speeds

    def show(self, status: Status, command: np.ndarray, more: str = "") -> None:
        """In one line how it is, and in one of its own what was refused."""
        if status.refused != self.refused and status.refused.why != RISING:
            self.refused = status.refused
            if text := self.refused.told(self.names):
                self.note(text)
        why = f" ({said(status.why)})" if status.why and status.state not in states.MOVING else ""
        asked = " ".join(f"{x:+.2f}" for x in command) or "nothing"
        if status.state == states.INTERVENE:
            motor, at = self.spec.actuators[self.joint], status.targets[self.joint]
            jogged = f"{motor.name} {at:+.2f} {motor.unit}"
            asked = f"{asked}   {self.acting.shown if self.acting else jogged}"
        line = f"{status.state}{why}   asked {asked}{more}"
        if line != self.shown:
            print(f"\r\x1b[K{line}", end="", flush=True)
            self.shown = line

    def silent(self, seconds: float) -> None:
        """Show that what is pressed reaches nobody."""
        print(f"\r\x1b[KNO WORD of the bridge for {seconds:.0f} s: no stop reaches it", end="",
              flush=True)  # fmt: skip
        self.shown = ""

    def note(self, text: str) -> None:
        """Say something in a line of its own."""
        print(f"\r\x1b[K{text}", flush=True)
        self.shown = ""


def turned(status: Status) -> str:
    """The word that takes a robot in hand, or gives it back."""
    return states.GIVE if status.state == states.INTERVENE else states.TAKE


def share_of(value: int, full: int) -> float:
    """How far an axis is pushed that says so much at its end, -1 to 1, beyond what is nothing."""
    share = np.clip(value / full, -1, 1)
    return float(np.sign(share) * max(abs(share) - DEAD, 0) / (1 - DEAD))
