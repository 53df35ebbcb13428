"""A cluster of Ray on this machine: nodes of processes of their own, any of which can be lost."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.process import Failed

STARTS = 90.0  # s for a node to be there
RAY = sys.executable, "-m", "ray.scripts.scripts"


class Nodes:
    """The head, which is the first, and the others."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, list[subprocess.Popen[bytes]]()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    def add(self, cores: int) -> None:
        """One more, as `ray start` begins it on a machine."""
        words = ["--address", self.address]
        if not self.nodes:
            words = ["--head", "--port", self.address.rpartition(":")[2],
                     "--include-dashboard", "false"]  # fmt: skip
        words += ["--num-cpus", str(cores), "--block", "--disable-usage-stats"]
        path = self.folder / f"node-{len(self.nodes)}.log"
        env = os.environ | {"RAY_AUTH_MODE": "disabled"}
        with path.open("wb") as log:
            started = subprocess.Popen(
                [*RAY, "start", *words], stdin=subprocess.DEVNULL, stdout=log,
                stderr=subprocess.STDOUT, env=env, start_new_session=True,
                cwd=self.folder,  # another than a driver's

            )  # fmt: skip
        self.nodes.append(started)
        until = time.monotonic() + STARTS
        while "Ray runtime started" not in path.read_text():
            if started.poll() is not None or time.monotonic() > until:
                raise Failed(f"A node of Ray did not start; see {path}")
            time.sleep(0.1)

    def lose(self, which: int) -> int:
        """Kill all that there is of a node, as when its power fails; how many processes."""
        node = psutil.Process(self.nodes[which].pid)
        gone = [*node.children(recursive=True), node]
        for process in gone:  # stop all first: whoever sees another die may start or tell others
            self._send(process, signal.SIGSTOP)
        gone = [*{*gone, *node.children(recursive=True)}]
        for process in gone:
            self._send(process, signal.SIGKILL)
        self.nodes[which].wait()
        psutil.wait_procs(gone, timeout=10)
        return len(gone)

    @staticmethod
    def _send(process: psutil.Process, number: int) -> None:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


@contextmanager
def cluster(folder: Path, *cores: int) -> Iterator[Nodes]:
    """Nodes with so many cores each, to the end of the block."""
    nodes = Nodes(folder)
    try:
        for count in cores:
            nodes.add(count)
        yield nodes
    finally:
        for which, node in reversed([*enumerate(nodes.nodes)]):
            if node.poll() is None:
                nodes.lose(which)
