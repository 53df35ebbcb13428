"""A policy and a robot, each in its own process; and what a policy reads and writes.

python -m rl.bridge show runs/ppo/artefact-0.zip
python -m rl.bridge sim runs/ppo/artefact-0.zip
python -m rl.bridge run runs/ppo/artefact-0.zip --command 0.5 0 0
"""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import tyro

from rl import artefact
from rl.bridge import doctor, excite, identify, launch, wire
from rl.bridge.doctor import Doctor
from rl.bridge.excite import Excite
from rl.bridge.identify import Identify
from rl.bridge.launch import Run
from rl.bridge.wire import Link

Address = str  # host:port
ENDLESS_S = 1e6
SAME = 1e-6  # of a policy's targets, in the units of the motors


@dataclass(frozen=True)
class Sim:
    """Be a robot: the artefact's model on MuJoCo."""

    artefact: tyro.conf.Positional[Path]
    address: Address = "127.0.0.1:9870"  # to listen on
    pace: Literal["real", "lockstep"] = "lockstep"  # with the clock, or as fast as both can
    seconds: float = 20.0  # of an episode
    episodes: bool = True  # that begin armed; else it lies there until it is told to stand
    hung: bool = False  # held up by its base, its feet in the air
    wait: float = 10.0  # s for a bridge to come
    hz: float = 500.0  # steps of physics, and of the motors' own loop, a second
    rate: float | None = None  # ticks of the wire a second; None: --hz of a walker in real time
    network: Literal["none", "wired", "wifi", "bad"] = "none"  # between it and its bridge
    seed: int = 0  # of what the network does
    starts: Path | None = None  # an .npz of qpos [E, nq] and qvel [E, nv]: an episode from each
    log: Path | None = None  # an .npz of what happened, a row per control step
    truth: Path | None = None  # what went over its wire, tick by tick, for rl/bridge/referee.py


@dataclass(frozen=True)
class Show:
    """Say what a policy reads and writes: names, units, frames, limits, gains and rates."""

    artefact: tyro.conf.Positional[Path]


@dataclass(frozen=True)
class Replay:
    """Live through a flight again: what was heard must lead to the same commands."""

    log: tyro.conf.Positional[Path]  # of run --log
    artefact: Path | None = None  # whose policy must answer as it did, too


Args = Run | Sim | Show | Replay | Excite | Identify | Doctor


def sim(args: Sim) -> None:
    from rl.bridge.channel import NETWORKS
    from rl.bridge.simd import STARVED, Simulator, ticks_of
    from rl.bridge.simulator import Robot

    robot = Robot(artefact.read(args.artefact), args.hz)
    if not robot.spec.control_dt <= args.seconds < np.inf:
        raise ValueError(
            f"--seconds is {args.seconds:g}; it takes a time from {robot.spec.control_dt:g} s on."
        )
    if not 0 < args.wait < np.inf:
        raise ValueError(f"--wait is {args.wait:g}; it takes a time above 0 s.")
    if args.log:
        _check_log(args.log)
    if args.hung:
        robot.hang()
    starts = _starts(args.starts, robot.model.nq, robot.model.nv) if args.starts else [robot.home()]
    ticks = ticks_of(robot, args.rate, realtime := args.pace == "real")
    simulator = Simulator(robot, Link(wire.address(args.address)), realtime, ticks, args.episodes)
    simulator.truth = args.truth.open("x") if args.truth else None
    simulator.through(NETWORKS[args.network], args.seed)
    print(f"waiting  {robot.spec.name} on {args.address}", flush=True)
    simulator.meet(args.wait)
    ends = []
    try:
        for number, start in enumerate(starts):
            seconds = args.seconds if args.episodes else ENDLESS_S
            ends.append(simulator.episode(number, *start, seconds))
            if ends[-1] in ("lost", "left"):
                break
        simulator.bye(lost=ends[-1] == "lost")
    finally:  # what was recorded, whatever ends it
        if simulator.truth:
            simulator.truth.close()
        if args.log:
            simulator.log.write(args.log)
            print(f"log      {args.log}")
    told = ", ".join(f"{ends.count(end)} {end}" for end in dict.fromkeys(ends))
    print(f"episodes {told}")
    if simulator.starved:
        print(f"starved  {simulator.starved} ticks, damped since no answer had come in time")
    if simulator.behind:
        print(f"behind   {simulator.behind:.1f} s of the clock: this machine stood still meanwhile")
    if ends[-1] == "starved":
        print("error: The robot was damped at the end, since no answer came.", file=sys.stderr)
        sys.exit(STARVED)
    if ends[-1] == "lost":
        sys.exit("error: The bridge fell silent; its robot was held, then damped.")


def again(args: Replay) -> None:
    from rl.bridge import flight, replay
    from rl.bridge.drivers.udp import Codec

    found = flight.read(args.log)
    policy = artefact.deploy(artefact.read(args.artefact)) if args.artefact else None
    if policy and policy.spec != found.about.setup.spec:
        raise ValueError(f"{args.artefact} is not the policy of {args.log}.")
    told = replay.replay(found, Codec(found.about.setup.spec), policy)
    if not found.whole:
        print(f"note     {args.log} was cut short, or is damaged: what is whole of it was read")
    print(f"replayed {told.ticks} ticks, {told.different} of them not as they were")
    if policy:
        print(f"policy   {told.asked} answers, {told.off:.2g} off what they were at most")
    if told.different:
        sys.exit(f"error: The first that differs is {told.first}.")
    if told.off > SAME:
        sys.exit(f"error: The policy does not answer as it did, to {SAME:g}.")


def show(args: Show) -> None:
    found = artefact.read(args.artefact)
    spec, program = found.spec, found.program
    runtimes = f"jax alone: {program}" if isinstance(program, str) else "jax or numpy"
    print(f"{spec.name}: {1 / spec.control_dt:g} Hz, with {runtimes}")
    print(f"remembers {sum(x.size for x in found.carry)} numbers from tick to tick")
    if spec.max_tilt < 180:
        print(f"is damped where it leans by more than {spec.max_tilt:g} degrees")
    print("\nreads by name; a datagram has them in this order: numbers, unit, whose frame")
    for sensor in spec.sensors:
        print(f"  {sensor.name:22} {sensor.size:2} {sensor.unit:10} {sensor.frame}")
    print("\nis asked for, with --command or in a line of --script, after the time from which, s:")
    for channel in spec.command:
        print(f"  {channel.name:22} {channel.low:g} to {channel.high:g} {channel.unit}")
    print("" if spec.command else "  nothing\n")
    print(
        "writes targets, in this order; torque = kp (target - position) - kd velocity, to its most"
    )
    head = "", "target", "rest", "kp", "kd", "torque", "speed", "acceleration", "torque's rate"
    rows: list[tuple[str, ...]] = [head]
    for a in spec.actuators:
        span = f"{a.low:.4g} to {a.high:.4g} {a.unit}"
        each = (f"{x:.4g}" for x in (a.rest, a.kp, a.kd, a.torque, a.speed))
        rows.append((a.name, span, *each, f"{a.acceleration or '-'}", f"{a.torque_rate or '-'}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(map(str.ljust, row, widths)).rstrip())


def _check_log(path: Path) -> None:
    """Raise unless a log can be written there, over nothing."""
    if path.suffix != ".npz":
        raise ValueError(f"--log {path} will be an .npz file: give it that ending.")
    if path.exists():
        raise ValueError(f"--log {path} is there already: name another.")
    if not _writable(path.parent):
        raise ValueError(f"--log {path} cannot be written: name a file in another folder.")


def _writable(folder: Path) -> bool:
    return folder.is_dir() and os.access(folder, os.W_OK)


def _starts(path: Path, nq: int, nv: int) -> list[tuple[np.ndarray, np.ndarray]]:
    try:
        with np.load(path) as found:
            qpos, qvel = (np.asarray(found[name], float) for name in ("qpos", "qvel"))
    except FileNotFoundError:
        raise ValueError(f"There is no file {path}.") from None
    except Exception as error:  # whatever another kind of file makes of itself
        raise ValueError(f"{path} is no .npz of numbers qpos and qvel.") from error
    if not qpos.size or not (np.isfinite(qpos).all() and np.isfinite(qvel).all()):
        raise ValueError(f"{path} needs at least one start, and finite numbers alone.")
    if qpos.shape != (count := len(np.atleast_1d(qpos)), nq) or qvel.shape != (count, nv):
        raise ValueError(
            f"{path} has qpos {qpos.shape} and qvel {qvel.shape}; they are [E, {nq}] and [E, {nv}]."
        )
    return list(zip(qpos, qvel, strict=True))


def main() -> None:
    args = tyro.cli(Args, prog="python -m rl.bridge")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        match args:
            case Run():
                sys.exit(launch.run(args))
            case Sim():
                sim(args)
            case Show():
                show(args)
            case Replay():
                again(args)
            case Excite():
                sys.exit(excite.excite(args))
            case Identify():
                identify.identify(args)
            case Doctor():
                sys.exit(doctor.doctor(args))
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
