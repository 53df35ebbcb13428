"""What a robot may be in, and what leads from where to where: a table, so that all is tested.

Nobody gets from a hold or a fault back to moving but by an operator's word.
"""

from collections.abc import Mapping
from types import MappingProxyType

DISCONNECTED = "disconnected"  # the robot says nothing; nothing is sent
PASSIVE = "passive"  # damped
READY = "ready"  # goes from where it is to its rest, gains growing, and stands there
ARMED = "armed"  # follows the policy
INTERVENE = "intervene"  # follows a human
HOLD = "hold"  # stops where it is
FAULT = "fault"  # damped, until an operator clears it
STATES = DISCONNECTED, PASSIVE, READY, ARMED, INTERVENE, HOLD, FAULT
MOVING = ARMED, INTERVENE
DAMPED = DISCONNECTED, PASSIVE, FAULT  # or told nothing

# What the robot or a check brings about ...
CONNECT, DISCONNECT, PAUSE, FAIL = "connect", "disconnect", "pause", "fail"
# ... and what an operator asks for.
STAND, ARM, TAKE, GIVE, WAIT, RELAX, STOP, CLEAR = ASKED = (
    "stand", "arm", "take", "give", "wait", "relax", "stop", "clear",
)  # fmt: skip
EVENTS = CONNECT, DISCONNECT, PAUSE, FAIL, *ASKED

TABLE = {
    DISCONNECTED: {CONNECT: PASSIVE, DISCONNECT: DISCONNECTED, PAUSE: DISCONNECTED},
    PASSIVE: {DISCONNECT: DISCONNECTED, PAUSE: PASSIVE, STAND: READY, RELAX: PASSIVE},
    READY: {PAUSE: HOLD, ARM: ARMED, WAIT: HOLD, RELAX: PASSIVE},
    ARMED: {PAUSE: HOLD, TAKE: INTERVENE, WAIT: HOLD, RELAX: PASSIVE},
    INTERVENE: {PAUSE: HOLD, GIVE: ARMED, WAIT: HOLD, RELAX: PASSIVE},
    HOLD: {PAUSE: HOLD, STAND: READY, ARM: ARMED, WAIT: HOLD, RELAX: PASSIVE},
    FAULT: {PAUSE: FAULT, CLEAR: PASSIVE},
}
for _leads in TABLE.values():  # whatever it is in
    _leads |= {FAIL: FAULT, STOP: FAULT}


class Illegal(ValueError):
    """An event that a state does not know."""


def after(state: str, event: str) -> str:
    """The state that `event` leads to; `Illegal` if it leads nowhere."""
    if event not in TABLE[state]:
        raise Illegal(nowhere(state, event))
    return TABLE[state][event]


def nowhere(state: str, event: str, names: Mapping[str, str] = MappingProxyType({})) -> str:
    """That an event leads nowhere, and which do, by the names that their operator knows."""
    known = ", ".join(dict.fromkeys(names.get(x, x) for x in TABLE[state] if x in ASKED))
    what = names.get(event, repr(event))
    return f"{what} leads nowhere from {state}; an operator may say {known}."
