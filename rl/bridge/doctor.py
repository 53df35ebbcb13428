"""Measures whether this host can be a bridge's, and says with which command to make it so.

python -m rl.bridge doctor --rate 500 --artefact runs/ppo/artefact-0.zip
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl import artefact
from rl.bridge import host, wire
from rl.bridge.clock import Real, steady
from rl.bridge.host import Finding
from rl.bridge.launch import found as artefact_at
from rl.bridge.punctual import FEW, Lateness, lateness
from rl.bridge.wire import Link

TRIPS, PINGS = 2000, 20
BLOCK, BLOCKS = 64 * 1024, 64  # of a log; each is asked to be on the disk, as the recorder asks
DISK_S = 5.0  # of a disk that is slow
WARMS_S = 60.0  # s for a policy to be compiled
CPU, CLOCK = Path("/sys/devices/system/cpu"), Path("/sys/devices/system/clocksource/clocksource0")


@dataclass(frozen=True)
class Doctor:
    """Measure whether this host keeps a bridge's rate, and say what would help."""

    rate: float = 500.0  # ticks of the robot's wire a second
    seconds: float = 10.0  # of ticks
    artefact: Path | None = None  # whose policy runs beside it, as on a robot
    robot: str = ""  # host or host:port; pinged
    log: Path = Path(".")  # a folder on the disk that logs are to be on


def checked(args: Doctor) -> tuple[Path | None, str]:
    """The artefact, if there is one, and the robot's address, or ""; ValueError of bad flags."""
    if not 1 <= args.rate <= 10_000:
        raise ValueError(f"--rate is {args.rate:g}; it takes 1 to 10000 Hz.")
    if not 0.1 <= args.seconds <= 3600:
        raise ValueError(f"--seconds is {args.seconds:g}; it takes 0.1 to 3600 s.")
    if args.rate * args.seconds < FEW:
        raise ValueError(
            f"--seconds {args.seconds:g} of --rate {args.rate:g} has fewer than {FEW} ticks, which "
            f"says nothing: it takes --seconds {math.ceil(FEW / args.rate)}."
        )
    if not args.log.is_dir():
        raise ValueError(f"--log {args.log} is no folder.")
    try:
        disk(args.log, blocks=1)
    except OSError as error:
        why = f"takes no file ({error.strerror}): name another folder."
        raise ValueError(f"--log {args.log} {why}") from error
    robot = args.robot and wire.address(args.robot if ":" in args.robot else f"{args.robot}:0")[0]
    return artefact_at(args.artefact) if args.artefact else None, robot


def doctor(args: Doctor) -> int:
    """Measure, print a table and a verdict; the status to exit with."""
    path, robot = checked(args)
    period = artefact.read(path).spec.control_dt if path else 0.0
    print(f"measuring {args.seconds:g} s of {args.rate:g} Hz ...", flush=True)
    found = [host.loopback(*loopback(), args.rate), host.disk(*disk(args.log))]
    if robot:
        found.append(pinged(robot, args.rate))
    if path:
        with beside(path, "numpy", min(args.seconds, 3.0)) as said:
            pass
        found.append(host.policy("numpy", said, period))
    before = read("/proc/stat")
    with beside(path, "jax", args.seconds) as said:
        given = steady()
        late = ticks(args.rate, args.seconds)
    after = read("/proc/stat")
    if path:
        found.append(host.policy("jax", said, period))
    wakes = host.wakes(late, args.rate, ", the policy beside it" if path else "")
    found = [wakes, *found, *facts(given)]
    if before:
        found.append(host.steal(before, after))
    tell(found)
    verdict = host.verdict(found, args.rate)
    print(f"verdict  {verdict}")
    return 0 if verdict.startswith("fit") else 1


def tell(found: list[Finding]) -> None:
    width = max(len(x.what) for x in found)
    for x in found:
        print(f"  {x.grade:4}  {x.what:{width}}  {x.found}")
    if mends := dict.fromkeys((x.mend, x.what) for x in found if x.mend):
        print("what helps")
        for mend, what in mends:
            print(f"  {what:{width}}  {mend}")


def ticks(rate: float, seconds: float) -> Lateness:
    """How late this process begins what it should do so often."""
    clock, late = Real(1 / rate), []
    while clock.number + 1 < rate * seconds:
        late.append(clock.wait().late)
    return lateness(np.array(late), clock.missed, rate)


def loopback() -> tuple[float, float, float]:
    """Round trips of a datagram of a state's size, s: median, 99% and most."""
    door = Link(("127.0.0.1", 0))
    here = Link(("127.0.0.1", 0), ("127.0.0.1", door.port))
    there, took = door.beside(("127.0.0.1", here.port)), []
    for _ in range(TRIPS):
        began = time.perf_counter()
        here.send_raw(bytes(300))
        there.receive_raw(0.1)
        there.send_raw(bytes(300))
        if here.receive_raw(0.1) is None:
            raise ValueError("Datagrams of this machine to itself get lost: is there a firewall?")
        took.append(time.perf_counter() - began)
    for link in (here, there, door):
        link.close()
    p50, p99 = np.percentile(took, (50, 99))
    return float(p50), float(p99), max(took)


def disk(folder: Path, blocks: int = BLOCKS) -> tuple[float, float]:
    """The longest write to be on the disk, s, and how many bytes a second are."""
    took: list[float] = []
    with tempfile.TemporaryFile(dir=folder) as file:
        while len(took) < blocks and sum(took) < DISK_S:
            began = time.perf_counter()
            file.write(bytes(BLOCK))
            file.flush()
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return max(took), BLOCK * len(took) / sum(took)


def pinged(robot: str, rate: float) -> Finding:
    if not shutil.which("ping"):
        return Finding("robot", "not pinged", host.FAIR, "sudo apt install iputils-ping")
    words = ["ping", "-n", "-q", "-i", "0.2", "-c", str(PINGS), "-W", "1", robot]
    said = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    return host.link(said, rate)


@contextmanager
def beside(path: Path | None, runtime: str, seconds: float) -> Iterator[dict[str, Any]]:
    """A policy that is asked at its rate meanwhile, if there is one; filled with what it says."""
    said: dict[str, Any] = {}
    if path is None:
        yield said
        return
    words = [sys.executable, "-m", "rl.bridge.paced", str(path), runtime, str(seconds)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as process:  # fmt: skip
        try:
            assert process.stdout
            process.stdout.readline()  # it is warm, or has said why it never will be
            yield said
            lines = process.communicate(timeout=seconds + WARMS_S)[0].splitlines()
            said |= json.loads(lines[-1]) if lines else {"error": "it did not run"}
        finally:
            process.kill()


def facts(given: list[str]) -> list[Finding]:
    """What the system says of itself."""
    governors = [read(x).strip() for x in CPU.glob("cpu[0-9]*/cpufreq/scaling_governor")]
    return [
        host.cores(len(os.sched_getaffinity(0)), os.getloadavg()[0]),
        host.virtual(read("/proc/cpuinfo")),
        *host.granted(given),
        host.governor(governors),
        host.kernel(os.uname().version, read("/sys/kernel/realtime")),
        host.isolated(read(CPU / "isolated"), (os.cpu_count() or 1) - 1),
        host.quota(read("/sys/fs/cgroup/cpu.max")),
        host.clocksource(read(CLOCK / "current_clocksource")),
        host.swap(read("/proc/swaps"), "memory locked" in given),
        host.buffers(read("/proc/sys/net/core/rmem_default")),
    ]


def read(path: str | Path) -> str:
    """What a file of the system says, "" where there is none."""
    try:
        return Path(path).read_text()
    except OSError:
        return ""
