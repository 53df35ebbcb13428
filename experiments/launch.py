"""One run in several processes, of this machine or of a Ray cluster's nodes.

python -m experiments.launch --processes 2 -- sac --env HalfCheetah-v5 --num-envs 8 --shards 2

Under srun, or by hand on several machines, there is nothing to launch: rl/processes.py tells what a
process must know.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import tyro

from experiments import cli
from rl.processes import NAMES, SILENCE
from rl.ray import drive

PATIENCE = 10.0  # s that processes have to end in good order once one has not
CORES = 1.0  # that Ray holds for each process


@dataclass(frozen=True)
class Args:
    processes: int = 2
    devices: int = 1  # of each: so many of a CPU's, or accelerators
    ray: str = ""  # address of a Ray cluster, or auto: a process on each of its nodes in turn


def main(args: Args, words: list[str]) -> int:
    """Start an experiment's words as so many processes; the exit status of the first to fail."""
    for name in ("processes", "devices"):
        if (count := getattr(args, name)) < 1:
            raise ValueError(f"--{name} is {count}; it needs at least 1.")
    if not words or not find_spec(f"experiments.{words[0]}"):
        what = f"there is no experiment {words[0]!r}" if words else "nothing follows it"
        raise ValueError(f"After -- come an experiment and its flags, as in -- sac: {what}.")
    flags = {word.partition("=")[0] for word in words}
    if args.processes > 1 and not flags & {"--shards", "--resume"}:
        raise ValueError(
            f"{args.processes} processes learn one run together: give {words[0]} --shards, a "
            "multiple of their devices, or --resume with a run that has it."
        )
    command = [sys.executable, "-m", f"experiments.{words[0]}", *words[1:]]
    return over_ray(args, command) if args.ray else here(args, command)


def told(args: Args, address: str, number: int, alone: bool) -> dict[str, str]:
    """What process `number` is told in its environment; `alone` on its machine it has all of it."""
    first = 0 if alone else number * args.devices
    mine = ",".join(map(str, range(first, first + args.devices)))
    who = dict(zip(NAMES, (address, str(args.processes), str(number)), strict=True))
    return who | {"JAX_NUM_CPU_DEVICES": str(args.devices), "JAX_LOCAL_DEVICE_IDS": mine}


def here(args: Args, command: list[str]) -> int:
    """All on this machine."""
    address = f"127.0.0.1:{free_port()}"
    group = [
        subprocess.Popen(
            command, env=os.environ | told(args, address, i, alone=False), start_new_session=True
        )
        for i in range(args.processes)
    ]

    def tell(number: int, _: Any = None) -> None:
        for one in group:
            with suppress(ProcessLookupError):
                one.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, tell)
    failed = -1
    while failed < 0 and any(one.poll() is None for one in group):
        time.sleep(0.1)
        failed = next((i for i, one in enumerate(group) if one.poll()), -1)
    limit = time.monotonic() + PATIENCE  # others see it by themselves
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        while any(one.poll() is None for one in group) and time.monotonic() < limit:
            time.sleep(0.1)
        tell(number)
        limit = time.monotonic() + PATIENCE
    return ended(failed, [one.wait() for one in group])


def ended(failed: int, codes: list[int]) -> int:
    """What to exit with; a process that a signal ended has not said so itself."""
    lost = (i for i, code in enumerate(codes) if code < 0 and code != -signal.SIGTERM)  # not ours
    failed = next(lost, failed)
    code = codes[failed] if failed >= 0 else 0
    if code < 0:
        name = signal.Signals(-code).name
        said = f"error: process {failed} was ended by {name}: --resume goes on without it"
        print(said, file=sys.stderr, flush=True)
    return 128 - code if code < 0 else code


def free_port() -> int:
    with socket.socket() as door:
        door.bind(("", 0))
        return door.getsockname()[1]


def over_ray(args: Args, command: list[str]) -> int:
    """One on each node of a Ray cluster, as far as there are, and then again."""
    ray = drive("--ray", args.ray, says=True)
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    has = ray.cluster_resources()
    gpus = args.devices if has.get("GPU") else 0
    bundle = {"CPU": CORES} | ({"GPU": gpus} if gpus else {})
    gang = placement_group([bundle] * args.processes, strategy="SPREAD")
    if not gang.wait(SILENCE):
        each, all_of = (", ".join(f"{x.get(k, 0):g} {k}s" for k in bundle) for x in (bundle, has))
        raise ValueError(
            f"The cluster has no room for {args.processes} processes of {each}: it has {all_of}, "
            "some of them in use perhaps."
        )

    def remote(number: int, function: Any, *given: Any) -> Any:
        at = PlacementGroupSchedulingStrategy(gang, placement_group_bundle_index=number)
        task = ray.remote(function).options(
            scheduling_strategy=at, num_cpus=CORES, num_gpus=gpus, max_retries=0
        )
        return task.remote(*given)

    address: Any = ray.get(remote(0, _address))
    where, numbers = os.getcwd(), range(args.processes)
    tasks = [remote(i, _member, command, told(args, address, i, gpus > 0), where) for i in numbers]

    def stop(*_: Any) -> None:
        for task in tasks:
            ray.cancel(task, force=False)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    failed, waiting, codes = -1, list(tasks), {}
    while waiting and failed < 0:
        done, waiting = ray.wait(waiting, timeout=1.0)
        codes |= {tasks.index(task): _code(ray, task) for task in done}
        failed = next((i for i, code in codes.items() if code), -1)
    if waiting:
        ray.wait(waiting, num_returns=len(waiting), timeout=PATIENCE)
        stop()
        ray.wait(waiting, num_returns=len(waiting), timeout=PATIENCE)
    ray.shutdown()
    return codes.get(failed, 0)


def _address() -> str:
    """Where processes may find the one that is to be here."""
    import ray

    return f"{ray.util.get_node_ip_address()}:{free_port()}"


def _member(command: list[str], told: dict[str, str], where: str) -> int:
    """A process of the group; told to stop, it ends in good order."""
    one = subprocess.Popen(command, env=os.environ | told, cwd=where)
    try:
        while one.poll() is None:
            time.sleep(0.1)
    except KeyboardInterrupt:  # as Ray tells of it
        one.terminate()
    return one.wait()


def _code(ray: Any, task: Any) -> int:
    """What a process exited with; who is lost has not said so itself."""
    try:
        return ray.get(task)
    except ray.exceptions.RayError as error:
        said = str(error).splitlines()[0].split(". ")[0]  # Ray goes on with advice
        print(f"error: a process was lost: {said}.", file=sys.stderr, flush=True)
        return 1


def start() -> None:
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    if "--" not in words and not {"-h", "--help"} & {*words}:
        raise ValueError("Before the experiment comes --, as in -- sac --shards 2.")
    about = f"{(__doc__ or '').splitlines()[0]} After -- come an experiment and its flags, as "
    about += "in -- sac --num-envs 8 --shards 2: --shards is a multiple of the devices of all."
    prog = "python -m experiments.launch"
    args = tyro.cli(Args, prog=prog, description=about, args=words[:at])
    sys.exit(main(args, words[at + 1 :]))


if __name__ == "__main__":
    cli.guard(start)
