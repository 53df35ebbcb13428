"""What learning from a dataset holds in memory: one process, one line of JSON.

python -m benchmarks.memory --steps 2000000

`value` is the most bytes that were the process's own at one time, while `experiments.offline` read
noise of that many steps from a file and learned of it; what is mapped from the file is not among
them, as it leaves when memory is short.  `data` is the file's bytes.
"""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.iql import IQL
from benchmarks.learning import noise
from experiments import offline
from rl.data import npz

EVERY = 0.02  # s between two looks


@dataclass(frozen=True)
class Args:
    steps: int = 2_000_000  # of the data
    updates: int = 200
    seed: int = 0


def own() -> int:
    """Bytes of anonymous memory that this process holds (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(x.split()[1]) for x in lines if x.startswith("RssAnon:"))


@contextmanager
def watched() -> Iterator[list[int]]:
    """The most that `own` says until the block ends, in a list of one."""
    most, done = [own()], threading.Event()

    def watch() -> None:
        while not done.is_set():
            most[0] = max(most[0], own())
            time.sleep(EVERY)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def main(args: Args) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "noise.npz"
        npz.write(path, noise(args.steps, args.seed))
        run = offline.Args(
            data=path, agent=IQL(hidden=(16,)), steps=args.updates, eval_episodes=1, evals=0,
            seed=args.seed, video=False, out=Path(folder) / "run",
        )  # fmt: skip
        with watched() as most, redirect_stdout(sys.stderr):
            offline.main(run)
        print(json.dumps({"value": most[0], "data": path.stat().st_size}))


if __name__ == "__main__":
    main(tyro.cli(Args))
