"""A robot driven: its bridge and its policy in processes of their own, its pilot in this one."""

import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import tyro

from rl import artefact
from rl.bridge import commands, wire
from rl.bridge.limits import Limits
from rl.bridge.pilot import Pilot, Script, Source
from rl.bridge.wire import Link
from rl.spec import Spec

ENDS_S = 5.0  # s for a process to end
SIMULATED = "sim"  # what the name of a robot begins with that is to be simulated


@dataclass(frozen=True)
class Run:
    """Run a policy: what the robot measures comes in, what its motors are to do goes out."""

    artefact: tyro.conf.Positional[Path]  # or the directory of a run that has one
    robot: str = "127.0.0.1:9870"  # host:port; or sim-go2, sim: one that is simulated for it
    command: tuple[float, ...] = ()  # what is asked of it, all the time
    script: Path | None = None  # or a CSV file of times, s, and commands
    keys: bool = False  # or a keyboard's; that of who starts a simulated robot, and says neither
    seconds: float = 20.0  # for which it is asked, of a robot that has no end of its own
    runtime: Literal["jax", "numpy"] = "jax"
    limits: Limits = Limits()
    log: Path | None = None  # an .mcap file of all that is heard and told


def run(args: Run, source: Source | None = None) -> int:
    """Drive a robot, as `source` says or else the flags, until somebody has had enough: the status
    to exit with.  Who brings a source of its own has a simulated robot held up."""
    path = found(args.artefact)
    spec = artefact.read(path).spec
    if bool(args.script) + bool(args.command) + args.keys > 1:
        raise ValueError("--script, --command or --keys: one of them.")
    asked = commands.script(spec, args.script) if args.script else commands.constant(
        spec, args.command)  # fmt: skip
    args.limits.check()
    if args.log and args.log.exists():
        raise ValueError(f"--log {args.log} is there already: name another.")
    if not 0 < args.seconds < float("inf"):
        raise ValueError(f"--seconds is {args.seconds:g}; it takes a time above 0 s.")
    robot, desk = _simulated(args, spec), wire.free_address()
    flags = [f"--limits.{x.name.replace('_', '-')}={getattr(args.limits, x.name)}"
             for x in fields(args.limits)]  # fmt: skip
    flags += [f"--log={args.log}"] if args.log else []
    pilot, begun = Pilot(spec, Link(("127.0.0.1", 0), wire.address(desk))), []
    keys = args.keys or (
        bool(robot) and not args.script and not args.command and sys.stdin.isatty()
    )
    try:
        flags = [f"--robot={robot or args.robot}", f"--desk={desk}", *flags]
        begun.append(bridge := _start("robotd", path, *flags))
        begun.append(_start("policyd", path, f"--desk={desk}", f"--runtime={args.runtime}"))
        if robot:
            begun.append(_start(
                "__main__", "sim", path, f"--address={robot}", "--pace=real", "--no-episodes",
                "--wait=120", *["--hung"] * bool(source)))  # fmt: skip
        _meet(pilot, begun)
        chosen = nullcontext(source) if source else _source(spec, asked, args, keys, bool(robot))
        with chosen as words:
            try:
                pilot.live(words)
            except KeyboardInterrupt:
                pilot.bye()
                bridge.wait(ENDS_S)
                return 128 + signal.SIGINT
            pilot.bye()
        return bridge.wait(ENDS_S)
    except subprocess.TimeoutExpired:
        return 1
    finally:
        _end(pilot, begun)


def found(path: Path) -> Path:
    """The artefact at `path`, or the first of the run there."""
    if not path.is_dir():
        return path
    inside = sorted(path.glob("artefact-*.zip"))
    if not inside:
        raise ValueError(
            f"{path} has no artefact: training writes one where a policy reads only what a robot "
            "measures."
        )
    return inside[0]


def _simulated(args: Run, spec: Spec) -> str:
    """The address of a robot that is to be simulated, "" if it is not."""
    if not args.robot.startswith(SIMULATED):
        wire.address(args.robot)
        return ""
    kind = args.robot.removeprefix(SIMULATED).removeprefix("-")
    if not spec.name.startswith(kind):
        raise ValueError(f"--robot {args.robot}: this policy is one for {spec.name}.")
    return wire.free_address()


def _source(spec: Spec, asked: commands.Operator, args: Run, keys: bool, alone: bool) -> Any:
    if keys:
        from rl.bridge.keys import Keys  # POSIX alone

        return Keys(spec)
    return nullcontext(Script(asked, args.seconds, arms=alone))


def _start(name: str, *words: object) -> subprocess.Popen[bytes]:
    module = "rl.bridge" if name == "__main__" else f"rl.bridge.{name}"
    return subprocess.Popen([sys.executable, "-m", module, *map(str, words)])


def _meet(pilot: Pilot, processes: list[subprocess.Popen[bytes]]) -> None:
    """Greet the bridge; end with a process that could not begin, and has said why."""
    while True:
        try:
            pilot.meet(1.0)
            return
        except ValueError:
            for process in processes:
                if code := process.poll():
                    raise SystemExit(code) from None


def _end(pilot: Pilot, processes: list[subprocess.Popen[bytes]]) -> None:
    """Have them end in order, the robot damped; then at once."""
    pilot.bye()
    for process in processes:
        try:
            process.wait(ENDS_S if process.poll() is None else 0)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
