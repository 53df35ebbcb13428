"""Who drives a robot, in a process of its own, on any machine that reaches its bridge."""

import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from rl import artefact
from rl.bridge import launch, wire
from rl.bridge.pilot import Pilot
from rl.bridge.source import By
from rl.bridge.wire import Link

MEETS_S = 5.0  # s for a bridge to answer


@dataclass(frozen=True)
class Teleop:
    """Drive a robot whose bridge waits for it: run --desk."""

    desk: tyro.conf.Positional[str]  # host:port, where the bridge waits
    artefact: tyro.conf.Positional[Path]  # a file, or the directory of a run that has one
    by: tyro.conf.OmitArgPrefixes[By] = By()


def teleop(args: Teleop) -> int:
    """Drive it until somebody has had enough: the status to exit with.

    Who has nothing more to say says goodbye, with which the bridge ends, its robot damped; who is
    interrupted does not: the robot is held, and another may come.
    """
    spec = artefact.read(launch.found(args.artefact)).spec
    source = args.by.source(spec, sys.stdin.isatty())
    pilot = Pilot(spec, Link(("0.0.0.0", 0), wire.address(args.desk)))
    pilot.meet(MEETS_S)
    print(f"driving  {spec.name} at {args.desk}", flush=True)
    with source as words:
        try:
            end = pilot.live(words, silent=words.silent)
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        except ValueError:
            pilot.bye()
            raise
    if end == "gone":
        print(f"ended    the bridge at {args.desk} said goodbye")
        return 1
    if end == "lost":
        raise ValueError(f"The bridge at {args.desk} fell silent, or another drives it now.")
    pilot.bye()
    return 0
