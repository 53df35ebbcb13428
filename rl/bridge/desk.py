"""Where a policy and operators come to a bridge: one UDP port, and who is who on it.

All come to its door; who is let in has a socket, and so a buffer, of its own at the same port.
However much strangers send, it is not lost in it.
"""

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import wire
from rl.bridge.messages import Status, status_message
from rl.bridge.wire import OTHER, REFUSED, Link, Message
from rl.spec import Spec

POLICY, PILOT, WATCHER = 64, 128, 256  # flags of a greeting
SILENT_S = 1.0  # of a policy or a pilot, after which another may take over
GONE_S = 10.0  # of a watcher
GLANCE_S = 0.05  # between two looks at the door, while somebody is waited for
MOST_WATCHERS = 16
STRANGERS = 8  # datagrams that are read at the door at once
MOST_UNREAD = 10_000  # that are counted at the end: a flood may go on
WHO = {"policy": "Another policy drives this robot", "operator": "Somebody else drives this robot"}


class Heard(NamedTuple):
    source: str  # policy, operator or watcher
    datagram: bytes


class Desk:
    def __init__(
        self, spec: Spec, bind: tuple[str, int], patience: tuple[float, float], tag: int = 0
    ) -> None:
        """`patience`: s of wall time to wait for policy and pilot while a simulated robot's stands
        still; who did not answer is not waited for again until it speaks.  `tag` is of the artefact
        that its policy must be of."""
        self.spec, self.door, self.tag = spec, Link(bind), tag
        self.greeting = wire.hello(spec)  # once: it is too long to be written in a tick
        self.patience: dict[str, float] = dict(zip(WHO, patience, strict=True))
        self.links: dict[str, Link] = {}  # of policy and operator
        self.watchers: dict[Any, Link] = {}  # by address
        self.spoke: dict[Any, float] = {}  # when who did last; of watchers, by address
        self.told = time.monotonic()  # when all were, last
        self.silent: set[str] = set()
        self.inbox: list[Heard] = []
        self.left = False  # the pilot said goodbye
        self.ignored: Counter[str] = Counter()  # datagrams of whom nothing is heard

    @property
    def pilot_silent(self) -> float:
        """s since the pilot spoke."""
        return time.monotonic() - self.spoke.get("operator", -np.inf)

    def gather(self, policy: float, pilot: float) -> None:
        """Wait so many s for a policy, and for a pilot; ValueError if one does not come."""
        began = time.monotonic()
        while len(self.links) < len(WHO):
            who, timeout = ("pilot", pilot) if "policy" in self.links else ("policy", policy)
            if (left := began + timeout - time.monotonic()) <= 0:
                raise ValueError(f"No {who} came within {timeout:g} s.")
            if got := self.door.receive_raw(min(left, GLANCE_S)):
                self._meet(*got)
            self.told = time.monotonic()
            self._hear_all()
            self.inbox = [*dict.fromkeys(self.inbox)]  # a policy greets again and again

    def collect(self) -> list[Heard]:
        """All that came since the last call."""
        self._hear_all()
        self._look()
        inbox, self.inbox = self.inbox, []
        return inbox

    def ask(self, datagram: bytes, waits: bool, period: int, budget: float) -> float:
        """Put a question to the policy; s until it was answered, NaN if that took longer."""
        return self._put("policy", datagram, wire.PLAN, period, budget, waits)

    def tell(self, status: Status, budget: float = 0.0) -> None:
        """Say how it is to who drives it, whose answer is waited for so many s, and to watchers."""
        datagram = wire.encode(status_message(self.spec, status))
        self.told = time.monotonic()
        for at in [x for x in self.watchers if self.told - self.spoke[x] > GONE_S]:
            self.watchers.pop(at).close()
            del self.spoke[at]
        for link in self.watchers.values():
            link.send_raw(datagram)
        self._put("operator", datagram, wire.OPERATOR, status.tick, budget, status.waits)

    def bye(self, lost: bool) -> None:
        for link in (*self.links.values(), *self.watchers.values()):
            link.send(wire.goodbye(self.spec, wire.LOST * lost))

    def close(self) -> None:
        for link in (self.door, *self.links.values(), *self.watchers.values()):
            link.close()

    def turned_away(self) -> Counter[str]:
        """Datagrams that came in vain, by whose or how; at the end, as it reads all there are."""
        unread = sum(map(unheard, (self.door, *self.watchers.values())))
        return self.ignored + Counter({"that came too fast to be read": unread})

    def _put(
        self, who: str, datagram: bytes, kind: int, seq: int, budget: float, waits: bool
    ) -> float:  # fmt: skip
        if (link := self.links.get(who)) is None:
            return float("nan")
        began = last = time.monotonic()
        left = self.patience[who] if waits and who not in self.silent else budget
        link.send_raw(datagram)
        while self.links[who] is link and left > 0:
            got, now = link.receive_raw(min(left, GLANCE_S)), time.monotonic()
            # Of a while in which this process was paused itself nobody else is to blame.
            left, last = left - min(now - last, GLANCE_S), now
            if got is None:
                self._look()  # another may have come in its place
                continue
            message = self._hear(who, got[0])
            if message and message.kind == kind and message.seq >= seq:
                return time.monotonic() - began
        if waits and self.links[who] is link:
            self.silent.add(who)
        return float("nan")

    def _hear_all(self) -> None:
        """What those who were let in have said."""
        for who, link in self.links.items():
            for datagram in link.drain():
                self._hear(who, datagram)
        for at, link in self.watchers.items():
            for datagram in link.drain(1):
                self._watched(at, datagram)

    def _look(self) -> None:
        """Who stands at the door."""
        for _ in range(STRANGERS):
            if (got := self.door.receive_raw(0.0)) is None:
                return
            self._meet(*got)

    def _hear(self, who: str, datagram: bytes) -> Message | None:
        self.spoke[who] = time.monotonic()
        self.silent.discard(who)
        message = wire.decode(datagram)
        if message and message.kind == wire.HELLO:
            self.links[who].send(self.greeting)
        if message and message.kind == wire.BYE:
            self.left |= who == "operator"
        else:
            self.inbox.append(Heard(who, datagram))
        return message

    def _watched(self, at: Any, datagram: bytes) -> None:
        self.spoke[at] = time.monotonic()
        message = wire.decode(datagram)
        if message and message.kind == wire.HELLO:
            self.watchers[at].send(self.greeting)
        elif not message or message.kind != wire.BYE:
            self.inbox.append(Heard("watcher", datagram))

    def _meet(self, datagram: bytes, sender: Any) -> None:
        """Let in who comes with our spec, if there is a place, and answer."""
        known = next((who for who, link in self.links.items() if link.peer == sender), "")
        message = wire.decode(datagram)
        if known or sender in self.watchers:  # it came before its own socket was there
            # A greeting from then is older than the words on that, and would have them forgotten.
            if message is None or message.kind != wire.HELLO:
                self._hear(known, datagram) if known else self._watched(sender, datagram)
            return
        if message is None or message.kind != wire.HELLO:
            self.ignored["of strangers"] += 1
            return
        answer = self.greeting
        if message.flags & POLICY and not self._ours(message):
            self.inbox.append(Heard("policy", datagram))  # so that pilots are told
        if message.hash != self.spec.hash:  # who it is can see the difference, and tell it
            self.ignored["of other robots' own"] += 1
        elif message.flags & POLICY and not self._ours(message):
            why = "The bridge is of another artefact: start it and the policy with one file."
            answer = answer._replace(flags=REFUSED | OTHER, text=why)
        elif who := "policy" * bool(message.flags & POLICY) or "operator" * bool(
            message.flags & PILOT
        ):
            if not self._takes(who, datagram, sender):
                self.ignored["of others who would drive it"] += 1
                answer = answer._replace(flags=REFUSED, text=f"{WHO[who]}: one at a time.")
        elif len(self.watchers) < MOST_WATCHERS and (link := self._link(sender)):
            self.watchers[sender], self.spoke[sender] = link, time.monotonic()
        else:
            self.ignored["of watchers too many"] += 1
        self.door.answer(answer, sender)

    def _ours(self, message: Message) -> bool:
        """A policy of our artefact; one that says of no file what it is, is taken at its word."""
        same = not (message.seq and self.tag) or message.seq == self.tag
        return message.hash == self.spec.hash and same

    def _takes(self, who: str, greeting: bytes, sender: Any) -> bool:
        """Let in a policy or a pilot, unless there is one that is not silent."""
        before = self.links.get(who)
        awake = who not in self.silent and self.told - self.spoke.get(who, -np.inf) < SILENT_S
        if (before and awake) or not (link := self._link(sender)):
            return False
        if before:
            before.close()
        self.links[who] = link
        self._hear(who, greeting)
        return True

    def _link(self, sender: Any) -> Link | None:
        """One of its own; none of who is where nobody can be."""
        try:
            return self.door.beside(sender)
        except ValueError:
            return None


def unheard(link: Link) -> int:
    """Datagrams of `link` that were not read, and those that the kernel threw away meanwhile, as
    its buffer was full; of these 0 where it does not say."""
    unread, table = len(link.drain(MOST_UNREAD)), Path("/proc/net/udp")
    node = str(os.fstat(link.socket.fileno()).st_ino)
    rows = [line.split() for line in table.read_text().splitlines()] if table.exists() else []
    return unread + sum(int(row[-1]) for row in rows if row[9] == node)
