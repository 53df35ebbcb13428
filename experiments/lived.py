"""What robots did as transitions: as they are learned from, and as each kind of learning sees them.

Steps come from a learner's ledger one by one (rl/bridge/learn).  They hold what a robot measured;
observations are made of that here, by the task's own functions, as they were on the robot.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.simulation import Simulation
from rl.bridge.learn.outbox import labelled
from rl.bridge.learn.steps import End, Step, unpack
from rl.spec import Spec
from rl.types import Array, Obs, PyTree, Transition

DONE = 0.5  # how sure a policy's program must be
MOST = 256  # steps of a piece
SIZES = 32, 64, 128, MOST + 1  # that observations are made of at once


class Piece(NamedTuple):
    """Consecutive steps of one episode, the last of which tells what was seen after the others."""

    steps: list[Step]
    first: bool  # the robot was armed with it
    led: bool  # its first step is of the episode before, and only remembered
    done: bool  # it ended: what was to be done is
    fell: bool  # it ended in a fault
    over: bool  # it ended for another reason


class Pieces:
    """Makes pieces of episodes of one robot's steps as they come."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.steps: list[Step] = []
        self.first, self.led = True, False  # of the piece under way
        self.ended = True  # the episode is done with
        self.next: dict[bytes, int] = {}  # number of the step that a bridge is to hand on next
        self.dropped = 0  # records that are none, or were there before

    def take(self, record: bytes) -> Iterator[Piece]:
        """The pieces that are whole with a record of the ledger."""
        found = labelled(record)
        now = found and unpack(self.spec, found[2])
        if not found or not now or found[1] < self.next.get(found[0], 0):
            self.dropped += 1
            return
        if found[0] not in self.next:
            yield from self._close(over=True)  # another bridge
            self.ended = True
        self.next[found[0]] = found[1] + 1
        yield from self._end(now) if isinstance(now, End) else self._step(now)

    def _step(self, now: Step) -> Iterator[Piece]:
        last = self.steps[-1] if self.steps else None
        if last is None or now.episode != last.episode:
            yield from self._close(over=True)
            self.first, self.led, self.ended = True, False, False
        elif now.period != last.period + 1:
            yield from self._close(over=True)  # a period whose policy did not answer
            self.first = self.led = False
        self.steps.append(now)
        done = now.said or now.done >= DONE
        if now.over or (done and not self.ended):
            yield from self._close(done=done, over=now.over)
            # Where there are commands it may go on to the next, and is brought back nowhere.
            self.ended = not (now.over and self.spec.command)
            self.steps, self.first, self.led = [now], False, True
        elif self.ended or len(self.steps) > MOST:
            yield from self._close()
            self.steps, self.first, self.led = [now], False, False

    def _end(self, now: End) -> Iterator[Piece]:
        yield from self._close(fell=now.fell, over=True)
        self.ended = True

    def _close(self, done: bool = False, fell: bool = False, over: bool = False) -> Iterator[Piece]:
        steps, self.steps = self.steps, []
        if len(steps) > 1 + self.led and not self.ended:
            fell, over = fell and not done, over and not (done or fell)
            yield Piece(steps, self.first, self.led, done, fell, over)


class Lived(NamedTuple):
    """A piece as transitions, leaves [T, ...], and who acted."""

    seen: Transition
    human: np.ndarray  # [T] bool
    starts: np.ndarray  # [T] bool, a human takes over in the next step
    good: np.ndarray  # [T] bool, motors followed, and nothing was cut for safety


class Robot:
    """Makes transitions of the pieces of one robot, in a task."""

    def __init__(self, env: Simulation, spec: Spec) -> None:
        self.env, self.spec, self.memory = env, spec, env.task.memory()
        self.observed = jax.jit(self._observed)

    def lived(self, piece: Piece) -> Lived:
        steps, led, count = piece.steps, int(piece.led), len(piece.steps) - 1
        self.memory = self.env.task.memory() if piece.first else self.memory
        did: Any = np.stack([x.human if x.acts else x.policy for x in steps])
        rows = np.stack([x.readings for x in steps]), np.stack([x.command for x in steps]), did
        size = next(x for x in SIZES if x >= len(steps))
        padded = [np.concatenate([x, np.repeat(x[-1:], size - len(x), 0)]) for x in rows]
        # The last is seen again as the first of what comes next, and remembered then.
        obs, self.memory = jax.device_get(self.observed(self.memory, *padded, count))
        now, then = (jax.tree.map(lambda x, at=at: x[at : at + count - led], obs)
                     for at in (led, led + 1))  # fmt: skip
        last = np.arange(count - led) == count - led - 1
        earned, ends = (last & piece.done).astype(np.float32), piece.done or piece.fell
        seen: Any = Transition(now, did[led:-1], earned, last & ends, last & piece.over, then)
        human = np.array([x.acts for x in steps])[led:]
        good = np.array([x.followed and not x.limited for x in steps[led:-1]])
        return Lived(seen, human[:-1], human[1:] & ~human[:-1], good)

    def _observed(
        self, memory: PyTree, readings: Array, command: Array, action: Array, count: Array
    ) -> tuple[Obs, PyTree]:
        """Observations [L, ...], and what is remembered after so many of them."""
        sizes = np.cumsum([sensor.size for sensor in self.spec.sensors])[:-1]

        def tick(memory: PyTree, now: Any) -> Any:
            numbers, asked, action, goes_on = now
            parts = jnp.split(numbers, sizes)
            told = {s.name: x for s, x in zip(self.spec.sensors, parts, strict=True)}
            obs, after = self.env.task.observe(told, asked, memory)
            _, after = self.env.task.control(action, told, after)
            return jax.tree.map(lambda x, y: jnp.where(goes_on, x, y), after, memory), obs

        goes_on = jnp.arange(len(readings)) < count
        memory, obs = jax.lax.scan(tick, memory, (readings, command, action, goes_on))
        return obs, memory


class Told(NamedTuple):
    """What is learned from a piece: leaves [T, ...]."""

    all: Transition
    shown: Transition  # of a human: as demonstrations


View = Callable[[Lived], Told]


def hil_serl(lived: Lived) -> Told:
    """What is done earns 1; what a human did is a demonstration as well (Luo et al. 2024,
    arXiv:2410.21845)."""
    return Told(lived.seen, runs(lived.seen, lived.human))


def rlif(lived: Lived) -> Told:
    """That a human takes over is the only reward there is, and a bad one, of the step before (Luo
    et al. 2023, arXiv:2311.12996)."""
    seen = lived.seen._replace(reward=-np.float32(lived.starts))
    return Told(seen, runs(seen, lived.human))


def runs(seen: Transition, kept: np.ndarray) -> Transition:
    """The steps that are `kept`; each unbroken run of them ends as if its time were up."""
    broken = kept & ~np.append(kept[1:], False)
    cut = seen._replace(truncated=seen.truncated | (broken & ~seen.terminated))
    return jax.tree.map(lambda x: x[kept], cut)
