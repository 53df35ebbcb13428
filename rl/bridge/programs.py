"""Which of the bridge's programs a command line asks for."""

import sys

import tyro

from rl.bridge.doctor import Doctor, doctor
from rl.bridge.export import Export, export
from rl.bridge.identify.excite import Excite, excite
from rl.bridge.identify.identify import Identify, identify
from rl.bridge.launch import Run, orderly, run
from rl.bridge.learn.certs import Keys, keys
from rl.bridge.learn.learn import Learn, learn
from rl.bridge.log.convert import Convert, convert
from rl.bridge.log.replay import Replay, again
from rl.bridge.log.report import Report, report
from rl.bridge.serve.serve import Serve, serve
from rl.bridge.show import Show, show
from rl.bridge.sim.sim import Sim, sim
from rl.bridge.teleop import Teleop, teleop

Args = (
    Run | Teleop | Sim | Show | Serve | Replay | Report | Convert | Export | Excite | Identify
    | Doctor | Keys | Learn
)  # fmt: skip


def main() -> None:
    args = tyro.cli(Args, prog="python -m rl.bridge")
    orderly()
    match args:
        case Run():
            sys.exit(run(args))
        case Teleop():
            sys.exit(teleop(args))
        case Sim():
            sim(args)
        case Show():
            show(args)
        case Serve():
            serve(args)
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
        case Keys():
            keys(args)
        case Learn():
            sys.exit(learn(args))
