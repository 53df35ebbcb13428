"""A simulated robot to be started: its command line."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from rl import artefact
from rl.bridge import launch, wire
from rl.bridge.clock import urgent
from rl.bridge.limits import Limits
from rl.bridge.tied import tie
from rl.bridge.wire import Link
from rl.spec import Spec

Address = str  # host:port
ENDLESS_S = 1e6


@dataclass(frozen=True)
class Sim:
    """Be a robot: the artefact's model on MuJoCo."""

    artefact: tyro.conf.Positional[Path]  # a file, or the directory of a run that has one
    address: Address = "127.0.0.1:9870"  # to listen on
    pace: Literal["real", "lockstep"] = "lockstep"  # with the clock, or as fast as both can
    seconds: float = 20.0  # of an episode
    episodes: bool = True  # that begin armed; else it lies there until it is told to stand
    hung: bool = False  # held up by its base, its feet in the air
    wait: float = 60.0  # s for a bridge to come
    hz: float = 500.0  # steps of physics, and of the motors' own loop, a second
    rate: float | None = None  # ticks of the wire a second; None: --hz of a walker in real time
    network: Literal["none", "wired", "wifi", "bad"] = "none"  # between it and its bridge
    delay: float = 0.0  # s, of commands besides that
    loss: float = 0.0  # share of states, and of commands, that never come besides that
    hardware: Literal["model", "new", "worn"] = "model"  # how far it is off its model
    silence: Literal["damped", "limp", "held"] = "damped"  # what its motors do without commands
    faults: Path | None = None  # a plan of what befalls it (rl/bridge/sim/faults.py)
    seed: int = 0  # of what the network does, and of how it is off its model
    starts: Path | None = None  # an .npz of qpos [E, nq] and qvel [E, nv]: an episode from each
    log: Path | None = None  # an .npz of what happened, a row per control step
    truth: Path | None = None  # what went over its wire, tick by tick, for rl.bridge.referee
    tied: int = 0  # the process that started it, and without which it ends


def sim(args: Sim) -> None:
    from rl.bridge.sim.simd import STARVED

    if args.tied:
        tie(args.tied)
    simulator, starts = _made(args)
    print(f"waiting  {simulator.robot.spec.name} on {args.address}", flush=True)
    simulator.meet(args.wait)
    if simulator.realtime:
        urgent("robot")  # a robot's own time passes, whatever else this machine does
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
    if simulator.behind >= 0.05:
        print(f"behind   {simulator.behind:.1f} s of the clock: this machine stood still meanwhile")
    if strangers := simulator.strangers():
        print(f"ignored  {strangers} frames of strangers")
    if ends[-1] == "starved":
        print("error: The robot was damped at the end, since no answer came.", file=sys.stderr)
        sys.exit(STARVED)
    if ends[-1] == "lost":
        sys.exit("error: The bridge fell silent; its robot was held, then damped.")


def _made(args: Sim) -> Any:
    """The simulator, and a pose and speeds of each of its episodes; ValueError of bad flags."""
    from rl.bridge.sim import faults
    from rl.bridge.sim.body import KINDS
    from rl.bridge.sim.channel import NETWORKS
    from rl.bridge.sim.simd import SILENCE, Simulator
    from rl.bridge.sim.simulator import Robot, ticks_of

    if args.seed < 0:
        raise ValueError(f"--seed is {args.seed}; it takes a number from 0 on.")
    found = artefact.read(launch.found(args.artefact))
    robot = Robot(found, args.hz, KINDS[args.hardware], args.seed)
    least = robot.spec.control_dt
    if not least <= args.seconds < np.inf:
        raise ValueError(f"--seconds is {args.seconds:g}; it takes a time from {least:g} s on.")
    if not 0 < args.wait < np.inf:
        raise ValueError(f"--wait is {args.wait:g}; it takes a time above 0 s.")
    if not 0 <= args.delay <= 10 or not 0 <= args.loss <= 1:
        raise ValueError("--delay takes 0 to 10 s, and --loss a share from 0 to 1.")
    if args.log:
        _check_log(args.log)
    if args.truth and os.path.lexists(args.truth):
        raise ValueError(f"--truth {args.truth} is there already: name another.")
    if args.truth and not _writable(args.truth.absolute().parent):
        raise ValueError(f"--truth {args.truth} cannot be written: name another folder.")
    plan = faults.read(args.faults) if args.faults else []
    motors = range(len(robot.spec.actuators))
    if bad := [fault.motor for fault in plan if fault.motor not in motors]:
        raise ValueError(f"{args.faults} befalls motor {bad[0]}: there are 0 to {motors[-1]}.")
    if args.hung:
        robot.hang()
    starts = _starts(args.starts, robot.model.nq, robot.model.nv) if args.starts else [robot.home()]
    ticks = ticks_of(robot, args.rate, realtime := args.pace == "real")
    simulator = Simulator(robot, Link(wire.address(args.address)), realtime, ticks, args.episodes)
    if args.truth:
        simulator.truth = args.truth.open("x")
        # Who lies there may be told to stand at any time, which its wire does not say.
        free = [] if args.episodes else [[0.0, ENDLESS_S]]
        simulator.truth.write(json.dumps(header(robot.spec, simulator.rate, released=free)) + "\n")
    there = replace(network := NETWORKS[args.network], loss=network.loss + args.loss)
    simulator.through(there, replace(there, delay=network.delay + args.delay), args.seed)
    simulator.befall(plan, args.seed)
    simulator.silence = SILENCE[args.silence]
    return simulator, starts


def header(
    spec: Spec, rate: float, expect: Sequence[Any] = (), limits: Limits = Limits(), **more: Any
) -> dict[str, Any]:
    """What a referee is told of a truth file, in its first line: the limits, and more, that its
    bridge has, the times in which it may go on after it was damped, and what is expected."""
    told = {"spec": asdict(spec) | {"hash": spec.hash.hex()}, "limits": asdict(limits)}
    return told | {"rate": rate, "released": [], "expect": [*expect]} | more


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
