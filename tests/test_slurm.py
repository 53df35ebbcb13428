"""Jobs: what is preempted or killed goes on to the same numbers, and Ctrl-C leaves none behind.

By submitit's executor of this machine; what SLURM itself adds is tried out by hand (README).
"""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from submitit.core.utils import FailedSubmissionError

from benchmarks import run
from benchmarks.engines import slurm
from benchmarks.engines.engine import Needs
from benchmarks.engines.slurm import Jobs, Slurm
from benchmarks.plan import Unit
from tests.test_cluster import drive, wait_for
from tests.test_sweep import args, manifests, results, toys, workers

LOCAL = "--engine", "submitit", "--slurm.local"


def jobs(tmp_path: Path) -> list[psutil.Process]:
    """The processes that wait for runs."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "submitit.core._submit" in words and any(str(tmp_path) in word for word in words):
            found.append(process)
    return found


def rows(tmp_path: Path, seed: int) -> Callable[[], bool]:
    """Whether a run has evaluated at all."""
    return lambda: bool([*(tmp_path / "runs").rglob(f"seed_{seed}/evals.jsonl")])


@pytest.mark.slow
def test_jobs_that_are_preempted_or_killed_go_on_to_the_same_numbers(tmp_path: Path) -> None:
    name, only = toys(tmp_path, seeds=2, pause=3.0), ("Hopper-v5", "plain")
    driver = drive(tmp_path, name, *LOCAL, "--jobs", "1", "--only", *only)
    wait_for(rows(tmp_path, 0), 100)
    for process in (*jobs(tmp_path), *workers(tmp_path)):
        process.send_signal(signal.SIGUSR2)  # as SLURM sends it to all that a job has
    wait_for(rows(tmp_path, 1), 100)
    for process in (*jobs(tmp_path), *workers(tmp_path)):
        process.kill()
    said, _ = driver.communicate(timeout=200)
    assert driver.returncode == 0, said
    disturbed = results(tmp_path)
    assert [len(facts["resumed"]) for facts in manifests(tmp_path).values()] == [1, 1]
    told = "".join(path.read_text() for path in (tmp_path / "runs").rglob("*_log.out"))
    assert told.count("Requeued job") == 1
    shutil.rmtree(tmp_path / "runs")
    run.main(args(tmp_path, name, only=only))
    assert disturbed == results(tmp_path)
    assert len(disturbed) == 2


@pytest.mark.slow
def test_ctrl_c_leaves_no_job_behind(tmp_path: Path) -> None:
    name = toys(tmp_path, seeds=1, pause=3.0)
    driver = drive(tmp_path, name, *LOCAL, "--jobs", "1", "--only", "Hopper-v5", "plain")
    wait_for(rows(tmp_path, 0), 100)
    driver.send_signal(signal.SIGINT)
    said, _ = driver.communicate(timeout=100)
    assert driver.returncode == 130, said
    assert not workers(tmp_path)
    wait_for(lambda: not jobs(tmp_path), 10)


class Queue:
    """An executor that takes so many jobs at a time; they are done when one says so."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, list[Any]()

    def submit(self, job: slurm.Job) -> Any:
        if self.most == 0:
            raise FailedSubmissionError("sbatch: error: try again\nsbatch: error: too many jobs")
        self.most -= 1
        self.taken.append(Taken(job.unit))
        return self.taken[-1]


class Taken:
    class paths:
        result_pickle = Path("nowhere")

    def __init__(self, unit: Unit) -> None:
        self.unit, self.is_done = unit, False

    def done(self) -> bool:
        return self.is_done


def test_jobs_that_are_refused_wait_for_those_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(most=1)
    monkeypatch.setattr(slurm, "executor", lambda *_: queue)
    monkeypatch.setattr(slurm, "LOOK", 0.0)
    engine = Jobs(2, Needs(1, 1.0), Slurm(), tmp_path)
    first, second = (
        Unit("t", "a", (seed,), 1, tmp_path / f"seed_{seed}", "p", (), "") for seed in (0, 1)
    )
    engine.submit(first)
    engine.submit(second)
    assert engine.poll() == []
    assert [job.unit for job in queue.taken] == [first]
    queue.most, queue.taken[0].is_done = 1, True
    assert engine.poll() == [(first, None)]
    assert [job.unit for job in queue.taken] == [first, second]
    queue.taken[1].is_done = True
    assert engine.poll() == [(second, None)]
    with pytest.raises(ValueError, match=r"^SLURM takes no job: sbatch: error: too many jobs\.$"):
        engine.submit(first)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, r"there is no SLURM here \(no srun\).*--slurm.local"),
        ({"gpus": 0.5}, r"--gpus 0.5: a job of SLURM has whole GPUs"),
        ({"slurm": Slurm(hours=0)}, r"--slurm.hours is 0"),
    ],
)
def test_what_cannot_be_queued_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=said):
        run.main(args(tmp_path, toys(tmp_path), engine="submitit", **given))
