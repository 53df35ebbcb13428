"""Who drives a robot: tells a bridge what is asked of it, at each word of how it is.

It may be anything that makes a `Word` of a `Status`: a script here, a human in rl/bridge/keys.py.
"""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from rl.bridge import messages, states, wire
from rl.bridge.checks import Reason, said
from rl.bridge.desk import PILOT
from rl.bridge.greeting import check_hello
from rl.bridge.messages import Operator, Status
from rl.bridge.refusals import NOTHING, RISING
from rl.bridge.wire import REFUSED, Link
from rl.spec import Spec

PATIENCE = 20.0  # s for a bridge to answer
GONE_S = 10.0  # s of its silence, in which a simulated robot may stand still
SILENT_S = 0.5  # s of it after which who drives is told
AGAIN_S = 0.2  # s between two tries to be armed
TRIES = 25  # that a script has, but for those on the way to its rest
UNTOLD = "moves if it is told to: --command, --script, --keys, --gamepad or --spacemouse."

Asked = Callable[[float], np.ndarray]  # the command [C] at a time, s


class Word(NamedTuple):
    event: str = ""  # of states.ASKED
    command: np.ndarray | None = None  # [C]; None: zeros
    jog: np.ndarray | None = None  # [A]
    deadman: bool = False
    leaves: bool = False  # it has nothing more to say
    why: str = ""  # it could not go on
    action: np.ndarray | None = None  # [D] in the place of a policy that learns; None: zeros
    over: int = 0  # the episode that is over, as a status counts them
    done: bool = False  # and what was to be done in it is


class Source(Protocol):
    def word(self, status: Status) -> Word: ...


class Pilot:
    """Speaks to a bridge over `link` for a source of words."""

    def __init__(self, spec: Spec, link: Link) -> None:
        self.spec, self.link = spec, link
        self.seq = self.number = 0

    def meet(self, patience: float = PATIENCE) -> None:
        """Greet the bridge until it answers; ValueError if it does not, or refuses."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            self.greet()
            if (got := self.link.receive(0.2)) and got[0].kind == wire.HELLO:
                if got[0].flags & REFUSED:
                    raise ValueError(got[0].text)
                check_hello(self.spec, got[0], "The bridge")
                return
        at = "{}:{}".format(*self.link.peer or ())
        raise ValueError(
            f"No bridge answered at {at} within {patience:g} s: start one with run --desk, which "
            "says where it is."
        )

    def greet(self) -> None:
        self.link.send(wire.hello(self.spec)._replace(flags=PILOT))

    def live(
        self, source: Source, alive: Callable[[], bool] = lambda: True,
        silent: Callable[[float], bool] = lambda seconds: False,
    ) -> str:  # fmt: skip
        """Until the bridge or the source has nothing more to say, or it is not alive; how it ended.
        ValueError of a source that could not go on.  Who is to be told of a bridge's silence, for
        how long it has been, says whether to leave."""
        heard = time.monotonic()
        while alive():
            got = self.link.receive(0.05)
            now = time.monotonic()
            if got and got[0].kind == wire.BYE:
                return "gone"
            status = messages.status_of(self.spec, got[0]) if got else None
            if status is None:
                if now - heard > GONE_S:
                    return "lost"
                if now - heard > SILENT_S and silent(now - heard):
                    return "left"
                continue
            heard = now
            word = source.word(status)
            self.say(word, status)
            if word.why:
                raise ValueError(word.why)
            if word.leaves:
                return "left"
        return "lost"

    def say(self, word: Word, status: Status) -> None:
        self.seq = max(self.seq + 1, status.tick)
        self.number += bool(word.event)
        event = states.ASKED.index(word.event) if word.event else -1
        command = np.zeros(len(self.spec.command)) if word.command is None else word.command
        jog = np.zeros(len(self.spec.actuators)) if word.jog is None else word.jog
        action = np.zeros(len(self.spec.action)) if word.action is None else word.action
        said = Operator(self.seq, event, self.number, word.deadman, command, jog, action, word.over,
                        word.done)  # fmt: skip
        self.link.send(messages.operator_message(self.spec, said, status.time))

    def bye(self) -> None:
        self.link.send(wire.goodbye(self.spec))


class Script:
    """Has a robot stand, arms it, and asks what a script says until it ends.

    A simulated robot's episodes begin armed: times are then the robot's.
    """

    def __init__(self, asked: Asked, seconds: float, said: bool = True) -> None:
        """Where it was not `said` that it drives, no robot is made to stand."""
        self.asked, self.seconds, self.said = asked, seconds, said
        self.since: float | None = None  # when it was armed
        self.tried, self.failed = -np.inf, 0

    def silent(self, seconds: float) -> bool:
        return False

    def word(self, status: Status) -> Word:
        t = status.time
        if status.episodes:
            return Word(command=self.asked(t))
        if not self.said:
            return Word(why=f"The robot {UNTOLD}")
        if status.state == states.ARMED:
            self.since = t if self.since is None else self.since
            ran = t - self.since
            over = ran >= self.seconds
            return Word(states.WAIT if over else "", self.asked(ran), leaves=over)
        if self.since is not None or status.state == states.FAULT:
            why = "" if status.why == Reason.ASKED else f"It was stopped: {said(status.why)}."
            return Word(leaves=True, why=why)
        if t - self.tried < AGAIN_S:
            return Word()
        self.tried = t
        held = status.state == states.HOLD and status.why != Reason.ASKED
        self.failed += held or status.refused.why not in (NOTHING, RISING)
        if self.failed > TRIES:
            return Word(why=status.refused.text or f"It was held again and again: "
                        f"{said(status.why)}.")  # fmt: skip
        again = {states.PASSIVE: states.STAND, states.HOLD: states.STAND, states.READY: states.ARM}
        return Word(again.get(status.state, ""))
