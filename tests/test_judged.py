"""A bridge's core before its referee: whatever is said to it, and with each check taken out.

The referee knows only what went over the wire to the robot and back (rl/bridge/referee.py).
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest

from benchmarks import adversaries
from benchmarks.adversaries import QUICK, WISHES
from rl.bridge import checks, limiter
from rl.bridge.limits import Limits
from rl.bridge.referee import Verdict, judge
from rl.bridge.states import ARM, ARMED, FAULT, PASSIVE, READY, STAND
from tests.rig import DT, Rig, body, go2, of

REST, TICKS = of("rest"), 5  # of the wire, in a period


class Judged(Rig):
    """A rig whose robot writes down what goes over its wire."""

    def __init__(self, limits: Limits = QUICK) -> None:
        super().__init__(limits, TICKS)
        self.lines: list[str] = []
        self.released: list[list[float]] = []
        hear, self.sent = self.core.hear, []

        def heard(source: str, datagram: bytes) -> None:
            self.sent += [datagram.hex()] * (source == "robot")
            hear(source, datagram)

        self.core.hear = heard  # type: ignore[method-assign]

    def tick(self, *args: Any, **more: Any) -> Any:
        before = self.core.state
        told = super().tick(*args, **more)
        if before == PASSIVE and told.state == READY:
            self.released.append([self.core.now, self.core.now])
        row = {"t": self.number, "time": self.core.now, "sent": self.sent, "reset": False}
        row["got"] = [told.datagram.hex()] if told.datagram else []
        self.lines.append(json.dumps(row))
        self.sent = []
        return told

    def verdict(self, *expect: tuple[str, float, float, float, str]) -> Verdict:
        names = "name", "from", "within", "until", "be"
        limits = asdict(self.core.setup.limits)
        header = {"spec": asdict(self.spec) | {"hash": self.spec.hash.hex()}, "limits": limits}
        header |= {"rate": TICKS / DT, "released": self.released}
        header["expect"] = [dict(zip(names, each, strict=True)) for each in expect]
        return judge([json.dumps(header), *self.lines])


def ready(limits: Limits = QUICK) -> Judged:
    """Armed, and following its policy."""
    rig = Judged(limits)
    events = {1: STAND, 120: ARM}
    for t in range(180):
        rig.tick(body(), REST, event=events.get(t, ""))
    assert rig.core.state == ARMED, rig.core.refused
    return rig


@pytest.mark.long
@pytest.mark.parametrize("name", WISHES)
def test_motors_hear_only_what_is_allowed(name: str) -> None:
    """In all ticks, of spells of fair and of other wishes, of many robots and rash operators."""
    rng = np.random.default_rng(sum(map(ord, name)))
    verdict, seen = adversaries.lived(go2(), TICKS, WISHES[name], rng, 5_000)
    assert verdict.violations == {}, verdict.first
    assert seen >= {PASSIVE, READY, ARMED, FAULT}
    assert verdict.limits["torque"] > 0.9 or name in ("no number", "misshapen", "nothing")


LIMITS = {"tracking": Limits(stand_s=0.3, blend_s=0.1, tracking=0.3, tracking_s=0.1)}
LONG = 60  # periods of a plan
ENDS = {  # what the wire is to be like, and after how many s
    "numbers": ("damped", 0.05), "state": ("safe", 0.13), "plan": ("damped", 0.7),
    "operator": ("safe", 0.25), "tracking": ("safe", 0.2), "link": ("safe", 0.6),
    "senses": ("damped", 0.01), "motors": ("damped", 0.01), "machine": ("safe", 0.05),
    "held": ("damped", 0.7), "kept": ("safe", 0.05),
}  # fmt: skip


def lived(name: str) -> Verdict:
    """One thing goes wrong 0.1 s after a robot was armed: what the referee says of it."""
    rig = ready(LIMITS.get(name, QUICK))
    begins = rig.core.now + 0.1
    for t in range(400):
        waves = 0.02 * np.sin(9 * rig.core.now + np.arange(LONG)[:, None] * 9 * DT)
        told: Any = body(speeds=1.0)  # which is not standing still
        wish, more = REST + (waves if name == "state" else waves[:1]), {}
        if (since := t * DT / TICKS - 0.1) > 0:
            told = TOLD[name](since) if name in TOLD else told
            wish = WISHED.get(name, same)(wish)
            more = MORE.get(name, {})
            rig.seq += 2 * (name == "link")
        rig.tick(told, wish, **more)
    be, within = ENDS.get(name, ("", 0.0))
    return rig.verdict(*[(name, begins, within, begins + 1.0, be)] * bool(be))


Change = Callable[[Any], Any]
same: Change = lambda x: x  # noqa: E731
TOLD: dict[str, Change] = {  # so many s after it began
    "state": lambda since: None,
    "tilt": lambda since: body(quat=(1, 1, 0, 0)),
    "joints": lambda since: body(REST + min(since / 0.3, 1) * (of("high") + 0.15 - REST), 9.0),
    "senses": lambda since: body(REST + 0.4 * (np.arange(12) == 4)),
    "numbers": lambda since: body(np.full(12, np.nan)),
}
JUMP = 0.9 * (np.arange(12) % 3 == 1)
WISHED: dict[str, Change] = {
    "plan": lambda wish: None,
    "held": lambda wish: None,
    "position": lambda wish: wish + 9.0,
    "tracking": lambda wish: wish + 0.4,
    "pace": lambda wish: wish + JUMP,
    "torque": lambda wish: wish + JUMP,
}
MORE: dict[str, dict[str, Any]] = {
    "operator": {"operator": False}, "machine": {"late": 0.02}, "motors": {"failed": True},
    "kept": {"kept": False},
}  # fmt: skip
RULES = {"tilt": "tilt", "joints": "beyond", "position": "range", "pace": "speed"}
EACH = [part.__name__ for part in (*checks.CHECKS, *limiter.STAGES)]


@pytest.mark.parametrize("name", EACH)
def test_without_a_check_its_referee_sees_what_it_was_for(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = lived(name)
    assert verdict.violations == {}, verdict.first
    left = {check: why for check, why in checks.CHECKS.items() if check.__name__ != name}
    stages = {stage: why for stage, why in limiter.STAGES.items() if stage.__name__ != name}
    assert len(left) + len(stages) == len(EACH) - 1
    monkeypatch.setattr(checks, "CHECKS", left)
    monkeypatch.setattr(limiter, "STAGES", stages)
    broken = RULES.get(name, "torque" if name == "torque" else f"expect: {name}")
    assert broken in lived(name).violations
