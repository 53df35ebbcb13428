"""A robot driven: its bridge and its policy in processes of their own, its pilot in this one, or in
one that comes to its desk."""

import os
import platform
import select
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from threading import Thread
from typing import Annotated, Any, Literal

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from rl import artefact
from rl.bridge import robots, wire
from rl.bridge.limits import Limits
from rl.bridge.page.board import PORT
from rl.bridge.pilot import UNTOLD, Pilot
from rl.bridge.serve.elsewhere import Elsewhere
from rl.bridge.source import By, Driver
from rl.bridge.wire import Link
from rl.spec import Spec


def _port(words: list[str]) -> int:
    """Of --page, which may say none."""
    said = words or [str(PORT)]
    if len(said) > 1 or not said[0].isdecimal() or not 0 < int(said[0]) < 65536:
        raise ValueError("it takes one port, from 1 to 65535")
    return int(said[0])


Port = Annotated[int, PrimitiveConstructorSpec(
    "*", "[PORT]", _port, lambda x: isinstance(x, int), lambda x: [str(x)] if x else ["none"]
)]  # fmt: skip
ALL, HERE = "0.0.0.0", "127.0.0.1"  # of the addresses of this machine
ENDS_S = 5.0  # s for a process to end
STAYS_S = 1e6  # s that a simulated robot waits for who is to drive it
SIMULATED = "sim"  # what the name of a robot begins with that is to be simulated


@dataclass(frozen=True)
class Run:
    """Run a policy: what the robot measures comes in, what its motors are to do goes out."""

    artefact: tyro.conf.Positional[Path]  # a file, or the directory of a run that has one
    robot: str = "127.0.0.1:9870"  # host:port; go2:eth0; franka:HOST; sim-go2, sim: simulated
    sensors: str = ""  # host:port where a program says what a Franka does not measure
    by: tyro.conf.OmitArgPrefixes[By] = By()  # keys, of who starts a simulated robot and names none
    desk: str = ""  # or who comes to this host:port, with python -m rl.bridge teleop
    runtime: Literal["jax", "numpy"] = "jax"
    elsewhere: tyro.conf.OmitArgPrefixes[Elsewhere] = Elsewhere()
    limits: Limits = Limits()
    log: Path | None = None  # an .mcap file of all that is heard and told
    page: Port = 0  # of a web page on this machine that shows it, and can stop it: 9880 or another
    steps: tyro.conf.Suppress[str] = ""  # of a policy that learns: who keeps its steps, and
    weights: tyro.conf.Suppress[Path | None] = None  # where its newer weights come


def orderly() -> None:
    """Have this program end in order when it is told to, or its terminal is closed."""
    for sent in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(sent) != signal.SIG_IGN:  # as under nohup
            signal.signal(sent, lambda number, _: sys.exit(128 + number))


def run(args: Run, own: Driver | None = None, hung: bool = False) -> int:
    """Drive a robot until somebody has had enough: the status to exit with.

    With a source of its `own` it is as that says; a simulated robot may be `hung`.
    """
    path = found(args.artefact)
    spec = artefact.read(path).spec
    (robot, alone), desk = check(args, spec), args.desk or wire.free_address()
    keys = alone and sys.stdin.isatty()
    if alone and not (robot or keys or args.by.said or args.desk or own):
        raise ValueError(f"{args.robot} {UNTOLD}")
    desk = desk.replace(ALL, HERE)
    source = None if args.desk else nullcontext(own) if own else args.by.source(spec, keys)
    pilot = Pilot(spec, Link(("127.0.0.1", 0), wire.address(desk)))
    begun: list[subprocess.Popen[bytes]] = []
    page, met = None, False
    try:
        _begin(args, path, robot, pilot, begun, ["--hung"] * hung)
        met = True
        bridge = begun[0]
        page = _page(path, desk, args.page, bridge) if args.page else None
        if source is None:
            at = args.desk.replace(ALL, platform.node())
            print(f"teleop   python -m rl.bridge teleop {at} {args.artefact}", flush=True)
            return _over(bridge, None)
        pilot.meet()
        with source as words:
            pilot.live(words, lambda: bridge.poll() is None, words.silent)
        pilot.bye()
        return _over(bridge, ENDS_S)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except subprocess.TimeoutExpired:
        return 1
    finally:
        for process in begun if not met else []:  # nothing has moved, and nothing is to be kept
            process.kill()
        if args.desk and begun:
            begun[0].terminate()
        if page:
            page.terminate()
        _end(pilot, [*begun, page] if page else begun)


def check(args: Run, spec: Spec) -> tuple[str, bool]:
    """Refuse what makes no sense, before anything is begun; the robot's address, as `_which`."""
    args.limits.check()
    args.elsewhere.check()
    if args.log:
        check_log(args.log)
    if args.desk and args.by.said:
        raise ValueError("--desk: who comes there drives it, and says by what.")
    return _which(args, spec)


def _begin(
    args: Run, path: Path, robot: str, pilot: Pilot, begun: list[subprocess.Popen[bytes]],
    more: list[str],
) -> None:  # fmt: skip
    """Start bridge, policy, and a robot that is to be simulated at an address, and wait until the
    policy was let in; end with a process that could not begin, and has said why."""
    desk = "{}:{}".format(*pilot.link.peer or ())
    flags = [f"--limits.{x.name.replace('_', '-')}={getattr(args.limits, x.name)}"
             for x in fields(args.limits)]  # fmt: skip
    flags += [f"--log={args.log}"] if args.log else []
    flags += [f"--sensors={args.sensors}"] if args.sensors else []
    flags += ["--stays"] if args.desk else []
    flags += [f"--steps={args.steps}"] if args.steps else []
    flags += [f"--robot={robot or args.robot}", f"--desk={args.desk or desk}"]
    begun.append(_start("robotd", path, *flags))
    newer = [f"--weights={args.weights}"] if args.weights else []
    policy = _start("policyd", path, f"--desk={desk}", f"--runtime={args.runtime}", *newer,
                    *args.elsewhere.flags, stdout=subprocess.PIPE)  # fmt: skip
    begun.append(policy)
    if robot:
        begun.append(_start(
            "__main__", "sim", path, f"--address={robot}", "--pace=real", "--no-episodes",
            f"--wait={STAYS_S if args.desk else 120}", f"--tied={os.getpid()}", *more))  # fmt: skip
    assert policy.stdout
    code, said = 0, b""
    while not code and not select.select([policy.stdout], [], [], 0.1)[0]:
        code = next(filter(None, (process.poll() for process in begun)), 0)
        if not args.desk:
            pilot.greet()  # the robot is met as soon as both have come
    if code or not (said := policy.stdout.readline()):
        raise SystemExit(code or policy.wait())
    print(said.decode(), end="", flush=True)


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


def _which(args: Run, spec: Spec) -> tuple[str, bool]:
    """The address of a robot that is to be simulated, "" if it is not; and whether it lies there
    until it is told to stand."""
    if not args.robot.startswith(SIMULATED):
        return "", robots.check(spec, args.robot, args.sensors)
    kind = args.robot.removeprefix(SIMULATED).removeprefix("-")
    if not spec.name.startswith(kind):
        kind = spec.name.split("-")[0]
        raise ValueError(
            f"--robot {args.robot}: this policy is one for {spec.name}: say sim-{kind}, or sim."
        )
    return wire.free_address(), True


def check_log(path: Path) -> None:
    """Raise unless a flight's log can be written there, over nothing."""
    if os.path.lexists(path):
        raise ValueError(f"--log {path} is there already: name another.")
    if path.suffix != ".mcap":
        raise ValueError(f"--log {path} will be an .mcap file: give it that ending.")
    try:
        path.open("xb").close()
        path.unlink()
    except OSError as error:
        raise ValueError(f"--log {path} cannot be written: {error.strerror}.") from error


def program(name: str, *words: object) -> list[str]:
    """The command that starts one of the bridge's."""
    module = "rl.bridge" if name == "__main__" else f"rl.bridge.{name}"
    return [sys.executable, "-m", module, *map(str, words)]


def _start(name: str, *words: object, stdout: int | None = None) -> subprocess.Popen[bytes]:
    # Of a session of its own: Ctrl-C is for who started it, who ends it in order.
    return subprocess.Popen(program(name, *words), stdout=stdout, start_new_session=True)


def _page(path: Path, desk: str, port: int, bridge: subprocess.Popen[bytes]) -> Any:
    """The process of a page, without which a robot goes on."""
    page = _start("page.paged", path, f"--desk={desk}", f"--port={port}")

    def mind() -> None:
        if page.wait() and bridge.poll() is None:
            print("page     has ended; the robot goes on", flush=True)

    Thread(target=mind, daemon=True).start()
    return page


def _over(bridge: subprocess.Popen[bytes], patience: float | None) -> int:
    """The status that it ends with; ValueError if somebody killed it."""
    if (code := bridge.wait(patience)) < 0:
        raise ValueError("The bridge was killed; its robot does what it does without one.")
    return code


def _end(pilot: Pilot, processes: list[subprocess.Popen[bytes]]) -> None:
    """Have them end in order, the robot damped; then at once."""
    pilot.bye()
    until = time.monotonic() + ENDS_S
    for process in processes:
        try:
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process is processes[0] and process.returncode < 0:  # who was killed tells nobody
            for other in processes[1:]:
                other.terminate()
