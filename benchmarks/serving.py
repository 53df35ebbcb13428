"""What asking a policy server costs, there and back on one machine: python -m benchmarks.serving

A robot's side of rl/bridge/serve asks a server in another process, beside websockets alone, which
send as many bytes each way.  Of the Go2's policy, and of one that sees 98 KB and does nothing.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import tyro
from websockets.sync.client import connect

from benchmarks import rows
from benchmarks.process import ROOT, Run, guard
from experiments import cli
from rl import artefact
from rl.artefact import Artefact
from rl.bridge.serve import frames
from rl.bridge.serve.elsewhere import Elsewhere
from rl.bridge.serve.remote import Remote
from rl.export import Exporter
from rl.spec import Actuator, Sensor, Spec

SEES = 98 * 1024 // 4  # numbers of 98 KB
WARM = 50  # calls that are not counted


@dataclass(frozen=True)
class Args:
    """Measure round trips, as fast as they go and at a robot's pace."""

    calls: int = 1_000  # of each side of a pair; at a pace a fifth of that
    pairs: int = 3
    rate: float = 50.0  # a second, of a robot
    results: Path = ROOT / "benchmarks" / "results" / "hil.jsonl"


def main(args: Args) -> None:
    cli.at_least(10, args, "calls")
    cli.at_least(1, args, "pairs")
    about = rows.about()
    with tempfile.TemporaryDirectory() as folder:
        go2 = ROOT / "benchmarks" / "policies" / "go2-joystick-flat" / "artefact-0.zip"
        for name, path in (("go2", go2), ("98-kb", seeing(Path(folder) / "seeing.zip"))):
            for pace, period in (("", 0.0), (f"/{args.rate:g}-hz", 1 / args.rate)):
                count = args.calls // (5 if period else 1)
                row = rows.row(f"serve/{name}{pace}", "s", measured(args, path, count, period))
                row["p99"] = rows.means(row["pairs"], "p99")
                rows.write(args.results, row | about)
                print(line(row), flush=True)


def measured(args: Args, path: Path, count: int, period: float) -> list[rows.Pair]:
    found = artefact.read(path)
    return [
        {"ours": asked(found, path, count, period), "peer": echoed(found, count, period)}
        for _ in range(args.pairs)
    ]


def line(row: dict[str, Any]) -> str:
    ours, peer = (f"{1e3 * row[x]:.2f} ({1e3 * row['p99'][x]:.2f})" for x in ("ours", "peer"))
    return f"{row['what']:18} {ours} ms, websockets alone {peer} ms, ratio {row['ratio']:.2f}"


def seeing(path: Path) -> Path:
    """An artefact whose policy does as the first number it sees says."""
    sensors, motor = (Sensor("image", SEES, "", ""),), Actuator("a", "rad", -1, 1, 0, 1, 1, 1, 1)
    spec = Spec("seeing", sensors, (motor,), (), 0.02, 0.02, 180.0)
    nothing = mujoco.MjModel.from_xml_string("<mujoco/>")
    exporter = Exporter(spec, nothing, lambda *x: (x[2]["image"][:1], ()), (), ())
    seen = {"image": np.zeros((1, SEES), np.float32)}
    exporter.artefact((), seen, np.zeros((1, 0), np.float32)).write(path)
    return path


def timed(call: Callable[[], object], count: int, period: float) -> Run:
    """s of each call, one after another, or one in each period."""
    took = []
    for _ in range(WARM + count):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
        time.sleep(max(period - took[-1], 0.0))
    p50, p99 = np.percentile(took[WARM:], (50, 99)).tolist()
    return {"value": p50, "p99": p99}


def asked(found: Artefact, path: Path, count: int, period: float) -> Run:
    """Round trips to a server of ours."""
    readings = {name: x[0] for name, x in found.golden.readings.items()}
    with (
        begun("rl.bridge", "serve", path, "--listen=127.0.0.1:0") as at,
        closing(Remote(found, Elsewhere(at))) as policy,
    ):
        return timed(lambda: policy.step(readings, found.golden.command[0]), count, period)


def echoed(found: Artefact, count: int, period: float) -> Run:
    """Round trips of as many bytes by websockets alone."""
    golden, timing = found.golden, {"infer_ms": 0.1, "prev_total_ms": 0.1}
    seen = {name: x[0] for name, x in golden.readings.items()} | {"command": golden.command[0]}
    question = frames.pack(seen | {"reset": False})
    answer = frames.pack({"actions": golden.targets[:1], "server_timing": timing})
    with (
        begun("benchmarks.echo", len(answer)) as at,
        connect(at, compression=None, proxy=None) as link,
    ):

        def call() -> None:
            link.send(question)
            link.recv()

        return timed(call, count, period)


@contextmanager
def begun(*words: Any) -> Iterator[str]:
    """A module in a process of its own; where it says that it listens."""
    command = [sys.executable, "-m", *map(str, words)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if not (said := process.stdout.readline()):
                raise ValueError(f"{words[0]} did not begin.")
            yield said.split()[-1]
        finally:
            process.kill()


if __name__ == "__main__":
    guard(lambda: main(tyro.cli(Args, prog="python -m benchmarks.serving")))
