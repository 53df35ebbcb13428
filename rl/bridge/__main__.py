"""A policy and a robot, each in its own process; and what a policy reads and writes.

python -m rl.bridge show runs/ppo/artefact-0.zip
python -m rl.bridge sim runs/ppo/artefact-0.zip
python -m rl.bridge run runs/ppo/artefact-0.zip --command 0.5 0 0
python -m rl.bridge teleop 127.0.0.1:9871 runs/ppo/artefact-0.zip --keys
"""

import signal
import sys

import tyro

from rl.bridge.convert import Convert, convert
from rl.bridge.doctor import Doctor, doctor
from rl.bridge.excite import Excite, excite
from rl.bridge.export import Export, export
from rl.bridge.identify import Identify, identify
from rl.bridge.launch import Run, run
from rl.bridge.replay import Replay, again
from rl.bridge.report import Report, report
from rl.bridge.show import Show, show
from rl.bridge.sim import Sim, sim
from rl.bridge.teleop import Teleop, teleop
from rl.guard import guard

Args = Run | Teleop | Sim | Show | Replay | Report | Convert | Export | Excite | Identify | Doctor


def main() -> None:
    args = tyro.cli(Args, prog="python -m rl.bridge")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    guard(lambda: called(args))


def called(args: Args) -> None:
    match args:
        case Run():
            sys.exit(run(args))
        case Teleop():
            sys.exit(teleop(args))
        case Sim():
            sim(args)
        case Show():
            show(args)
        case Replay():
            again(args)
        case Report():
            report(args)
        case Convert():
            convert(args)
        case Export():
            export(args)
        case Excite():
            sys.exit(excite(args))
        case Identify():
            identify(args)
        case Doctor():
            sys.exit(doctor(args))


if __name__ == "__main__":
    main()
