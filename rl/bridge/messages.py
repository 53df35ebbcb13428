"""What a bridge, its policy and its operators say to each other, in frames of rl/bridge/wire.py."""

from collections.abc import Sequence
from typing import NamedTuple, TypeGuard

import numpy as np

from rl.bridge.refusals import Refused, refused
from rl.bridge.states import ASKED, STATES
from rl.bridge.wire import ASK, EPISODES, OPERATOR, PLAN, RESET, STATUS, WAITS, Message, by_name
from rl.guided import MOST
from rl.spec import Channel, Spec

NAN = float("nan")
DEADMAN = 1  # flag of an operator's message: the hand is on it
DONE = 2  # and: in the episode that is over, what was to be done is
HUMAN = 16  # flag of a question: a human acts, in the policy's place
NONE = np.zeros(0)


class Ask(NamedTuple):
    """What a policy is to answer with a plan."""

    period: int
    time: float  # s since the bridge began
    readings: dict[str, np.ndarray]
    command: np.ndarray  # [C]
    reset: bool  # forget all that was
    waits: bool = False
    action: np.ndarray = NONE  # [D] of a human, where one may act in the policy's place
    human: bool = False  # one does


class Own(NamedTuple):
    """What a policy tells of itself that learns (rl/guided.py)."""

    action: np.ndarray  # [D] its own, whoever acts
    done: float  # how sure it is that what is to be done is done
    weights: int  # their version
    memory: np.ndarray = NONE  # [M] what it remembered as it was asked; none in a status


class Plan(NamedTuple):
    """Targets of periods from `first` on."""

    first: int
    targets: np.ndarray  # [n, A]
    own: Own | None = None  # of a policy that learns


class Operator(NamedTuple):
    """What who drives it asks for, said again and again."""

    seq: int
    event: int  # of states.ASKED; -1 for none
    number: int  # of the event: it happens once, however often it is said
    deadman: bool
    command: np.ndarray  # [C]
    jog: np.ndarray  # [A] rad/s or m/s, in the place of a policy
    action: np.ndarray = NONE  # [D] in its place, of one that learns
    over: int = 0  # the episode, of those that a status counts, that is over; 0: none
    done: bool = False  # and what was to be done in it is


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
    begun: int = 0  # episodes: how often it was armed
    own: Own | None = None  # of a policy that learns


def ask_message(spec: Spec, ask: Ask) -> Message:
    readings = (ask.readings[s.name] for s in spec.sensors)
    numbers = np.concatenate([*readings, ask.command, ask.action])
    flags = RESET * ask.reset | WAITS * ask.waits | HUMAN * ask.human
    return Message(ASK, flags, spec.hash, ask.period, ask.time, numbers.astype("<f4"))


def ask_of(spec: Spec, message: Message | None) -> Ask | None:
    sizes = sum(sensor.size for sensor in spec.sensors)
    if not _fits(message, spec, ASK, sizes + len(spec.command) + len(spec.action)):
        return None
    parts = np.split(message.numbers, np.cumsum([sizes, len(spec.command)]))
    reset, waits, human = (bool(message.flags & flag) for flag in (RESET, WAITS, HUMAN))
    readings = by_name(spec, parts[0])
    return Ask(message.seq, message.time, readings, parts[1], reset, waits, parts[2], human)


def plan_message(spec: Spec, plan: Plan, time: float) -> Message:
    memory = plan.own.memory if plan.own else np.full(spec.memory, NAN)
    numbers = np.concatenate([plan.targets.ravel(), _told(spec, plan.own), memory])
    return Message(PLAN, 0, spec.hash, plan.first, time, numbers.astype("<f4"))


def plan_of(spec: Spec, message: Message | None) -> Plan | None:
    """The plan in a message: of no targets where they are not as many as there are motors."""
    count = len(spec.actuators)
    if message is None or (message.kind, message.hash) != (PLAN, spec.hash):
        return None
    last = message.numbers.size - spec.memory
    end = last - _own_size(spec)
    whole = message.numbers[:end] if end >= 0 and end % count == 0 else message.numbers[:0]
    own = _own(spec, message.numbers[end:last]) if whole.size else None
    if own and np.isfinite(memory := message.numbers[last:]).all():
        own = own._replace(memory=memory)
    return Plan(message.seq, whole.reshape(-1, count).astype(float), own)


def _own_size(spec: Spec) -> int:
    return len(spec.action) + 2 if spec.action else 0


def _told(spec: Spec, own: Own | None) -> np.ndarray:
    """Its numbers; NaN of a policy that has told nothing yet."""
    if own is None or not spec.action:
        return np.full(_own_size(spec), NAN)
    return np.concatenate([own.action, [own.done, own.weights]])


def _own(spec: Spec, numbers: np.ndarray) -> Own | None:
    if not spec.action or not np.isfinite(numbers).all() or not 0 <= numbers[-1] < MOST:
        return None
    return Own(numbers[:-2].astype(float), float(numbers[-2]), int(numbers[-1]))


def operator_message(spec: Spec, said: Operator, time: float) -> Message:
    rest = [said.action, [said.over]] if spec.action else []
    numbers = np.concatenate([[said.event, said.number], said.command, said.jog, *rest])
    flags = DEADMAN * said.deadman | DONE * said.done
    return Message(OPERATOR, flags, spec.hash, said.seq, time, numbers.astype("<f4"))


def operator_of(spec: Spec, message: Message | None) -> Operator | None:
    counts = 2, len(spec.command), len(spec.actuators), len(spec.action), bool(spec.action)
    if not _fits(message, spec, OPERATOR, sum(counts)):
        return None
    parts = np.split(message.numbers.astype(float), np.cumsum(counts[:-1]))
    (event, number), command, jog, action, over = parts[0], *parts[1:4], parts[4].sum()
    if not (_whole(event + 1, len(ASKED) + 1) and _whole(number, MOST) and _whole(over, MOST)):
        return None
    deadman, done = (bool(message.flags & flag) for flag in (DEADMAN, DONE))
    return Operator(
        message.seq, int(event), int(number), deadman, command, jog, action, int(over), done
    )


def status_message(spec: Spec, status: Status) -> Message:
    head = [STATES.index(status.state), status.why, status.mask, status.number]
    readings = (status.readings[s.name] for s in spec.sensors)
    asked = np.zeros(len(spec.command)) if status.asked is None else status.asked
    said = *readings, status.targets, asked, status.loop, status.refused
    rest = [_told(spec, status.own), [status.begun]] if spec.action else []
    numbers = np.concatenate([head, *said, *rest])
    flags = WAITS * status.waits | EPISODES * status.episodes
    return Message(STATUS, flags, spec.hash, status.tick, status.time, numbers.astype("<f4"))


def status_of(spec: Spec, message: Message | None) -> Status | None:
    sizes = sum(sensor.size for sensor in spec.sensors)
    counts = 4, sizes, len(spec.actuators), len(spec.command), len(Loop._fields), len(
        Refused._fields), _own_size(spec), bool(spec.action)  # fmt: skip
    if not _fits(message, spec, STATUS, sum(counts)):
        return None
    parts = np.split(message.numbers, np.cumsum(counts[:-1]))
    head, readings, targets, asked, loop, rest, own, begun = parts
    counted = np.isfinite([*head, *begun]).all()
    if not counted or not 0 <= head[0] < len(STATES) or (refusal := refused(rest)) is None:
        return None
    state, why, mask, number = map(int, head)
    waits, episodes = (bool(message.flags & flag) for flag in (WAITS, EPISODES))
    return Status(
        message.seq, message.time, STATES[state], why, mask, number, by_name(spec, readings),
        targets, waits, asked, Loop(*map(float, loop)), episodes, refusal,
        int(begun.sum()), _own(spec, own),
    )  # fmt: skip


def within(channels: Sequence[Channel], numbers: np.ndarray | None) -> np.ndarray:
    """What an operator says [n], within its range; zeros of who says nothing."""
    said = np.zeros(len(channels)) if numbers is None else numbers
    low, high = ([getattr(c, k) for c in channels] for k in ("low", "high"))
    return np.clip(said, low, high).astype(np.float32)


def _whole(number: float, most: int) -> bool:
    """Whether it is one of 0 to `most` - 1."""
    return 0 <= number < most and number == int(number)


def _fits(message: Message | None, spec: Spec, kind: int, count: int) -> TypeGuard[Message]:
    of = (kind, spec.hash, count)
    return message is not None and (message.kind, message.hash, len(message.numbers)) == of
