"""The policy in its own process: a state comes in, a limited command goes out."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rl.artefact import Deployed
from rl.bridge import wire
from rl.bridge.limiter import RUN, Limiter, Limits
from rl.bridge.wire import Link, State
from rl.spec import Spec

PATIENCE = 10.0  # s that a robot may take to answer the first greeting, or a step in lock step
ROUNDING = 1e-6  # of a command that was float32
LOST_S = 2.0  # s of silence after which a robot is given up

Operator = Callable[[float], np.ndarray]  # the command [C] at the robot's time, s


@dataclass
class Tally:
    """What a run came to."""

    ticks: int = 0
    limited: int = 0  # ticks whose targets were not those wished for
    late: int = 0  # ticks with no new state to act on
    why: str = ""  # the last reason that the policy was not followed
    took: list[float] = field(default_factory=list)  # s, of each tick


class Runner:
    """Follows a policy over `link` until the robot says goodbye, or falls silent."""

    def __init__(self, policy: Deployed, link: Link, operator: Operator, limits: Limits) -> None:
        self.policy, self.link, self.operator = policy, link, operator
        self.limiter, self.tally = Limiter(policy.spec, limits), Tally()

    def meet(self) -> None:
        """Greet the robot until it answers; ValueError if it is not of the policy's spec."""
        spec, until = self.policy.spec, time.monotonic() + PATIENCE
        while time.monotonic() < until:
            self.link.send(wire.hello(spec))
            if (got := self.link.receive(0.2)) and got[0].kind == wire.HELLO:
                wire.check_hello(spec, got[0], "The robot")
                return
        at = self.link.peer and "{}:{}".format(*self.link.peer)
        raise ValueError(
            f"No robot answered at {at} within {PATIENCE:.0f} s: start it first, or say where it "
            "is with --robot. One that follows another policy does not answer."
        )

    def run(self) -> str:
        """How it ended."""
        heard = tick = time.monotonic()
        last = None
        while True:
            # In lock step the robot's time stands still, and its states do not age.
            waits = last is not None and last.waits
            dt, lost = (PATIENCE, PATIENCE) if waits else (self.policy.spec.control_dt, LOST_S)
            got = self.link.receive(max(tick + dt - time.monotonic(), 0.0))
            now = time.monotonic()
            if got and got[0].kind == wire.BYE:
                return "given up" if got[0].flags & wire.LOST else "done"
            state = wire.state_of(self.policy.spec, got[0]) if got else None
            # Datagrams may come twice or out of order: only what is newer is a state.
            if state and (last is None or state.seq > last.seq or state.reset):
                last, heard, tick = state, now, now
                self._act(state, age=0.0)
            elif now >= tick + dt:
                tick = now
                if last is not None and not waits:
                    self._act(last, age=now - heard)
                if now - heard >= lost:
                    return "lost"

    def _act(self, state: State, age: float) -> None:
        began = time.perf_counter()
        if state.reset and not age:
            self.policy.reset()
            self.limiter.reset()
        asked = self._asked(state.time)
        # A stale state is not acted upon twice: the policy's memory would count it again.
        wished = self.limiter.targets if age else self.policy.step(state.readings, asked)
        command = self.limiter.tick(state.seq, wished, state.readings, age, asked)
        self.link.send(wire.command_message(self.policy.spec, command, state.time))
        self.tally.ticks += 1
        self.tally.took.append(time.perf_counter() - began)
        self.tally.late += age > 0
        followed = self.limiter.mode == RUN
        if not followed or np.abs(command.targets - wished).max() > 1e-6:
            self.tally.limited += 1
            limits = "limits of position, motion or torque"
            self.tally.why = limits if followed else self.limiter.why

    def _asked(self, t: float) -> np.ndarray:
        """The operator's command, within its range."""
        low, high = (np.array([getattr(c, k) for c in self.policy.spec.command])
                     for k in ("low", "high"))  # fmt: skip
        return np.clip(np.nan_to_num(self.operator(t)), low, high).astype(np.float32)


def constant(spec: Spec, numbers: tuple[float, ...]) -> Operator:
    """The same command for ever; none is zero."""
    if numbers and not spec.command:
        raise ValueError(f"{spec.name} takes no command: leave --command out.")
    if numbers and len(numbers) != len(spec.command):
        names = " ".join(channel.name.replace(" ", "-") for channel in spec.command)
        raise ValueError(f"--command has {len(numbers)} numbers; it needs {names}.")
    value = np.array(numbers or (0.0,) * len(spec.command))
    if not numbers and any(not channel.low <= 0 <= channel.high for channel in spec.command):
        told = ", ".join(f"{c.name} {c.low:g} to {c.high:g} {c.unit}" for c in spec.command)
        raise ValueError(f"{spec.name} needs a --command or a --script: {told}.")
    _check_range(spec, value, "--command")
    return lambda t: value


def script(spec: Spec, path: Path) -> Operator:
    """Commands of a CSV file without a head: from which time on, s, and the numbers."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"There is no script to read in {path}: {why}.") from None
    names = ", ".join(("time", *(channel.name for channel in spec.command)))
    rows: list[list[float]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        where, row = f"Line {number} of {path}", _numbers(line)
        if len(row) != 1 + len(spec.command):
            raise ValueError(
                f"{where} is {line[:40]!r}; it needs these numbers, with commas between: {names}."
            )
        if not 0 <= row[0] < np.inf:
            raise ValueError(f"{where} has a time that is no finite number from 0 on.")
        if rows and row[0] <= rows[-1][0]:
            raise ValueError(f"{where} is no later than the line before.")
        _check_range(spec, np.array(row[1:]), where)
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} is empty; its lines need these numbers: {names}.")
    found = np.array(rows)
    times, values = found[:, 0] - 1e-6, found[:, 1:]  # a time on a tick is that tick's
    none = np.zeros(len(spec.command))

    def at(t: float) -> np.ndarray:
        i = int(np.searchsorted(times, t, side="right")) - 1
        return values[i] if i >= 0 else none

    return at


def _numbers(line: str) -> list[float]:
    """Those of a line of a CSV file; none if something else is there."""
    try:
        return [float(x) for x in line.split(",")]
    except ValueError:
        return []


def _check_range(spec: Spec, numbers: np.ndarray, whose: str) -> None:
    """Raise unless a policy was trained to be told these numbers [C]."""
    for channel, x in zip(spec.command, numbers, strict=True):
        if not channel.low - ROUNDING <= x <= channel.high + ROUNDING:
            raise ValueError(
                f"{whose} asks for {x:g} {channel.unit} of {channel.name}; "
                f"it goes from {channel.low:g} to {channel.high:g}."
            )
