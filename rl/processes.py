"""One run in several processes, on one machine or many: all do the same, the first alone writes.

A process is told who it is by JAX_COORDINATOR_ADDRESS (HOST:PORT, where the first listens),
JAX_NUM_PROCESSES and JAX_PROCESS_ID, which experiments.launch sets, or by what srun sets of a step
with several tasks.
"""

import contextlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import jax
import numpy as np
from jax.experimental import multihost_utils

from rl.types import PyTree, keyed, words

NAMES = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
WAIT = 45  # s until all must have come
SILENCE = 30  # s after which a process of which nothing is heard is lost
PARTING = 5  # s that a process waits for the others in the end
LOST = re.compile(r"gloo|nccl|coordination|connection (closed|reset)|heartbeat", re.IGNORECASE)


class Lost(ValueError):
    """Another process of a run has gone."""


def join() -> int:
    """How many processes the run has, once all have come; before JAX is first used.

    Raises ValueError where one does not come, or is not told who it is.
    """
    count, me = _told()
    if count == 1:
        return 1
    at = os.environ.get(NAMES[0], "the address that srun gives")
    missing = threading.Timer(WAIT, _give_up, (count, me, at))
    missing.daemon = True
    missing.start()  # what JAX does itself when its time is over is to abort, with a stack of C++
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow a SIGTERM
    try:
        jax.distributed.initialize(
            os.environ.get(NAMES[0]), count, me, initialization_timeout=10 * WAIT,
            heartbeat_timeout_seconds=SILENCE, shutdown_timeout_seconds=PARTING,
        )  # fmt: skip
    except (RuntimeError, ValueError) as error:
        raise ValueError(f"Process {me} of {count} cannot be at {at}: {error}.") from error
    missing.cancel()
    own = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # gloo tells of each connection
    sys.stdout = os.fdopen(own if me == 0 else 1, "w", buffering=1)  # the first says it for all
    return count


def _told() -> tuple[int, int]:
    """How many processes there are, and which of them this one is."""
    own = {name: os.environ[name] for name in NAMES if os.environ.get(name)}
    if not own:
        if int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
            return int(os.environ["SLURM_STEP_NUM_TASKS"]), int(os.environ["SLURM_PROCID"])
        if (tasks := os.environ.get("SLURM_NTASKS", "1")) != "1":
            said = f"SLURM has {tasks} tasks for this job, and this is one process: srun starts all"
            print(said, file=sys.stderr, flush=True)
        return 1, 0
    if lacking := [name for name in NAMES if name not in own]:
        are = "are" if len(own) > 1 else "is"
        raise ValueError(
            f"{' and '.join(own)} {are} set and {lacking[0]} is not: set all three, or none."
        )
    for name in NAMES[1:]:
        if not own[name].isdigit():
            raise ValueError(f"{name} is {own[name]!r}; it takes a number.")
    count, me = int(own[NAMES[1]]), int(own[NAMES[2]])
    if not count:
        raise ValueError(f"{NAMES[1]} is 0; it needs at least 1.")
    if me >= count:
        raise ValueError(f"{NAMES[2]} is {me}; of {count} processes the last is {count - 1}.")
    _reach(own[NAMES[0]], me)
    return count, me


def _reach(address: str, me: int) -> None:
    """ValueError where nobody can be at `address`: on a port in use JAX would crash."""
    host, _, port = address.rpartition(":")
    said = f"{NAMES[0]} is {address!r}"
    if not host or not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"{said}; it takes HOST:PORT, a port of 1 to 65,535.")
    try:
        socket.getaddrinfo(host.strip("[]"), int(port))
        if me == 0:
            socket.create_server(("", int(port))).close()
    except OSError as error:
        why = (error.strerror or "").split(" (")[0]
        raise ValueError(f"{said}, and {why}: name another HOST:PORT.") from error


def _give_up(count: int, me: int, at: str) -> None:
    print(
        f"error: This is process {me} of {count}, and after {WAIT} s not all have come to {at}: "
        "see that each is started, under a number of its own, and reaches that address.",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    os._exit(1)


def end(said: str) -> NoReturn:
    """Leave with an error; without the others, which would be waited for."""
    if not jax.distributed.is_initialized():
        sys.exit(said)
    _last_word(f"process {jax.process_index()}: {said}")
    if not isinstance(sys.exception(), Lost):
        time.sleep(2)  # for what others say of the same
    os._exit(1)


def _last_word(said: str) -> None:
    """Say it, and nothing after it: once some end, JAX itself ends the others with a stack."""
    print(said, file=sys.stderr, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def check(count: int, shards: int) -> None:
    """ValueError where several processes would learn each by itself."""
    if count > 1 and shards == 1:
        raise ValueError(
            f"There are {count} processes, which learn one run together: give --shards, a multiple "
            "of their devices, to an experiment that has it."
        )


def several() -> bool:
    return jax.process_count() > 1


def first() -> bool:
    """Whether this process is the one that writes."""
    return jax.process_index() == 0


def gathered(tree: PyTree) -> PyTree:
    """What lies on the devices of all processes, whole in each."""
    if not several():
        return tree
    return keyed(multihost_utils.process_allgather(words(tree), tiled=True), tree)


def agreed(asked: str, due: bool) -> tuple[str, bool]:
    """Why the run is to end, where any process was `asked` to; and if the first finds it `due`."""
    if not several():
        return asked, due
    heard = multihost_utils.process_allgather(np.array([bool(asked), due]))
    return asked or "stopped by another of its processes" * bool(heard[:, 0].any()), heard[0, 1]


def told(number: int) -> int:
    """What the first has for `number`."""
    return int(multihost_utils.process_allgather(np.int32(number))[0]) if several() else number


def least(number: int) -> int:
    """The least that any process has for `number`."""
    if not several():
        return number
    return int(multihost_utils.process_allgather(np.float64(number)).min())


def meet() -> None:
    """Wait for all."""
    if several():
        multihost_utils.sync_global_devices("met")


@contextlib.contextmanager
def together(out: Path | str, note: Callable[[str], None]) -> Iterator[None]:
    """What all processes do; where one is lost the others end, and can `note` the run's status.

    Each has a line to the first, which breaks with it: what they compute together may wait for
    ever, and JAX, once it gives up, aborts.
    """
    if not several():
        yield
        return
    lines, over, out = _lines(), threading.Event(), _of_first(str(out))
    said = f"another process of the run was lost: --resume {out} goes on, on what is left"

    def hear(line: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if line.recv(1):  # it says that it is done
                return
        if not over.is_set():
            _last_word(f"error: {said}")
            note(f"failed: {said}")
            os._exit(1)

    for line in lines:
        threading.Thread(target=hear, args=[line], daemon=True).start()
    try:
        yield
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        if LOST.search(str(error)):
            raise Lost(said) from error
        raise
    over.set()
    for line in lines:
        with contextlib.suppress(OSError):
            line.sendall(b".")


def _lines() -> list[socket.socket]:
    """From the first process to all others, and from each of these to the first."""
    host = os.environ.get(NAMES[0], "").rpartition(":")[0].strip("[]")
    host = host or _of_first(socket.gethostname())
    if first():
        door = socket.create_server(("", 0))
        told(door.getsockname()[1])
        lines = [door.accept()[0] for _ in range(jax.process_count() - 1)]
        door.close()
    else:
        lines = [socket.create_connection((host, told(0)))]
    for line in lines:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, seconds in (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):  # of Linux: a machine that is gone closes nothing
                line.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), seconds)
    return lines


def _of_first(text: str) -> str:
    """What the first process has for `text`, of at most 4,096 bytes."""
    mine = text.encode()[:4096].ljust(4096)
    every = multihost_utils.process_allgather(np.frombuffer(mine, np.uint8))
    return bytes(every[0]).decode().strip()
