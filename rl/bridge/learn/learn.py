"""A robot that learns: its bridge, its policy, who keeps its steps, and who has it practise."""

import json
import os
import signal
import subprocess
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import tyro

from rl import artefact
from rl.bridge import launch, wire
from rl.bridge.launch import Port, Run
from rl.bridge.learn.actord import ACCOUNT
from rl.bridge.learn.conductor import Conductor, Practice
from rl.bridge.learn.journal import QUOTA
from rl.bridge.limits import Limits
from rl.bridge.source import By, Driver

ENDS_S = 10.0  # s for who keeps the steps to send what is left
LEAST = 10_000  # bytes of a quota


@dataclass(frozen=True)
class Learn:
    """Practise, and send what is done to a learner: experiments.hil, on this machine or another."""

    artefact: tyro.conf.Positional[Path]  # of a policy that learns: its run, or explorer.zip of it
    learner: str = "127.0.0.1:9890"  # host:port
    secrets: Path = Path("keys")  # a folder with NAME.secret and learner.public
    name: str = "robot"  # of this robot, among those that the learner knows
    folder: Path | None = None  # of what the learner has not yet, and more; runs/robots/NAME
    quota: int = QUOTA  # bytes of it, after which the robot is held
    robot: str = "127.0.0.1:9870"  # host:port; go2:eth0; franka:HOST; sim-panda, sim: simulated
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
    spec = artefact.read(path).spec
    if not spec.action:
        raise ValueError(
            f"{args.artefact} does not learn: name a run of python -m experiments.hil, or its "
            "explorer.zip."
        )
    if args.practice.demos and not (own or args.by.acts):
        raise ValueError(
            "--practice.demos has a human act, and none is at hand: say --keys, --gamepad or "
            "--spacemouse."
        )
    if args.quota < LEAST:
        raise ValueError(f"--quota is {args.quota}; it takes {LEAST:,} bytes at least.")
    folder = args.folder or Path("runs/robots") / args.name
    steps = wire.free_address()
    human = args.by.source(spec, False) if args.by.said else nullcontext(own)
    actor = subprocess.Popen(
        launch.program(
            "learn.actord", path, f"--learner=tcp://{args.learner}",
            f"--keys={args.secrets}", f"--folder={folder}", f"--name={args.name}",
            f"--steps={steps}",
            f"--quota={args.quota}", f"--tied={os.getpid()}",
        ),
        start_new_session=True,
    )  # fmt: skip
    while told_by(folder / ACCOUNT) != actor.pid:
        if actor.poll() is not None:
            raise SystemExit(actor.returncode)  # it has said why
        time.sleep(0.05)
    with human as words:
        keeps = lambda: actor.poll() is None  # noqa: E731
        conductor = Conductor(spec, args.practice, folder, words, keeps)
        run = Run(
            path, args.robot, args.sensors, limits=args.limits, log=args.log,
            page=args.page, steps=steps, weights=folder / "weights",
        )  # fmt: skip
        try:
            return launch.run(run, conductor)
        finally:
            print(f"episodes {conductor.count}", flush=True)
            actor.send_signal(signal.SIGTERM)
            try:
                actor.wait(ENDS_S)
            except subprocess.TimeoutExpired:
                actor.kill()


def told_by(account: Path) -> int:
    """The process that has written it; 0: none, or half of it is there."""
    try:
        return json.loads(account.read_text())["pid"]
    except (OSError, ValueError, KeyError):
        return 0
