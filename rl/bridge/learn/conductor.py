"""Has a robot do its task again and again, with a human at hand or without.

It speaks for who drives it: passes on a human's words, says when an episode is over, brings the
robot back to where the next begins, and holds it where learning has stopped.
"""

import contextlib
import json
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rl.bridge import states
from rl.bridge.checks import Reason
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.messages import Status
from rl.bridge.pilot import AGAIN_S, TRIES, Word
from rl.bridge.source import Driver
from rl.spec import Spec

DONE = 0.5  # how sure a policy's program must be that what is to be done is done
REACTS_S = 0.3  # s into an episode in which a human still speaks of the one before
SILENT_S = 2.0  # of who keeps its steps, after which it is held
LOOKS_S = 0.2  # between two looks at its account
SAYS_S = 60.0  # between two lines of how it goes
TROUBLED_S = 3.0  # s of a learner's refusal, or its absence, after which that is said
LEADS = {states.PASSIVE: states.STAND, states.HOLD: states.STAND, states.READY: states.ARM}
# A human's words that end an episode; nothing but a human's leads on from there.
ENDS = states.STOP, states.RELAX, states.WAIT


@dataclass(frozen=True)
class Practice:
    """What is done again and again."""

    seconds: float = 8.0  # of an episode, at most
    episodes: int = 0  # after which it ends; 0: when it is told to
    demos: int = 0  # episodes that a human does, to begin with
    checkpoints: Path | None = None  # a CSV file of commands: from each it goes on to the next
    retreat: Path | None = None  # a CSV file of actions, a line each, by which it leaves a place
    stale_s: float = 600.0  # s of a learner's silence after which it is held

    def check(self) -> None:
        if not 0 < self.seconds <= 3600:
            raise ValueError(
                f"--practice.seconds is {self.seconds:g}; it takes a time above 0 s, and up to an "
                "hour."
            )
        if self.episodes < 0:
            raise ValueError(f"--practice.episodes is {self.episodes}; it takes a count.")
        if self.demos < 0:
            raise ValueError(f"--practice.demos is {self.demos}; it takes a count.")
        if not self.stale_s > 0:
            raise ValueError(f"--practice.stale-s is {self.stale_s:g}; it takes a time above 0 s.")


class Count(NamedTuple):
    """What came of it so far."""

    episodes: int = 0
    done: int = 0
    steps: int = 0
    by_human: int = 0

    def __str__(self) -> str:
        share = self.by_human / max(self.steps, 1)
        return f"{self.episodes}, {self.done} of them done, {share:.0%} of their steps by a human"


class Conductor:
    def __init__(
        self, spec: Spec, practice: Practice, folder: Path, human: Driver | None = None,
        keeps: Callable[[], bool] = lambda: True,
    ) -> None:  # fmt: skip
        """`folder` is where who keeps its steps says how that goes; whether it `keeps` on."""
        practice.check()
        self.practice, self.folder, self.human, self.keeps = practice, folder, human, keeps
        self.commands = lines(practice.checkpoints, len(spec.command), "numbers of the command")
        self.retreat = lines(practice.retreat, len(spec.action), "numbers of an action")
        self.count, self.begun, self.since, self.tick = Count(), 0, 0.0, -1
        self.over, self.leaves = False, 0  # this episode is; how many actions it has left the place
        self.done = False  # and a human said that what was to be done is
        self.tried, self.failed = -np.inf, 0
        self.shows = False  # a human was given it, to show how
        self.rests = False  # a human had it rest
        self.looked, self.account, self.said = -np.inf, dict[str, Any](), ""
        self.heard, self.since_heard = "", np.inf  # of why no learner is there, and since when
        self.told = time.monotonic()  # when how it goes was said last

    def silent(self, seconds: float) -> bool:
        return bool(self.human and self.human.silent(seconds))

    def word(self, status: Status) -> Word:
        said = self.human.word(status) if self.human else Word()
        self.rests = said.event in ENDS or (self.rests and said.event != states.ARM)
        if said.leaves or said.why or said.event in ENDS:
            return said
        if len(self.commands):
            said = said._replace(command=self.commands[self.count.episodes % len(self.commands)])
        if self._troubled():
            moving = status.state in (states.READY, *states.MOVING)
            return said._replace(event=states.WAIT if moving else "", action=None)
        self._follow(status, said)
        if 0 < self.practice.episodes <= self.count.episodes:
            return Word(leaves=True)
        if status.state in states.MOVING:
            return self._moving(status, said)
        if self.rests:
            return said
        if status.episodes:
            return said._replace(over=status.begun)  # the next begins armed
        if said.event:
            self.tried = status.time  # it is on its way
            return said
        return said._replace(event=self._going(status))

    def _troubled(self) -> bool:
        """Whether it is to be held; why is said once, whatever numbers it has."""
        why, before = self._trouble(), self.said
        self.said = re.sub(r"\d", "", why)
        if why and self.said != before:
            say(f"held     {why}")
        return bool(why)

    def _trouble(self) -> str:
        now = time.monotonic()
        if now - self.looked > LOOKS_S:
            self.looked = now
            # It may not be there yet, or no more: what was said last grows old.
            with contextlib.suppress(OSError, ValueError):
                self.account = json.loads((self.folder / ACCOUNT).read_text())
            over = self.account.get("over", "")
            self._hear("" if over else self.account.get("trouble", ""), now)
            self._tell(now)
        if not self.keeps():
            return "who keeps its steps has ended: end this, and say the same again"
        if now - self.account.get("at", -np.inf) > SILENT_S:
            return "who keeps its steps is silent"
        if self.account["turned_away"]:
            return f"the learner refuses it: {self.account['turned_away']}"
        if over := self.account.get("over", ""):
            return f"the learner is done: {over}"
        if self.account["learner_silent_s"] > self.practice.stale_s:
            return "the learner is silent"
        return self.account["full"]

    def _hear(self, trouble: str, now: float) -> None:
        """Say once what keeps it from its learner, where that lasts: it practises on meanwhile."""
        if trouble != self.heard:
            if self.heard and not trouble and self.since_heard == np.inf:  # it was said
                say("learner  is there again")
            self.heard, self.since_heard = trouble, now
        if trouble and now - self.since_heard > TROUBLED_S:
            self.since_heard = np.inf
            say(f"learner  {trouble}")

    def _tell(self, now: float) -> None:
        """Say now and then how it goes, for who waits hours for it to end."""
        if now - self.told < SAYS_S:
            return
        self.told, facts = now, self.account
        learner = ""
        if (silent := facts.get("learner_silent_s", 0.0)) > SAYS_S:
            learner = f"; the learner is silent for {silent:.0f} s"
        left = facts.get("pending", 0)
        say(f"episodes {self.count}; {left:,} steps are not at the learner yet{learner}")

    def _follow(self, status: Status, said: Word) -> None:
        """Count what has begun, and what is over."""
        if status.state not in states.MOVING or status.tick == self.tick:
            return
        if status.begun != self.begun:
            self.begun, self.since, self.over, self.leaves = status.begun, status.time, False, 0
            self.tried, self.done = -np.inf, False
        self.tick = status.tick
        if self.over:
            return
        lasted = status.time - self.since
        reacts = lasted >= REACTS_S  # what is said before is of the episode before
        self.done = said.done and reacts
        done = self.done or bool(status.own and status.own.done >= DONE)
        failed = reacts and said.over == status.begun
        self.over = done or failed or lasted >= self.practice.seconds
        acts, count = status.state == states.INTERVENE, self.count
        self.count = Count(
            count.episodes + self.over, count.done + done, count.steps + 1, count.by_human + acts
        )

    def _moving(self, status: Status, said: Word) -> Word:
        """What is said to one that moves."""
        if not self.over:
            return self._shown(status, said._replace(over=0, done=False))
        said = said._replace(over=status.begun, done=self.done)
        if status.episodes:
            return said
        if len(self.commands):
            self.over, self.since = False, status.time  # on to the next
            return said
        if self.leaves < len(self.retreat):
            self.leaves += 1
            take = states.TAKE if status.state == states.ARMED else ""
            action = self.retreat[self.leaves - 1]
            return said._replace(event=take, action=action, deadman=True)
        return said._replace(event=states.WAIT)

    def _shown(self, status: Status, said: Word) -> Word:
        """A human's words, in whose hands a demonstration is from its beginning to its end."""
        demo, event = self.count.episodes < self.practice.demos, said.event
        if demo:
            event = "" if event in (states.TAKE, states.GIVE) else event
            if status.state == states.ARMED and status.time - self.tried >= AGAIN_S:
                self.tried, event = status.time, event or states.TAKE
        elif self.shows and status.state == states.INTERVENE:
            event = event or states.GIVE  # to the next checkpoint it goes by itself
        self.shows = demo
        return said._replace(event=event)

    def _going(self, status: Status) -> str:
        """What leads on from where it is; nothing where only a human may."""
        if status.time - self.tried < AGAIN_S:
            return ""
        self.tried = status.time
        self.failed += status.state == states.HOLD and status.why != Reason.ASKED
        return "" if self.failed > TRIES else LEADS.get(status.state, "")


def say(text: str) -> None:
    """Print a line, in the place of a status that a terminal shows."""
    print(f"\r\x1b[K{text}" if sys.stdout.isatty() else text, flush=True)


def lines(path: Path | None, size: int, what: str) -> np.ndarray:
    """Rows [n, size] of a CSV file; none of no file."""
    if path is None:
        return np.zeros((0, size))
    try:
        rows = np.loadtxt(path, delimiter=",", ndmin=2)
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}.") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is no CSV file of numbers: {error}.") from error
    if not rows.size or rows.shape[1] != size or not np.isfinite(rows).all():
        raise ValueError(f"{path} needs lines of {size} {what} each.")
    return rows
