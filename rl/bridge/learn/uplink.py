"""An actor's side of learning elsewhere: what it records goes to the learner, weights come back.

The journal is the only buffer.  What is under way is bounded, and is sent again from what the
learner has on its disk whenever either of them, or the network, was gone.
"""

import math
import time
from collections import Counter, deque
from typing import Any, NamedTuple

import zmq

from rl.bridge.learn import frames
from rl.bridge.learn.frames import BOOTS, Message
from rl.bridge.learn.journal import Journal
from rl.bridge.learn.line import DEAD_S, Line
from rl.bridge.learn.weights import Fetch, Weights

PING_S = 0.5
GREET_S = 0.5  # between greetings that are not answered
STALLED_S = 2.0  # after which it greets, to hear from where on what was sent is not there
BATCH = 64 << 10  # bytes of records in a frame, or one record
WINDOW = 4 << 20  # bytes under way, at most
LEAST = 4 << 10  # at first, and of a frame: a line that often breaks lets small ones pass
SLOW_S = 1.0  # until an acknowledgement, above which less is under way
TICK_S = 0.05  # between two looks at what is due
FRAMES = 8  # that are sent at once, some ms: a robot is waiting
MANY = 256  # messages that are heard at once
OTHER = "The learner speaks another version: use the same on both sides."
PINGS = 16  # of which the fastest says what the clocks differ by


class Flight(NamedTuple):
    """A frame that is under way."""

    boot: bytes
    last: int  # of its records
    size: int  # bytes
    sent: float  # s


class Clocks(NamedTuple):
    rtt: float  # s
    offset: float  # s that the learner's monotonic clock is ahead of ours


class Uplink:
    """Driven by its caller's loop: it has no thread, and waits for nothing but in `poll`."""

    def __init__(
        self, journal: Journal, address: str, secret: bytes, learner: bytes, spec: bytes = b""
    ) -> None:
        """To who listens at tcp://host:port and has the secret to the public key `learner`, for
        robots of the spec with this hash."""
        self.journal, self.spec = journal, spec
        self.poller = zmq.Poller()  # at which callers may register what they wait for, too
        self.line = Line(address, secret, learner, self.poller)
        self.fetch = Fetch()
        self.acked = 0  # records
        self.refused = ""  # why the learner does not let it in
        self.over = ""  # why nothing more is learned, and so nothing more is to be done
        self.malformed = Counter[str]()  # what the learner said, by what was wrong
        self._heard = -math.inf  # s, when the learner spoke last
        self._since = self._greeted = self._pinged = self._progress = -math.inf
        self._welcome = False
        self._next: dict[bytes, int] = {}  # to be sent, by boot
        self._flights = deque[Flight]()
        self._flying, self._window = 0, LEAST  # bytes, and how many they may be
        self._stats: frames.Stats | None = None
        self._clocks = deque[Clocks](maxlen=PINGS)

    @property
    def up(self) -> bool:
        """The learner is there, and has let it in."""
        return self._welcome

    @property
    def heard_s(self) -> float:
        """s since the learner spoke; inf if it never did."""
        return time.monotonic() - self._heard

    @property
    def trouble(self) -> str:
        """Why it is not up."""
        return "" if self._welcome else self.refused or self.line.trouble

    @property
    def pending(self) -> int:
        """Records that the learner has not acknowledged."""
        return self.journal.pending

    @property
    def weights(self) -> Weights | None:
        """The newest that are here, whole."""
        return self.fetch.newest

    @property
    def clocks(self) -> Clocks | None:
        """By the fastest of the last pings."""
        return min(self._clocks, default=None)

    def append(self, record: bytes) -> int:
        """Record it; it is sent by `poll`.  `segments.Full` without room, as the journal says."""
        return self.journal.append(record)

    def tell(self, values: dict[str, Any]) -> None:
        """Say how it is, to who watches the learner: numbers and texts by name, of which the end
        of a long one is left out."""
        values = {k: x[: frames.STAT] if isinstance(x, str) else x for k, x in values.items()}
        if not frames.fits("values", values):
            raise ValueError(
                f"{values} are no statistics: give {BOOTS} at most, plain numbers or texts."
            )
        self._stats = frames.Stats(values)

    def poll(self, timeout: float = 0.0) -> list[Any]:
        """Send what may be sent and hear what comes, for which it waits so many s; what else is
        ready at the poller."""
        until = time.monotonic() + timeout
        while True:
            self._tend()
            left = max(until - time.monotonic(), 0.0)
            ready = self.poller.poll(int(1e3 * min(left, TICK_S)))
            self._hear()
            if ready or not left:
                self._tend()
                return [each for each, _ in ready if not self.line.owns(each)]

    def settle(self, timeout: float) -> bool:
        """Whether all that was recorded is acknowledged within `timeout` s."""
        until = time.monotonic() + timeout
        while self.pending and (left := until - time.monotonic()) > 0:
            self.poll(left)
        return not self.pending

    def close(self) -> None:
        """Say goodbye; the journal stays open."""
        self.line.send(frames.Bye())
        self.line.close()

    def _tend(self) -> None:
        """Do what is due."""
        now = time.monotonic()
        if self.line.look():
            self._since, self._greeted = now, -math.inf
            self._welcome, self._window = False, LEAST
            self._clocks.clear()
        if not self.line.up:
            self._welcome = False
        elif now - max(self._heard, self._since) > DEAD_S:
            self.line.anew()
        elif self._welcome and not (self._flights and now - self._progress > STALLED_S):
            self._serve(now)
        elif now - self._greeted >= GREET_S:
            self._welcome, self._greeted = False, now
            held = [*self.journal.held().items()][:BOOTS]
            told, mine = {boot: span.start for boot, span in held}, self.journal
            self.line.send(frames.Hello(mine.actor, mine.boot, self.spec, told, mine.run))

    def _serve(self, now: float) -> None:
        """Send what the learner awaits."""
        if now - self._pinged >= PING_S and self.line.send(frames.Ping(now)):
            self._pinged = now
        if self._stats and self.line.send(self._stats):
            self._stats = None
        for pull in self.fetch.asks(now):
            self.line.send(pull)  # and again, if it is not answered
        sent = 0
        for boot, span in self.journal.held().items():
            if self._next.get(boot, -1) not in range(span.start, span.stop + 1):
                self._welcome &= bool(self._flights)  # greet: it was not told of these
                return
            while self._next[boot] < span.stop:
                if sent == FRAMES or self._flying >= self._window or not self._sent(boot, now):
                    return
                sent += 1

    def _sent(self, boot: bytes, now: float) -> bool:
        """Whether the next records of a boot are under way."""
        first = self._next[boot]
        records = self.journal.read(boot, first, min(BATCH, self._window))
        if not self.line.send(frames.data(boot, first, records)):
            return False
        self._next[boot] = first + len(records)
        flight = Flight(boot, self._next[boot] - 1, sum(map(len, records)), now)
        self._progress = self._progress if self._flights else now
        self._flights.append(flight)
        self._flying += flight.size
        return True

    def _hear(self) -> None:
        for _ in range(MANY):
            if (message := self.line.receive()) is None:
                return
            if isinstance(message, str):
                self.malformed[message] += 1
                self.refused = OTHER if message == "version" else self.refused
                continue
            self._heard = time.monotonic()
            self._obey(message, self._heard)

    def _obey(self, message: Message, now: float) -> None:
        match message:
            case frames.Welcome(durable):
                self._welcome, self.refused, self.over, self._progress = True, "", "", now
                self._flights.clear()
                self._flying = 0
                self._next = {boot: seq + 1 for boot, seq in durable.items()}
                self._acknowledged(durable, now)
            case frames.Ack(durable):
                self._acknowledged(durable, now)
            case frames.Manifest():
                self.fetch.offered(message)
            case frames.Chunk():
                self.fetch.arrived(message, now)
            case frames.Pong(sent, received, replied):
                rtt = now - sent - (replied - received)
                self._clocks.append(Clocks(rtt, (received - sent + replied - now) / 2))
            case frames.Refused(text):
                self._welcome, self.refused = False, text
            case frames.Over(text):
                self.over = text
            case _:
                self.malformed["not a learner's"] += 1

    def _acknowledged(self, durable: dict[bytes, int], now: float) -> None:
        """Those up to there are on the learner's disk."""
        before = self.pending
        for boot, seq in durable.items():
            self.journal.acknowledged(boot, seq)
        self.acked += before - self.pending
        while self._flights and self._flights[0].last <= durable.get(self._flights[0].boot, -1):
            done = self._flights.popleft()
            self._flying -= done.size
            self._progress, slow = now, now - done.sent > SLOW_S
            most = self._window // 2 if slow else self._window + done.size
            self._window = max(LEAST, min(WINDOW, most))
