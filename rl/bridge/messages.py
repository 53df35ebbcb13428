"""What a bridge, its policy and its operators say to each other, in frames of rl/bridge/wire.py."""

from typing import NamedTuple, TypeGuard

import numpy as np

from rl.bridge.refusals import Refused, refused
from rl.bridge.states import ASKED, STATES
from rl.bridge.wire import ASK, EPISODES, OPERATOR, PLAN, RESET, STATUS, WAITS, Message, by_name
from rl.spec import Spec

NAN = float("nan")
DEADMAN = 1  # flag of an operator's message: the hand is on it


class Ask(NamedTuple):
    """What a policy is to answer with a plan."""

    period: int
    time: float  # s since the bridge began
    readings: dict[str, np.ndarray]
    command: np.ndarray  # [C]
    reset: bool  # forget all that was
    waits: bool = False


class Plan(NamedTuple):
    """Targets of periods from `first` on."""

    first: int
    targets: np.ndarray  # [n, A]


class Operator(NamedTuple):
    """What who drives it asks for, said again and again."""

    seq: int
    event: int  # of states.ASKED; -1 for none
    number: int  # of the event: it happens once, however often it is said
    deadman: bool
    command: np.ndarray  # [C]
    jog: np.ndarray  # [A] rad/s or m/s, in the place of a policy


class Loop(NamedTuple):
    """How a bridge keeps up."""

    late: float = 0.0  # s, the latest tick since it last said so
    missed: float = 0.0  # ticks that were left out, in all
    took: float = NAN  # s, the last answer of the policy; NaN if it was not asked, or was too late
    unanswered: float = 0.0  # questions that were not answered at once, in all
    loss: float = 0.0  # share of the robot's states


class Status(NamedTuple):
    """How a robot and its bridge are."""

    tick: int
    time: float
    state: str
    why: int  # Reason, of the last change of state
    mask: int  # of this tick
    number: int  # of the last event that was heard
    readings: dict[str, np.ndarray]
    targets: np.ndarray  # [A]
    waits: bool = False
    asked: np.ndarray | None = None  # [C], of the robot; None: zeros
    loop: Loop = Loop()
    episodes: bool = False  # of a simulated robot, which begin armed
    refused: Refused = Refused()  # of what was asked for last


def ask_message(spec: Spec, ask: Ask) -> Message:
    numbers = np.concatenate([*(ask.readings[s.name] for s in spec.sensors), ask.command])
    flags = RESET * ask.reset | WAITS * ask.waits
    return Message(ASK, flags, spec.hash, ask.period, ask.time, numbers.astype("<f4"))


def ask_of(spec: Spec, message: Message | None) -> Ask | None:
    sizes = sum(sensor.size for sensor in spec.sensors)
    if not _fits(message, spec, ASK, sizes + len(spec.command)):
        return None
    readings, command = by_name(spec, message.numbers[:sizes]), message.numbers[sizes:]
    reset, waits = (bool(message.flags & flag) for flag in (RESET, WAITS))
    return Ask(message.seq, message.time, readings, command, reset, waits)


def plan_message(spec: Spec, plan: Plan, time: float) -> Message:
    return Message(PLAN, 0, spec.hash, plan.first, time, plan.targets.astype("<f4").ravel())


def plan_of(spec: Spec, message: Message | None) -> Plan | None:
    """The plan in a message: of no targets where they are not as many as there are motors."""
    count = len(spec.actuators)
    if message is None or (message.kind, message.hash) != (PLAN, spec.hash):
        return None
    whole = message.numbers if message.numbers.size % count == 0 else message.numbers[:0]
    return Plan(message.seq, whole.reshape(-1, count).astype(float))


def operator_message(spec: Spec, said: Operator, time: float) -> Message:
    numbers = np.concatenate([[said.event, said.number], said.command, said.jog])
    flags = DEADMAN * said.deadman
    return Message(OPERATOR, flags, spec.hash, said.seq, time, numbers.astype("<f4"))


def operator_of(spec: Spec, message: Message | None) -> Operator | None:
    count = len(spec.command)
    if not _fits(message, spec, OPERATOR, 2 + count + len(spec.actuators)):
        return None
    event, number, *_ = message.numbers
    if event not in range(-1, len(ASKED)) or number not in range(1 << 24):
        return None
    command, jog = np.split(message.numbers[2:].astype(float), [count])
    return Operator(
        message.seq, int(event), int(number), bool(message.flags & DEADMAN), command, jog
    )


def status_message(spec: Spec, status: Status) -> Message:
    head = [STATES.index(status.state), status.why, status.mask, status.number]
    readings = (status.readings[s.name] for s in spec.sensors)
    asked = np.zeros(len(spec.command)) if status.asked is None else status.asked
    said = *readings, status.targets, asked, status.loop, status.refused
    numbers = np.concatenate([head, *said])
    flags = WAITS * status.waits | EPISODES * status.episodes
    return Message(STATUS, flags, spec.hash, status.tick, status.time, numbers.astype("<f4"))


def status_of(spec: Spec, message: Message | None) -> Status | None:
    sizes = sum(sensor.size for sensor in spec.sensors)
    counts = 4, sizes, len(spec.actuators), len(spec.command), len(Loop._fields), len(
        Refused._fields)  # fmt: skip
    if not _fits(message, spec, STATUS, sum(counts)):
        return None
    if not np.isfinite(head := message.numbers[:4]).all() or not 0 <= head[0] < len(STATES):
        return None
    state, why, mask, number = map(int, head)
    _, readings, targets, asked, loop, rest = np.split(message.numbers, np.cumsum(counts[:-1]))
    if (refusal := refused(rest)) is None:
        return None
    waits, episodes = (bool(message.flags & flag) for flag in (WAITS, EPISODES))
    return Status(
        message.seq, message.time, STATES[state], why, mask, number, by_name(spec, readings),
        targets, waits, asked, Loop(*map(float, loop)), episodes, refusal,
    )  # fmt: skip


def _fits(message: Message | None, spec: Spec, kind: int, count: int) -> TypeGuard[Message]:
    of = (kind, spec.hash, count)
    return message is not None and (message.kind, message.hash, len(message.numbers)) == of
