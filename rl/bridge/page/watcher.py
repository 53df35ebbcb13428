"""Who watches a robot: hears from its bridge how it is, and may stop it, and nothing else."""

import time

import numpy as np

from rl.bridge import messages, states, wire
from rl.bridge.desk import WATCHER
from rl.bridge.greeting import check_hello
from rl.bridge.messages import Operator
from rl.bridge.page.board import Board
from rl.bridge.wire import Link

GREET_S = 2.0  # s between greetings, without which a desk forgets who watches
AGAIN_S = 0.02  # s between two words
STOP_S = 2.0  # s in which a stop is said again, until it is one
STOP = states.ASKED.index(states.STOP)


class Watcher:
    """Writes on `board` what a bridge says over `link`."""

    def __init__(self, board: Board, link: Link) -> None:
        self.board, self.link, self.spec = board, link, board.spec
        self.hello = wire.hello(self.spec)._replace(flags=WATCHER)
        self.greeted = self.said = self.until = -np.inf
        self.heard = time.monotonic()  # any word of it, or since nothing was

    def mind(self) -> None:
        """Hear what came; stay known; see to it that a stop is heard.

        ValueError if the bridge is one of another robot.
        """
        now = time.monotonic()
        for datagram in self.link.drain():
            message = wire.decode(datagram)
            if message is None:
                continue
            self.heard = now
            if message.kind == wire.HELLO:
                check_hello(self.spec, message, "The bridge")
            elif message.kind == wire.BYE:
                self.board.bye(time.time())
            elif status := messages.status_of(self.spec, message):
                self.board.hear(status, time.time())
                if status.state == states.FAULT:
                    self.until = -np.inf
        if now - self.greeted > GREET_S:
            self._greet(now)
        if now < self.until and now - self.said > AGAIN_S:
            self._say(now)

    def stop(self) -> None:
        """Have it stopped, which leads to a fault whatever it is in."""
        now = time.monotonic()
        if now >= self.until:
            self.board.stop(time.time())
            self._greet(now)  # or it may not know who says so
            self._say(now)
        self.until = now + STOP_S

    def _greet(self, now: float) -> None:
        self.link.send(self.hello)
        self.greeted = now

    def _say(self, now: float) -> None:
        spec = self.spec
        blank = [np.zeros(len(x)) for x in (spec.command, spec.actuators, spec.action)]
        word = Operator(0, STOP, 0, False, blank[0], blank[1], blank[2])
        self.link.send(messages.operator_message(self.spec, word, 0.0))
        self.said = now
