"""What robots did, as it comes to their learner: taken in, made transitions, put into replays."""

import os
import socket
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import envs
from envs.simulation import Simulation
from experiments.base import action
from experiments.lived import Lived, Piece, Pieces, Robot, Told, View
from rl import artefact, buffer, manifest, resources, runs
from rl.artefact import Artefact
from rl.bridge import wire
from rl.bridge.learn import certs
from rl.bridge.learn.ledger import Tail
from rl.buffer import Buffer
from rl.spec import Spec
from rl.types import Transition

BLOCKS = 128, 32, 8, 1  # rows that are put into a replay at once
EXPLORER = "explorer.zip"
LATELY = 20  # episodes


class Seen(NamedTuple):
    """What is learned from."""

    all: Buffer
    shown: Buffer  # by humans


class Intake:
    """What robots have done, as it comes to a ledger."""

    def __init__(self, view: View, env: Simulation, spec: Spec, folder: Path) -> None:
        self.view, self.spec, self.tail = view, spec, Tail(folder)
        self.pieces: dict[str, Pieces] = {}  # by robot
        self.robot = Robot(env, spec)
        self.counts: Counter[str] = Counter()
        # Of the last episodes: whether each was done, and so without a human.
        self.lately = deque[tuple[bool, bool]](maxlen=LATELY)
        self._helped: dict[str, bool] = {}  # by robot, whether a human acted in its episode

    def lived(self) -> Iterator[tuple[str, Piece, Lived]]:
        """What each robot has done since, as it was."""
        while rows := self.tail.read():
            for row in rows:
                pieces = self.pieces.setdefault(row.actor, Pieces(self.spec))
                for piece in pieces.take(row.record):
                    yield row.actor, piece, self.robot.lived(piece)

    def read(self) -> list[Told]:
        """What has come since, as it is learned from."""
        told = []
        for robot, piece, found in self.lived():
            told.append(self.view(found))
            self.counts["steps"] += len(found.human)
            self.counts["by_human"] += int(found.human.sum())
            self.counts["interventions"] += int(found.starts.sum())
            self.counts["done"] += piece.done
            helped = bool(found.human.any()) or self._helped.get(robot, False)
            # Where a bridge held it, for its network's sake, it was not over.
            ended = piece.done or piece.fell or piece.steps[-1].over
            if ended:
                self.lately.append((piece.done, piece.done and not helped))
            self._helped[robot] = helped and not ended
            self.counts["episodes"] += ended
        return told


def task_of(run: Path) -> tuple[str, Any]:
    """The name of a run's task, and the task as the run has set it."""
    found = runs.read_manifest(run)
    try:
        return found["env"], manifest.made(envs.named(found["env"]), found["config"]["env"])
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{run / 'manifest.json'} is damaged or of another version: {error!r}."
        ) from error


def of_run(run: Path, view: View, env: Simulation, spec: Spec) -> list[Told]:
    """All that was done in a run, for who learns by `spec`; ValueError where that tells too
    little."""
    theirs = artefact.read(run / EXPLORER).spec
    if (theirs.name, theirs.memory) != (spec.name, spec.memory):
        raise ValueError(f"--demos {run} is of another task, or not above a base as this is.")
    return Intake(view, env, theirs, run / "ledger").read()


class Store:
    """The replays, and how they are added to."""

    def __init__(self, robot: Robot, size: int, scale: float, shift: float) -> None:
        """Of so many steps each; rewards are scaled, and then shifted."""
        self.scale, self.shift, obs = scale, shift, robot.blank
        no, none = jnp.bool(False), jnp.float32(0)
        row = jax.tree.map(lambda x: x[None], Transition(obs, action(robot.env), none, no, no, obs))
        self.seen = Seen(*(buffer.init(size, row) for _ in Seen._fields))
        self.put = jax.jit(buffer.add, donate_argnums=0)

    @property
    def count(self) -> int:
        """Steps that were put into it."""
        return int(self.seen.all.written)

    @property
    def shown(self) -> int:
        return int(self.seen.shown.written)

    def drawn_from(self, length: int) -> Seen:
        """What windows of so many steps are drawn from: all, where humans have not shown one."""
        return self.seen if self.shown >= length else Seen(self.seen.all, self.seen.all)

    def add(self, told: Told) -> None:
        self.seen = Seen(*map(self._added, self.seen, told))

    def _added(self, ring: Buffer, rows: Transition) -> Buffer:
        valued = self.scale * rows.reward + self.shift
        rows, at, count = rows._replace(reward=valued), 0, len(rows.reward)
        while at < count:
            size = next(x for x in BLOCKS if x <= count - at)
            ring = self.put(ring, jax.tree.map(lambda x: x[at : at + size, None], rows))  # noqa: B023
            at += size
        return ring


def added(agent: Any, run: Any, store: Store, every: list[Told]) -> Any:
    """With new steps in the replays, and in the agent's statistics: those that a run which goes on
    had counted are not counted again."""
    for told in every:
        before = store.count
        store.add(told)
        if store.count <= max(known := int(run.observed), before):
            continue
        fresh = jax.tree.map(lambda x: jnp.asarray(x)[max(known - before, 0) :, None], told.all)  # noqa: B023
        learner = agent.observe(run.learner, fresh)
        run = run._replace(learner=learner, observed=jnp.int32(store.count))
    return run


def check_size(steps: int, env: Simulation) -> None:
    """Refuse replays of so many steps that do not fit in memory."""
    obs = jax.eval_shape(env.reset, jax.random.key(0)).obs
    each = resources.size(obs, obs, action(env)) * len(Seen._fields)
    resources.require(steps * each, f"--buffer-size {steps:,}", "lower it")


def check_robots(names: tuple[str, ...], keys: Path | None, listen: str, again: bool) -> None:
    """Refuse robots that could not come, to an address where nobody listens yet, unless it is a
    run's that goes on: what took in its steps before may be about to end."""
    every = {*names, certs.LEARNER}
    if not names or len(every) <= len(names) or not all(map(certs.NAME.fullmatch, names)):
        raise ValueError(
            f"--robots is {' '.join(names) or 'empty'}; it takes the name of each robot that may "
            f"come, once: of a-z, 0-9, _, . and -, and not {certs.LEARNER}."
        )
    try:
        address = wire.address(listen)
        if not again:
            socket.create_server(address).close()
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise ValueError(f"--listen {listen}: {why}; name another HOST:PORT.") from error
    if keys:
        certs.read_secret(keys / f"{certs.LEARNER}.secret")


def intaked(out: Path, policy: Artefact, listen: str, secrets: Path) -> list[str]:
    """The words that start who takes in what robots send to a run."""
    return [
        "-m", "rl.bridge.learn.intaked", f"--folder={out / 'ledger'}",
        f"--weights={out / 'weights'}", f"--keys={secrets}",
        f"--spec={policy.spec.hash.hex()}", f"--listen=tcp://{listen}",
        *[f"--run={policy.run}"] * bool(policy.run),
    ]  # fmt: skip


def tell_left(args: Any) -> None:
    """Say of a run that is done, and so not gone on with, how it has what robots still have."""
    if args.resume != args.out or not runs.finished(runs.read_manifest(args.out)):
        return
    secrets, explorer = args.secrets or args.out / "keys", args.out / EXPLORER
    words = " ".join(intaked(args.out, artefact.read(explorer), args.listen, secrets))
    print(
        f"left     what robots still have of it is taken in, and not learned, by\n"
        f"         python {words}\n         and on a robot's machine sent by\n"
        f"         python -m rl.bridge learn {explorer} --learner {args.listen} "
        f"--secrets {secrets} --robot none", flush=True,
    )  # fmt: skip


@contextmanager
def taken_in(
    out: Path, policy: Artefact, listen: str, robots: tuple[str, ...], keys: Path | None
) -> Iterator[subprocess.Popen[bytes]]:
    """The process that takes in what robots send to a run, and says how they come to it; keys are
    made where there is no folder of them."""
    secrets = keys or out / "keys"
    if (out / "ledger").exists() and not (secrets / f"{certs.LEARNER}.secret").exists():
        raise ValueError(
            f"{secrets / certs.LEARNER}.secret is gone, by which robots know this learner: bring "
            "it back, or have python -m rl.bridge keys make another, whose public half each robot "
            "needs."
        )
    for name in (certs.LEARNER, *robots):
        if not keys and not (secrets / f"{name}.secret").exists():
            certs.make(secrets, name)
    words = intaked(out, policy, listen, secrets)
    process = subprocess.Popen(
        [sys.executable, *words, f"--tied={os.getpid()}"], start_new_session=True
    )
    for name in robots:
        print(
            f"robot    python -m rl.bridge learn {out / EXPLORER} --learner {listen} "
            f"--secrets {secrets} --name {name} --robot ROBOT", flush=True,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.terminate()
        process.wait()
