"""When a tick begins: by this machine's clock, at times fixed beforehand, or by a robot's word."""

import contextlib
import ctypes
import gc
import os
import select
import time
from typing import NamedTuple, Protocol

import numpy as np

from rl.bridge import wire
from rl.bridge.wire import Link, Message
from rl.spec import Spec

BEHIND_S = 0.003  # behind a state, that a tick is to begin
FOLLOWS = 0.1  # share of what it is off by, that a tick moves towards that
SPIN_S = 250e-6  # before a tick, in which it does not sleep: a sleep may end that much late
PRIORITY = {"bridge": 50, "policy": 40, "robot": 30}  # of 1 to 99; a robot that is simulated
MCL_CURRENT, MCL_FUTURE = 1, 2


class Tick(NamedTuple):
    number: int
    now: float  # s since the first
    late: float  # s


class Clock(Protocol):
    missed: int  # ticks that were left out

    def wait(self) -> Tick | None:
        """The next tick; None where there will be none."""
        ...

    def done(self) -> None:
        """All that a tick leads to has been sent."""
        ...


class Real:
    """Ticks at t0 + k dt.  One that is missed is left out, so that there is never a burst."""

    def __init__(self, dt: float) -> None:
        self.dt, self.number, self.missed = dt, -1, 0
        self.t0 = 0.0  # when the first is due

    def wait(self) -> Tick:
        self.number += 1
        if not self.t0:
            self.t0 = time.monotonic()
        late = time.monotonic() - self._due
        if late > self.dt:
            gone = int(late / self.dt)
            self.number, self.missed = self.number + gone, self.missed + gone
        if (left := self._due - time.monotonic() - SPIN_S) > 0:
            time.sleep(left)
        while (now := time.monotonic()) < self._due:
            pass
        # Who skipped ticks is as late as the first of them.
        return Tick(self.number, self.number * self.dt, max(now - self._due, late))

    def done(self) -> None: ...

    @property
    def _due(self) -> float:
        return self.t0 + self.number * self.dt


class Paced(Real):
    """Ticks that follow a robot's own, where a state comes but once a period of the policy: just
    behind its states, which would else wait for up to a period."""

    def __init__(self, dt: float, states: Link) -> None:
        super().__init__(dt)
        self.states = states

    def wait(self) -> Tick:
        if self.t0:
            # By when the next is due, a state is to have been there for a while.
            left = self._due + self.dt - time.monotonic()
            came = bool(select.select([self.states.socket], [], [], max(left - SPIN_S, 0.0))[0])
            early = self._due + self.dt - time.monotonic()
            self.t0 -= FOLLOWS * (early - BEHIND_S) if came else -FOLLOWS * BEHIND_S
        return super().wait()


class LockStep:
    """Ticks as a simulated robot calls them; its time stands still until they are done."""

    def __init__(self, spec: Spec, robot: tuple[str, int], patience: float) -> None:
        self.link, self.patience = Link(("0.0.0.0", 0), robot), patience
        self.token: Message | None = None
        self.missed = 0
        self.link.send(wire.hello(spec)._replace(flags=wire.WAITS))

    def wait(self) -> Tick | None:
        until = time.monotonic() + self.patience
        while (left := until - time.monotonic()) > 0:
            got = self.link.receive(left)
            if got and got[0].kind == wire.BYE:
                return None
            if got and got[0].kind == wire.TOKEN:
                self.token = got[0]
                return Tick(self.token.seq, self.token.time, 0.0)
        return None

    def done(self) -> None:
        if self.token:
            self.link.send(self.token._replace(numbers=np.zeros(0, "<f4")))


def steady() -> list[str]:
    """Make this process as punctual as it may be; what was granted."""
    granted = []
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing in a tick is a cycle
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(MCL_CURRENT | MCL_FUTURE) == 0:
        granted.append("memory locked")
    return granted + [f"SCHED_FIFO {PRIORITY['bridge']}"] * urgent("bridge")


def urgent(who: str) -> bool:
    """Have this thread run before all that is less so (PRIORITY); whether that was granted."""
    with contextlib.suppress(OSError, AttributeError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY[who]))
        return True
    return False
