"""One run in several processes of this machine, or one on each of several nodes of a Ray cluster.

python -m experiments.launch --processes 2 -- sac --env HalfCheetah-v5 --num-envs 8 --shards 2

Under srun, or by hand on several machines, no launcher is needed: rl/processes.py tells what a
process must know.
"""

import os
import socket
from dataclasses import dataclass

from rl.processes import NAMES

PATIENCE = 20.0  # s that processes have to end in good order


@dataclass(frozen=True)
class Args:
    processes: int = 2
    devices: int = 1  # of each of them: of a CPU so many of its threads, or accelerators in turn


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """The launcher's words and, after --, the experiment's."""
    if "--" not in words:
        return words, []
    at = words.index("--")
    return words[:at], words[at + 1 :]


def spaces(args: Args, address: str, number: int) -> dict[str, str]:
    """What the environment tells process `number`."""
    mine = range(number * args.devices, (number + 1) * args.devices)
    who = dict(zip(NAMES, (address, str(args.processes), str(number)), strict=True))
    devices = {
        "JAX_NUM_CPU_DEVICES": str(args.devices),
        "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, mine)),
    }
    return os.environ | who | devices


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return door.getsockname()[1]
