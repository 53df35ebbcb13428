"""A robot that learns: its bridge, its policy, who keeps its steps, and who has it practise."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from rl import artefact
from rl.bridge import launch, wire
from rl.bridge.launch import Port, Run
from rl.bridge.learn.actord import ACCOUNT, JOURNAL
from rl.bridge.learn.conductor import Conductor, Practice
from rl.bridge.learn.frames import NAME
from rl.bridge.learn.journal import QUOTA, left
from rl.bridge.learn.whose import run_of
from rl.bridge.limits import Limits
from rl.bridge.source import By, Driver
from rl.spec import Spec

HOME = Path("runs/robots")
NO_ROBOT = "none"
ENDS_S = 10.0  # s for who keeps the steps to send what is left
LEAST = 10_000  # bytes of a quota


@dataclass(frozen=True)
class Learn:
    """Practise, and send what is done to a learner: experiments.hil, on this machine or another."""

    artefact: tyro.conf.Positional[Path]  # of a policy that learns: its run, or explorer.zip of it
    learner: str = "127.0.0.1:9890"  # host:port
    secrets: Path = Path("keys")  # a folder with NAME.secret and learner.public
    name: str = "robot"  # of this robot, among those that the learner knows
    folder: Path | None = None  # of what the learner has not yet, and more; runs/robots/NAME/RUN
    quota: int = QUOTA  # bytes of it, after which the robot is held
    robot: str = "127.0.0.1:9870"  # host:port; go2:eth0; franka:HOST; sim-panda, sim: simulated;
    # none: nothing is practised, and what is left is sent
    sensors: str = ""  # host:port where a program says what a Franka does not measure
    by: tyro.conf.OmitArgPrefixes[By] = By()  # the human at hand
    practice: Practice = Practice()
    limits: Limits = Limits(blend_s=0.0)  # it begins where it stands
    log: Path | None = None  # an .mcap file of all that is heard and told
    page: Port = 0  # of a web page on this machine that shows it, and can stop it


def learn(args: Learn, own: Driver | None = None) -> int:
    """Practise, with a human of its `own`, until somebody has had enough: the exit status."""
    inside = args.artefact / "explorer.zip"
    path = inside if inside.is_file() else launch.found(args.artefact)
    found = artefact.read(path)
    spec = found.spec
    _check(args, spec, bool(own))
    folder, steps = args.folder or _folder(args.name, found.run), wire.free_address()
    run = Run(
        path, args.robot, args.sensors, limits=args.limits, log=args.log, page=args.page,
        steps=steps, weights=folder / "weights",
    )  # fmt: skip
    conductor = Conductor(spec, args.practice, folder)
    if args.robot != NO_ROBOT:
        launch.check(run, spec)
    human = args.by.source(spec, False) if args.by.said else nullcontext(own)
    actor = subprocess.Popen(
        launch.program(
            "learn.actord", path, f"--learner=tcp://{args.learner}", f"--keys={args.secrets}",
            f"--folder={folder}", f"--name={args.name}", f"--steps={steps}",
            f"--quota={args.quota}", f"--tied={os.getpid()}",
        ),
        start_new_session=True,
    )  # fmt: skip
    while told(folder).get("pid") != actor.pid:
        if actor.poll() is not None:
            raise SystemExit(actor.returncode)  # it has said why
        time.sleep(0.05)
    for line in [] if args.folder else _elsewhere(args.name, folder):
        print(line, flush=True)
    try:
        if args.robot == NO_ROBOT:
            return _send(folder, actor)
        with human as words:
            conductor.human, conductor.keeps = words, lambda: actor.poll() is None
            try:
                return launch.run(run, conductor)
            finally:
                print(f"episodes {conductor.count}", flush=True)
    finally:
        _end(actor)


def _check(args: Learn, spec: Spec, human: bool) -> None:
    """Refuse what makes no sense, before anything is begun."""
    if not spec.action:
        raise ValueError(
            f"{args.artefact} does not learn: name a run of python -m experiments.hil, or its "
            "explorer.zip."
        )
    if args.practice.demos and not (human or args.by.acts):
        raise ValueError(
            "--practice.demos has a human act, and none is at hand: say --keys, --gamepad or "
            "--spacemouse."
        )
    if args.quota < LEAST:
        raise ValueError(f"--quota is {args.quota}; it takes {LEAST:,} bytes at least.")
    if not re.fullmatch(r"[^\s/]+:\d{1,5}", args.learner):
        raise ValueError(f"--learner is {args.learner!r}; it takes host:port, as 127.0.0.1:9890.")
    asked = human or args.by.said or args.practice.checkpoints or args.robot == NO_ROBOT
    if spec.command and not asked:
        raise ValueError(
            f"{spec.name} needs to be told what to do: give --practice.checkpoints, --command or "
            "--script."
        )
    secret = args.secrets / f"{args.name}.secret"
    if not secret.exists():
        raise ValueError(
            f"There is no key {secret}: give --secrets, a folder of a key that the learner knows, "
            "as the run's own keys, and --name, whose it is."
        )
    args.practice.check()


def _folder(name: str, run: str) -> Path:
    """Of what a robot does for a run: another run's is in another."""
    home = HOME / name
    return home / run if NAME.fullmatch(run) else home


def _elsewhere(name: str, folder: Path) -> Iterator[str]:
    """What is said of what the robot did for other runs, whose learners may not have all of it."""
    home = HOME / name
    for other in [home, *sorted(home.glob("*/"))]:
        if other != folder and (count := left(other / JOURNAL)):
            yield (
                f"left     {count:,} steps for {run_of(other / JOURNAL) or 'an older run'} in "
                f"{other}, which stay there; while its learner listens, this sends them: "
                f"python -m rl.bridge learn ITS/explorer.zip --secrets ITS/keys --name {name} "
                f"--folder {other} --robot {NO_ROBOT}"
            )


def _send(folder: Path, actor: subprocess.Popen[bytes]) -> int:
    """Wait until the learner has all that is left, with no robot."""
    said = ""
    with contextlib.suppress(KeyboardInterrupt):
        while actor.poll() is None:
            facts = told(folder)
            if facts.get("turned_away"):
                raise ValueError(f"The learner refuses it: {facts['turned_away']}")
            if "pending" in facts and not facts["pending"]:
                print("sent     nothing is left", flush=True)
                return 0
            if (why := facts.get("trouble", "")) != said and facts["learner_silent_s"] > 3:
                said = why
                print(f"learner  {why}", flush=True)
            time.sleep(0.1)
    return 1


def _end(actor: subprocess.Popen[bytes]) -> None:
    actor.send_signal(signal.SIGTERM)
    try:
        actor.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        actor.kill()


def told(folder: Path) -> dict[str, Any]:
    """How who keeps the steps says it is; nothing where half of that is there."""
    try:
        return json.loads((folder / ACCOUNT).read_text())
    except (OSError, ValueError):
        return {}
