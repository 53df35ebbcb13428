"""What of a Franka waits: its hand, which is told where to go and done when it is there, and the
recovery from errors.

In a thread, which no tick waits for: the library lets go of the interpreter while it waits.
"""

import contextlib
import threading
import time
from typing import Any

LEAST = 0.001  # m; the hand is not told of less
SPEED = 0.1  # m/s of the width
ANY = 0.08  # m that what is grasped may be wider or narrower than it was told
MOST_FAILED = 5  # calls in a row that the hand did not answer


class Worker:
    """One arm's, of franky's Robot and Gripper."""

    def __init__(self, robot: Any, hand: Any) -> None:
        self.robot, self.hand = robot, hand
        self.width, self.speed, self.time = float(hand.state.width), 0.0, time.monotonic()
        self.wanted, self.force = self.width, 0.0  # m and N
        self.recovers = self.ended = False
        self.failed = 0  # calls in a row
        self.told, self.doing = self.width, None
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    @property
    def well(self) -> bool:
        return self.failed < MOST_FAILED

    def close(self) -> None:
        self.ended = True
        self.thread.join(1.0)

    def _live(self) -> None:
        while not self.ended and self.well:
            try:
                self._look(float(self.hand.state.width))  # which waits for its next word
                self._go()
                self.failed = 0
            except Exception:  # whatever the library makes of a hand that does not answer
                self.failed += 1
            if self.recovers:
                self._recover()

    def _recover(self) -> None:
        with contextlib.suppress(Exception):  # its state says whether it did
            self.robot.recover_from_errors()
        self.recovers = False

    def _look(self, width: float) -> None:
        now = time.monotonic()
        if now > self.time:
            self.speed, self.time = (width - self.width) / (now - self.time), now
        self.width = width

    def _go(self) -> None:
        """To where it is wanted, once it has come to where it was told before."""
        if self.doing and not self.doing.wait(0.0):
            return
        width, force, self.doing = self.wanted, self.force, None
        if abs(width - self.told) > LEAST:
            closes, self.told = width < self.width, width
            self.doing = (
                self.hand.grasp_async(width, SPEED, force, ANY, ANY)
                if closes
                else self.hand.move_async(width, SPEED)
            )
