"""What a learner makes of what actors say: each record is taken once, and on the disk before it
says so."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rl.bridge.learn import frames
from rl.bridge.learn.frames import Message
from rl.bridge.learn.ledger import Ledger
from rl.bridge.learn.segments import Full
from rl.bridge.learn.weights import Shelf

SILENT_S = 2.0  # of an actor, after which another process may come in its name
GONE_S = 30.0  # after which it is forgotten
TAKEN = "Another process is this actor, and spoke {:.1f} s ago: end it, or use a name of its own."

OTHER = (
    "The learner is that of {ours}, and this robot practises for {theirs}: take the explorer.zip "
    "of {ours}. What it did stays where it is, for the learner of {theirs}."
)


@dataclass
class Session:
    """A process of an actor."""

    peer: bytes  # its connection
    boot: bytes
    heard: float  # s, when it spoke last
    first: dict[bytes, int]  # record that it still has, by boot
    welcome: bool = True  # it is to be told from where on to send
    astray: bool = False  # it was told so, and what was under way before does not count
    stats: dict[str, Any] = field(default_factory=dict)


class Intake:
    def __init__(
        self, ledger: Ledger, shelf: Shelf, spec: bytes, send: Callable[[bytes, Message], None],
        run: str = "",
    ) -> None:  # fmt: skip
        """For robots of a spec, and of a run, or of any where these are empty; `send` tells a
        connection something."""
        self.ledger, self.shelf, self.spec, self.send = ledger, shelf, spec, send
        self.run, self._said = run, set[tuple[str, str]]()  # who was refused, and that is told of
        self.sessions: dict[str, Session] = {}  # by actor
        self.counts = Counter[str]()
        self.refused = Counter[str]()
        self.malformed = Counter[str]()
        self.trouble = ""  # why nothing can be written
        self._owed: dict[tuple[bytes, str], set[bytes]] = {}  # whom what is written is told

    def hear(self, peer: bytes, actor: str, message: Message | str) -> None:
        """What came from a connection that has an actor's key."""
        now, session = time.monotonic(), self.sessions.get(actor)
        if isinstance(message, str):
            self.malformed[message] += 1
            if message == "version":
                self._refuse(peer, message, f"The learner speaks version {frames.VERSION} alone.")
        elif isinstance(message, frames.Hello):
            self._greeted(peer, actor, message, now)
        elif session is None or session.peer != peer:
            self._refuse(peer, "no greeting", "The learner does not know who this is: greet it.")
        else:
            session.heard = now
            self._obey(session, actor, message, now)

    def commit(self) -> None:
        """Have on the disk what came, and say so."""
        try:
            self.ledger.sync()
        except (OSError, Full) as error:
            self._failed(error)
        for (peer, actor), boots in self._owed.items():
            self.send(peer, frames.Ack({boot: self._durable(actor, boot) for boot in boots}))
        self._owed.clear()
        for actor, session in self.sessions.items():
            if session.welcome:
                session.welcome = False
                durable = {boot: max(self._durable(actor, boot), first - 1)
                           for boot, first in session.first.items()}  # fmt: skip
                self.send(session.peer, frames.Welcome(durable))
                self._offer(session)
                self._end(session)

    def look(self) -> None:
        """Tell of newer weights, and forget who is gone."""
        newer, ended, now = self.shelf.look(), self.shelf.ended(), time.monotonic()
        for actor, session in [*self.sessions.items()]:
            if newer:
                self._offer(session)
            if ended:
                self._end(session)
            if now - session.heard > GONE_S:
                self._forget(actor)

    def facts(self) -> dict[str, Any]:
        """All that was counted, and who is there."""
        now = time.monotonic()
        there = {actor: {"silent_s": round(now - x.heard, 1), "stats": x.stats}
                 for actor, x in self.sessions.items()}  # fmt: skip
        told = {"refused": self.refused, "malformed": self.malformed, "trouble": self.trouble}
        weights = self.shelf.newest.version if self.shelf.newest else None
        return {**self.counts, **told, "weights": weights, "sessions": there}

    def _greeted(self, peer: bytes, actor: str, hello: frames.Hello, now: float) -> None:
        before = self.sessions.get(actor)
        silent = now - before.heard if before else GONE_S
        if hello.actor != actor:
            self._refuse(peer, "name", f"This key is {actor}'s, not {hello.actor}'s: use its own.")
        elif self.spec and hello.spec != self.spec:
            theirs, ours = hello.spec.hex() or "none", self.spec.hex()
            self._refuse(peer, "spec", f"The learner is for robots of spec {ours}, not {theirs}.")
        elif self.run and hello.run != self.run:
            theirs = hello.run or "a run without a name"
            self._refuse(peer, "run", OTHER.format(ours=self.run, theirs=theirs))
            if (actor, theirs) not in self._said:
                self._said.add((actor, theirs))
                print(f"refused  {actor}, which practises for {theirs}", flush=True)
        elif before and before.boot != hello.boot and silent < SILENT_S:
            self._refuse(peer, "taken", TAKEN.format(silent))
        else:
            stats = before.stats if before else {}
            self.sessions[actor] = Session(peer, hello.boot, now, hello.held, stats=stats)

    def _obey(self, session: Session, actor: str, message: Message, now: float) -> None:
        match message:
            case frames.Data():
                self._take(session, actor, message)
            case frames.Ping(sent):
                self.send(session.peer, frames.Pong(sent, now, time.monotonic()))
            case frames.Pull() if chunk := self.shelf.chunk(actor, message):
                self.send(session.peer, chunk)
            case frames.Pull():
                self._offer(session)
            case frames.Stats(values):
                session.stats = values
            case frames.Bye():
                self._forget(actor)
            case _:
                self.malformed["not an actor's"] += 1

    def _take(self, session: Session, actor: str, data: frames.Data) -> None:
        """Write what is new of it, if nothing is missing before."""
        known, first = self.ledger.last(actor, data.boot) + 1, session.first.get(data.boot)
        # What the actor has no longer was acknowledged to it, if not by a learner with this ledger.
        due = known if first is None else max(known, first)
        if first is None or data.first > due:
            self.counts["gaps"] += 1
            session.welcome |= not session.astray
            session.astray = True
            return
        new = data.records[due - data.first :]
        try:
            if new:
                self.ledger.append(actor, data.boot, due, new)
        except (OSError, Full) as error:
            self._failed(error)
            return
        session.astray = False
        self.counts["elsewhere"] += due - known if new and known else 0
        self.counts["duplicates"] += len(data.records) - len(new)
        self.counts["records"] += len(new)
        self.counts["bytes"] += sum(map(len, new))
        self._owed.setdefault((session.peer, actor), set()).add(data.boot)

    def _durable(self, actor: str, boot: bytes) -> int:
        return self.ledger.durable.get((actor, boot), -1)

    def _failed(self, error: Exception) -> None:
        """Nothing that was not on the disk is there now; its actors send it again."""
        self.counts["writes that failed"] += 1
        self.trouble = str(error)

    def _offer(self, session: Session) -> None:
        if self.shelf.newest:
            self.send(session.peer, self.shelf.newest)

    def _end(self, session: Session) -> None:
        if self.shelf.over:
            self.send(session.peer, frames.Over(self.shelf.over))

    def _forget(self, actor: str) -> None:
        self.sessions.pop(actor)
        self.shelf.forget(actor)

    def _refuse(self, peer: bytes, why: str, text: str) -> None:
        self.refused[why] += 1
        self.send(peer, frames.Refused(text))
