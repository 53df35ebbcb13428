"""What a human does in the place of a policy that learns: an action of what is pushed, whatever
that is pushed on, and the robot taken in hand and given back by a touch."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from rl.bridge import states
from rl.bridge.messages import Status
from rl.bridge.pilot import AGAIN_S
from rl.spec import Channel

MOVES = "x", "y", "z", "yaw"  # of a hand: ahead, left, up, and a turn to the left seen from above
GRIP = "grip"  # of its fingers: -1 shut, 1 open, and kept
ONE = "one"  # whichever is chosen, of channels that are not a hand's
REST_S = 0.5  # s without a touch after which it is given back (Luo et al. 2024, HIL-SERL)


class Acting:
    """One human's, of a policy whose actions have these channels."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.names = tuple(channel.name for channel in channels)
        self.hand = {*self.names} <= {*MOVES, GRIP}
        self.chosen = 0
        self.grip, self.gripped = 1.0, -np.inf  # and when a human said so last
        self.touched, self.tried, self.taken = -np.inf, -np.inf, False  # by a touch
        self.begun = 0  # episodes
        self.did = np.zeros(len(self.names))  # the last action

    def other(self, by: int) -> None:
        """Choose the channel that comes so many after this one."""
        self.chosen = (self.chosen + by) % len(self.names)

    def felt(self, pushed: Mapping[str, float]) -> dict[str, float]:
        """What of it is pushed, -1 to 1, that this robot has."""
        known = self.names if self.hand else (ONE,)
        return {name: share for name, share in pushed.items() if share and name in known}

    def action(self, status: Status, pushed: Mapping[str, float]) -> np.ndarray:
        """[D], of what is `felt`: what is not pushed does not move, and the grip stays as it was
        told last, by the policy when it was taken over."""
        felt = self.felt(pushed)
        if not self.hand and (share := felt.pop(ONE, 0.0)):
            felt[self.names[self.chosen]] = share
        action = np.array([felt.get(name, 0.0) for name in self.names])
        if GRIP in self.names:
            at = self.names.index(GRIP)
            action[at] = self._gripped(status, action[at], at)
        self.did = np.clip(action, -1, 1)
        return self.did

    def turns(self, status: Status, held: bool) -> str:
        """What takes it over while something is held, and gives it back a while after."""
        now = time.monotonic()
        self.touched = now if held else self.touched
        resting, word = now - self.touched > REST_S, ""
        if status.state != states.INTERVENE:
            self.taken = not resting and status.state == states.ARMED
            word = states.TAKE if held and self.taken else ""
        elif self.taken and resting:
            word = states.GIVE
        if not word or now - self.tried < AGAIN_S:  # it may be on its way
            return ""
        self.tried = now
        return word

    @property
    def shown(self) -> str:
        """The last action in words."""
        told = [f"{name} {x:+.2f}" for name, x in zip(self.names, self.did, strict=True)]
        return "   ".join(told if self.hand else [told[self.chosen]])

    def help(self, pressed: Mapping[str, str]) -> str:
        """What moves what, on something where these are pressed."""
        if self.hand:
            return ", ".join(f"{pressed[name]}: {name}" for name in self.names)
        return f"{pressed[ONE]}: one of {', '.join(self.names)}"

    def _gripped(self, status: Status, share: float, at: int) -> float:
        if status.begun != self.begun:
            self.begun, self.grip = status.begun, 1.0  # its rest has the hand open
        now = time.monotonic()
        if share:
            self.grip, self.gripped = float(np.sign(share)), now
        elif status.state != states.INTERVENE and now - self.gripped > AGAIN_S and status.own:
            self.grip = float(status.own.action[at])
        return self.grip
