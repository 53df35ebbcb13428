"""Where a policy and operators come to a bridge: one UDP socket, and who is who on it."""

import time
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import wire
from rl.bridge.messages import Status, status_message
from rl.bridge.wire import REFUSED, Link, Message
from rl.spec import Spec

POLICY, PILOT, WATCHER = 64, 128, 256  # flags of a greeting
SILENT_S = 1.0  # of a pilot, after which another may take over
MOST_WATCHERS = 16


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
        self.spec, self.link, self.tag = spec, Link(bind), tag
        self.hello = wire.hello(spec)  # once: it is too long to be written in a tick
        self.patience: dict[str, float] = dict(zip(("policy", "operator"), patience, strict=True))
        self.policy: Any = None  # addresses
        self.pilot: Any = None
        self.watchers: dict[Any, float] = {}  # and when they spoke last
        self.spoke: dict[str, float] = {}
        self.silent: set[str] = set()
        self.inbox: list[Heard] = []
        self.left = False  # the pilot said goodbye

    @property
    def pilot_silent(self) -> float:
        """s since the pilot spoke."""
        return time.monotonic() - self.spoke.get("operator", -np.inf)

    def gather(self, policy: float, pilot: float) -> None:
        """Wait so many s for a policy, and for a pilot; ValueError if one does not come."""
        began = time.monotonic()
        while not (self.policy and self.pilot):
            who, timeout = ("pilot", pilot) if self.policy else ("policy", policy)
            if (left := began + timeout - time.monotonic()) <= 0:
                raise ValueError(f"No {who} came within {timeout:g} s.")
            if got := self.link.receive_raw(min(left, 1.0)):
                self._sort(*got)
            self.inbox = [*dict.fromkeys(self.inbox)]  # a policy greets again and again

    def collect(self) -> list[Heard]:
        """All that came since the last call."""
        for _ in range(wire.DRAINED):
            if (got := self.link.receive_raw(0.0)) is None:
                break
            self._sort(*got)
        inbox, self.inbox = self.inbox, []
        return inbox

    def ask(self, datagram: bytes, waits: bool, period: int, budget: float) -> float:
        """Put a question to the policy; s until it was answered, NaN if that took longer."""
        peer = "policy", self.policy
        return self._put(
            *peer, datagram, wire.PLAN, period, self._patience("policy", waits, budget)
        )

    def tell(self, status: Status) -> None:
        """Say how it is to who drives it, and to watchers."""
        datagram = wire.encode(status_message(self.spec, status))
        now = time.monotonic()
        self.watchers = {at: when for at, when in self.watchers.items() if now - when < 10}
        for watcher in self.watchers:
            self._send(watcher, datagram)
        wait = self._patience("operator", status.waits, 0.0)
        self._put("operator", self.pilot, datagram, wire.OPERATOR, status.tick, wait)

    def bye(self, lost: bool) -> None:
        message = Message(wire.BYE, wire.LOST * lost, self.spec.hash, 0, 0.0, np.zeros(0, "<f4"))
        for peer in (self.policy, self.pilot, *self.watchers):
            if peer:
                self._send(peer, wire.encode(message))

    def _patience(self, who: str, waits: bool, budget: float) -> float:
        return self.patience[who] if waits and who not in self.silent else budget

    def _put(
        self, who: str, peer: Any, datagram: bytes, kind: int, seq: int, timeout: float
    ) -> float:
        if peer is None:
            return float("nan")
        began = time.monotonic()
        self._send(peer, datagram)
        while (left := began + timeout - time.monotonic()) > 0:
            if (got := self.link.receive_raw(left)) and self._sort(*got) == who:
                message = wire.decode(got[0])
                if message and message.kind == kind and message.seq >= seq:
                    return time.monotonic() - began
        self.silent.add(who)  # only in lock step does that matter
        return float("nan")

    def _sort(self, datagram: bytes, sender: Any) -> str:
        """Put a datagram into the inbox; whose it is, "" if nobody's."""
        message = wire.decode(datagram)
        if message and message.kind == wire.HELLO:
            self._greet(message, sender)
        who = {self.policy: "policy", self.pilot: "operator"}.get(sender, "")
        who = who or ("watcher" if sender in self.watchers else "")
        if not who:
            return ""
        self.spoke[who] = time.monotonic()
        self.silent.discard(who)
        if who == "watcher":
            self.watchers[sender] = self.spoke[who]
        if message and message.kind == wire.BYE:
            self.left |= who == "operator"
        elif not message or message.kind != wire.HELLO or who != "watcher":
            self.inbox.append(Heard(who, datagram))
        return who

    def _greet(self, message: Message, sender: Any) -> None:
        """Let in who comes with our spec, and answer."""
        answer, now = self.hello, time.monotonic()
        recent = self.pilot_silent < SILENT_S
        if message.flags & POLICY and not self._ours(message):
            self.inbox.append(Heard("policy", wire.encode(message)))  # so that pilots are told
            if message.hash == self.spec.hash:
                why = "The bridge is of another artefact: start it and the policy with one file."
                answer = answer._replace(flags=REFUSED, text=why)
        elif message.hash != self.spec.hash:
            pass  # who it is can see the difference, and tell it
        elif message.flags & POLICY:
            self.policy = sender
        elif message.flags & PILOT and self.pilot not in (None, sender) and recent:
            why = "Somebody else drives this robot: one at a time."
            answer = answer._replace(flags=REFUSED, text=why)
        elif message.flags & PILOT:
            self.pilot = sender
        elif sender in self.watchers or len(self.watchers) < MOST_WATCHERS:
            self.watchers[sender] = now
        self._send(sender, wire.encode(answer))

    def _ours(self, message: Message) -> bool:
        """A policy of our artefact; one that says of no file what it is, is taken at its word."""
        same = not (message.seq and self.tag) or message.seq == self.tag
        return message.hash == self.spec.hash and same

    def _send(self, peer: Any, datagram: bytes) -> None:
        self.link.peer = peer
        self.link.send_raw(datagram)
