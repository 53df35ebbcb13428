"""A human at hand, as a program: it watches a robot learn, and takes over where that goes wrong.

python -m experiments.corrector runs/hil/explorer.zip --secrets runs/hil/keys --human.demos 20

It knows the task (envs.manipulation.expert), and acts where the robot does not come nearer to what
is to be done, or comes to it askew; the first episodes it does all by itself, as demonstrations.
"""

import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import envs
from envs.manipulation import kinematics
from envs.manipulation.expert import Carry, Expert
from envs.manipulation.plan import wrapped
from envs.manipulation.script import Script
from experiments import cli
from rl import artefact
from rl.bridge import launch, states
from rl.bridge.learn.learn import Learn, learn
from rl.bridge.messages import Status
from rl.bridge.pilot import Word
from rl.types import Array, Key, Readings

NEARER = 0.002  # m that is progress
RADIANS = 0.05  # m that a rad of yaw counts
ASKEW = 0.002, 0.05  # m beside, and rad, at which no peg goes in
CLOSE_ABOVE = 0.045  # m above its end in which a way down is to be straight
DEEP = 0.034  # m above the end where things are on their way in
SLIPPED = 0.004  # m that what is held may have moved in the hand


@dataclass(frozen=True)
class Human:
    """How a human watches, and acts."""

    demos: int = 0  # episodes that it does all by itself, to begin with; --practice.demos has
    # whoever is at hand do so many, and is not needed beside this
    patience_s: float = 0.5  # without progress, before it takes over
    holds_s: float = 2.0  # at most, before it lets go
    speed: float = 0.5  # of an expert, who is told how it is at once
    noise: float = 0.01  # std of its hand, of an action
    corrects: bool = True  # later as well
    seed: int = 0


@dataclass(frozen=True)
class Args(Learn):
    """Practise with a program in the place of a human."""

    human: Human = Human()


class Seen(NamedTuple):
    """What a human makes of a moment."""

    left: Array  # [] m to where it is done, about
    askew: Array  # [] bool, it comes to it so that it cannot be done
    action: Array  # [D] that it would do
    carry: Carry


class Corrector:
    """Its words, of a robot that does a task of envs.manipulation."""

    def __init__(self, task: Any, human: Human) -> None:
        self.task, self.human = task, human
        self.expert = Expert(way=0, patience=0.4)
        self.look = jax.jit(partial(self._look, self.expert))
        self.key, self.carry = jax.random.key(human.seed), self._fresh(1)
        self.begun, self.episode = 0, 0  # as statuses count them; ours
        self.best, self.since, self.hands = np.inf, 0.0, False
        self.look(self._blank(), jnp.zeros(len(task.spec.command)), self.carry, self.key)

    def silent(self, seconds: float) -> bool:
        return False

    def word(self, status: Status) -> Word:
        if status.state not in states.MOVING:
            return Word()
        self.key, key = jax.random.split(self.key)
        if status.begun != self.begun:
            self.begun, self.episode = status.begun, self.episode + 1
            self.best, self.since, self.hands = np.inf, status.time, False
            self.carry = self._fresh(1)
        seen = jax.device_get(self.look(status.readings, status.asked, self.carry, key))
        self._watch(status.time, float(seen.left), bool(seen.askew))
        if not self.hands:
            return Word(states.GIVE if status.state == states.INTERVENE else "")
        self.carry = seen.carry
        return Word(states.TAKE if status.state == states.ARMED else "", action=seen.action,
                    deadman=True)  # fmt: skip

    def _watch(self, now: float, left: float, askew: bool) -> None:
        """Whether it has its hands on it."""
        human = self.human
        if self.episode <= human.demos:
            self.hands = True
            return
        if self.hands and now - self.since > human.holds_s:
            self.hands, self.best, self.since = False, left, now
        if self.hands or not human.corrects:
            return
        if left < self.best - NEARER:
            self.best, self.since = left, now
        if askew or now - self.since > human.patience_s:
            self.hands, self.since, self.carry = True, now, self._fresh(1)

    def _look(self, expert: Expert, told: Readings, command: Array, carry: Carry, key: Key) -> Seen:
        task = self.task
        asked = command if task.spec.command else ()
        plan = task.plan(told, asked, carry.way, carry.kept)
        end, tool = plan.at[-1], told["tool_pos"]
        turn = wrapped(plan.yaw[-1] - kinematics.yaw_of(kinematics.rotation(told["tool_quat"])))
        beside, above = jnp.linalg.norm((tool - end)[:2]), tool[2] - end[2]
        left = jnp.linalg.norm(tool - end) + RADIANS * jnp.abs(turn)
        inside = (above < DEEP) & (beside < 2 * ASKEW[0])
        off = (beside > ASKEW[0]) | (jnp.abs(turn) > ASKEW[1])
        askew = (above < CLOSE_ABOVE) & ~inside & off
        last = len(plan.yaw) - 1
        carry = carry._replace(stage=jnp.where(inside, last, carry.stage))
        action, carry = expert.act(task, Script(told, asked, task.memory()), carry)
        moves = np.array([name != "grip" for name in task.table.free])
        action = jnp.where(moves, self.human.speed * action, action)
        action = action + self.human.noise * jax.random.normal(key, action.shape)
        return Seen(left, askew, jnp.clip(action, -1, 1), carry)

    def _fresh(self, stage: int) -> Carry:
        zero = jnp.int32(0)
        return Carry(jnp.int32(stage), zero, zero, zero, jnp.zeros(3), zero - 1)

    def _blank(self) -> Any:
        from rl import export

        return export.readings(self.task.model(), list(self.task.spec.sensors))


def main(args: Args) -> None:
    launch.orderly()
    for name in ("demos", "patience_s", "holds_s", "speed", "noise", "seed"):
        if not (value := getattr(args.human, name)) >= 0:
            flag = f"--human.{name.replace('_', '-')}"
            raise ValueError(f"{flag} is {value}; it needs at least 0.")
    spec = artefact.read(launch.found(args.artefact)).spec
    task: Any = envs.make_task(spec.name)
    if not hasattr(task, "plan"):
        raise ValueError(f"Nobody has written how a human does {spec.name}: it is no arm's task.")
    began = time.monotonic()
    corrector = Corrector(task, args.human)
    print(f"human    watches, after {time.monotonic() - began:.0f} s of compiling", flush=True)
    sys.exit(learn(args, corrector))


if __name__ == "__main__":
    cli.guard(lambda: main(tyro.cli(Args, prog="python -m experiments.corrector")))
