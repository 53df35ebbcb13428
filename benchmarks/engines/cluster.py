"""The runs of a sweep as tasks of Ray, on this machine or on a cluster.

Every machine must see this folder, its Python and the runs under the paths that the driver has
for them, and must see the locks of the others.  That is looked at before anything runs.
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import machine
from benchmarks.engines.engine import PATIENCE, Ended, Needs, Site, carry_out, site
from benchmarks.plan import Unit
from rl import runs
from rl.ray import drive, has_token, loaded, why

LOOKS = 60.0  # s for its machines to be looked at
SHARE = "All must see the driver's folder, its Python and the runs under the same paths"


class Cluster:
    """Some runs at a time as tasks, each with threads, memory and a GPU of its own.

    With an address and no number of jobs, as many as the machines have room for.
    """

    def __init__(self, jobs: int, needs: Needs, address: str, folder: Path) -> None:
        ray = loaded("--engine ray", bool(address) and has_token())
        if not ray.is_initialized():  # as the second sweep of a search finds it
            join(ray, address, jobs * needs.threads)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        self.jobs, self.site = room_of(nodes, needs), site(needs)
        self.jobs = jobs or self.jobs
        if address:
            look(ray, nodes, self.site, folder)
        wants: dict[str, Any] = {"num_cpus": needs.threads, "memory": int(needs.memory_gb * 1e9)}
        wants |= {"num_gpus": needs.gpus, "max_retries": 0}
        self._task = ray.remote(**wants)(carry_out)
        self._ray, self._running = ray, dict[Any, Unit]()

    def submit(self, unit: Unit) -> None:
        there = unit._replace(out=unit.out.absolute())
        self._running[self._task.remote(there, self.site)] = unit

    def poll(self) -> list[Ended]:
        if not self._running:
            return []
        ended, refs = [], list(self._running)
        done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        for ref in done:
            try:
                code = self._ray.get(ref)
            except (self._ray.exceptions.RayError, OSError):
                code = None
            ended.append(Ended(self._running.pop(ref), code))
        return ended

    def cancel(self) -> None:
        for ref in self._running:
            self._ray.cancel(ref)
        if self._running:
            refs = list(self._running)
            self._ray.wait(refs, num_returns=len(refs), timeout=PATIENCE)
        self._running = {}


def join(ray: Any, address: str, cores: int) -> None:
    """Be let into a cluster, or begin one with so many cores."""
    if address:
        drive("--address", address)
    else:
        ray.init(
            address="local",  # and not one that someone began on this machine
            num_cpus=cores, include_dashboard=False, log_to_driver=False, configure_logging=False,
        )  # fmt: skip


def room_of(nodes: Iterable[Mapping[str, Any]], needs: Needs) -> int:
    """Runs that fit on these machines at a time; ValueError where none does."""
    wants = {"CPU": needs.threads, "memory": needs.memory_gb * 1e9, "GPU": needs.gpus}
    found = 0
    for node in nodes:
        has = node["Resources"]
        found += int(min(has.get(name, 0) / wanted for name, wanted in wants.items() if wanted))
    if not found:
        gpus = f" and {needs.gpus:g} GPUs" if needs.gpus else ""
        raise ValueError(
            f"No machine of Ray's has room for a run: it takes {needs.threads} cores, "
            f"{needs.memory_gb:g} GB{gpus}."
        )
    return found


def look(ray: Any, nodes: Iterable[Mapping[str, Any]], site: Site, folder: Path) -> None:
    """Raise ValueError where a machine has not what this one has: files, code, and locks."""
    from ray.exceptions import NodeDiedError, TaskUnschedulableError, WorkerCrashedError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    gone = NodeDiedError, TaskUnschedulableError, WorkerCrashedError
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".look-", dir=folder.absolute()) as there:
        path = Path(there) / "lock"
        lock = runs.locked(path)
        words = [site.python, "-m", "benchmarks.machine", str(path)]
        run = ray.remote(max_retries=0, num_cpus=0)(subprocess.run)
        asked = {
            run.options(scheduling_strategy=On(node["NodeID"], soft=False)).remote(
                words, cwd=site.where, capture_output=True, text=True
            ): node["NodeManagerAddress"]
            for node in nodes
        }
        ray.wait(list(asked), num_returns=len(asked), timeout=LOOKS)
        for ref, name in asked.items():
            try:
                said = ray.get(ref, timeout=0.1)
            except gone:  # while it was asked: Ray is slow to notice
                continue
            except ray.exceptions.GetTimeoutError:
                raise ValueError(f"Machine {name} said nothing for {LOOKS:.0f} s.") from None
            except (ray.exceptions.RayError, OSError) as error:
                raise ValueError(f"Machine {name}: {why(str(error))}. {SHARE}.") from error
            judge(name, said)
        os.close(lock)


def judge(name: str, said: subprocess.CompletedProcess[str]) -> None:
    """Raise ValueError unless a machine has what the driver has."""
    if said.returncode:
        raise ValueError(f"Machine {name}: {why(said.stderr)}. {SHARE}.")
    found = json.loads(said.stdout)
    if not found["there"]:
        raise ValueError(f"Machine {name} does not see the driver's runs. {SHARE}.")
    if found["code"] != machine.code():
        raise ValueError(f"Machine {name} has other code than the driver. {SHARE}.")
    if not found["held"]:
        raise ValueError(
            f"Machine {name} does not see locks of the driver: the file system of the runs keeps "
            "them to each machine, so that a run might be made twice. Choose another --runs."
        )
