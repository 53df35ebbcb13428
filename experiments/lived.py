"""What robots did as transitions: as they are learned from, and as each kind of learning sees them.

Steps come from a learner's ledger one by one (rl/bridge/learn).  They hold what a robot measured;
observations are made of that here, by the task's own functions, as they were on the robot.
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from envs.simulation import Simulation
from rl import residual
from rl.bridge.learn.outbox import labelled
from rl.bridge.learn.steps import End, Step, unpack
from rl.spec import Spec
from rl.types import Array, Obs, PyTree, Transition

DONE = 0.5  # how sure a policy's program must be
MOST = 256  # steps of a piece
SIZES = 32, 64, 128, MOST + 1  # that observations are made of at once
SAW = "readings", "command", "memory"  # of a step, which observations are made of


class Piece(NamedTuple):
    """Consecutive steps of one episode, the last of which tells what was seen after the others."""

    steps: list[Step]
    done: bool  # it ended: what was to be done is
    fell: bool  # it ended in a fault
    over: bool  # it ended for another reason


class Pieces:
    """Makes pieces of episodes of one robot's steps as they come."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.steps: list[Step] = []
        self.episode, self.ended = 0, True  # the last, and whether it is done with
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
            self.episode = 0
        self.next[found[0]] = found[1] + 1
        yield from self._end(now) if isinstance(now, End) else self._step(now)

    def _step(self, now: Step) -> Iterator[Piece]:
        done = now.said or now.done >= DONE
        if now.episode != self.episode:
            yield from self._close(over=True)
            self.episode, self.ended = now.episode, False
        elif self.steps and now.period != self.steps[-1].period + 1 and not done:
            # A period whose policy did not answer; where it is done then, what was done led to it.
            yield from self._close()
        if not self.ended:
            self.steps.append(now)
        if now.over or (done and not self.ended):
            yield from self._close(done=done, over=now.over)
            # Where there are commands it may go on to the next, and is brought back nowhere.
            self.ended = not (now.over and self.spec.command)
        elif len(self.steps) > MOST:
            yield from self._close()
            self.steps = [now]

    def _end(self, now: End) -> Iterator[Piece]:
        yield from self._close(fell=now.fell, over=True)
        self.ended = True

    def _close(self, done: bool = False, fell: bool = False, over: bool = False) -> Iterator[Piece]:
        steps, self.steps = self.steps, []
        if len(steps) > 1:
            yield Piece(steps, done, fell and not done, over and not (done or fell))


class Lived(NamedTuple):
    """A piece as transitions, leaves [T, ...], and who acted."""

    seen: Transition
    human: np.ndarray  # [T] bool
    starts: np.ndarray  # [T] bool, a human takes over in the next step


class Robot:
    """Makes transitions of the pieces of robots, in a task."""

    def __init__(self, env: Simulation, spec: Spec) -> None:
        self.env, self.spec, self.observed = env, spec, jax.jit(jax.vmap(self._observed))

    def lived(self, piece: Piece) -> Lived:
        steps, count = piece.steps, len(piece.steps) - 1
        did: Any = np.stack([x.human if x.acts else x.policy for x in steps[:-1]])
        parts = [np.stack([getattr(x, name) for x in steps]) for name in SAW]
        size = next(x for x in SIZES if x >= len(steps))
        padded = [np.concatenate([x, np.repeat(x[-1:], size - len(x), 0)]) for x in parts]
        obs = jax.device_get(self.observed(*padded))
        now, then = (jax.tree.map(lambda x, at=at: x[at : at + count], obs) for at in (0, 1))
        last = np.arange(count) == count - 1
        earned, ends = (last & piece.done).astype(np.float32), piece.done or piece.fell
        # Another robot's may be the next, so a piece ends in itself: nothing is lost by that.
        seen: Any = Transition(now, did, earned, last & ends, last & (not ends), then)
        human = np.array([x.acts for x in steps])
        return Lived(seen, human[:-1], human[1:] & ~human[:-1])

    def _observed(self, readings: Array, command: Array, memory: Array) -> Obs:
        """What was seen in a step, of what was measured, asked for and remembered."""
        sizes = np.cumsum([sensor.size for sensor in self.spec.sensors])[:-1]
        parts = jnp.split(readings, sizes)
        told = {s.name: x for s, x in zip(self.spec.sensors, parts, strict=True)}
        remembered, base = like(self.env.task.memory(), memory)
        obs, _ = self.env.task.observe(told, command, remembered)
        return residual.shown(obs, base) if base.size else obs

    @property
    def blank(self) -> Obs:
        """An observation of nothing."""
        rest = [np.zeros(sum(s.size for s in self.spec.sensors)), np.zeros(len(self.spec.command))]
        like = jax.eval_shape(self._observed, *rest, np.zeros(self.spec.memory))
        return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like)


def like(memory: PyTree, numbers: Array) -> tuple[PyTree, Array]:
    """What a task remembers, of numbers [M] as explorer.py tells them, and what a base does, if
    there is one."""
    leaves, structure = jax.tree.flatten(memory)
    ends = np.cumsum([np.size(x) for x in leaves]).astype(int)
    *parts, base = jnp.split(numbers, ends)
    shaped = [x.reshape(np.shape(y)).astype(jnp.result_type(y))
              for x, y in zip(parts, leaves, strict=True)]  # fmt: skip
    return jax.tree.unflatten(structure, shaped), base


class Told(NamedTuple):
    """What is learned from a piece: leaves [T, ...]."""

    all: Transition
    shown: Transition  # of a human: as demonstrations


View = Callable[[Lived], Told]


def hil_serl(lived: Lived) -> Told:
    """What is done earns 1; what a human did is a demonstration as well (Luo et al. 2024,
    arXiv:2410.21845)."""
    return Told(lived.seen, runs(lived.seen, lived.human))


def takeover(lived: Lived) -> Told:
    """The same, but where a human takes over, an episode of the policy's ends, and has failed.

    Else what a human puts right is to the policy's credit, whatever it did before that.
    """
    ended = lived.seen.terminated | lived.starts
    seen = lived.seen._replace(terminated=ended, truncated=lived.seen.truncated & ~ended)
    return Told(seen, runs(lived.seen, lived.human))


def rlif(lived: Lived) -> Told:
    """That a human takes over is the only reward there is, and a bad one, of the step before (Luo
    et al. 2023, arXiv:2311.12996)."""
    seen = lived.seen._replace(reward=-np.float32(lived.starts))
    return Told(seen, runs(seen, lived.human))


def dagger(lived: Lived) -> Told:
    """What a human did is imitated, and nothing else is (HG-DAgger: Kelly et al. 2019,
    arXiv:1810.02890)."""
    seen = runs(lived.seen, lived.human)
    return Told(seen, seen)


VIEWS: dict[str, View] = {
    "takeover": takeover, "hil-serl": hil_serl, "rlif": rlif, "dagger": dagger,
}  # fmt: skip
Kind = Literal["takeover", "hil-serl", "rlif", "dagger"]


def runs(seen: Transition, kept: np.ndarray) -> Transition:
    """The steps that are `kept`; each unbroken run of them ends as if its time were up."""
    broken = kept & ~np.append(kept[1:], False)
    cut = seen._replace(truncated=seen.truncated | (broken & ~seen.terminated))
    return jax.tree.map(lambda x: x[kept], cut)
