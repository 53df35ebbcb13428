"""One run in several processes is the run in one, and ends well whatever becomes of one of them."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest

from experiments.launch import free_port
from rl import processes, runs
from tests.test_parallel import SAME, same, told
from tests.test_sweep import ROOT

SAC = (
    "--steps 500 --num-envs 8 --learning-starts 80 --buffer-size 400 --batch-size 64 --save-s 0 "
    "--agent.hidden 32 --agent.critic-hidden 32"  # 54 updates
)
SHORT = [*SAME.split(), *SAC.split()]


def launch(*words: str, group: str = "--processes 2 --devices 2") -> subprocess.Popen:
    command = [sys.executable, "-m", "experiments.launch", *group.split(), "--", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=PIPE, stderr=PIPE, text=True)


def ran(words: list[str], devices: int = 1, **environment: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", *words]
    env = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices)} | environment
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def wait_for_a_checkpoint(run: Path, one: subprocess.Popen, limit: float = 300) -> None:
    end = time.monotonic() + limit
    while not list(run.glob("checkpoints/*/seal.json")):
        assert time.monotonic() < end
        assert one.poll() is None, one.communicate()
        time.sleep(0.1)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run in one process, on one device."""
    run = tmp_path_factory.mktemp("alone") / "run"
    ended = ran(["experiments.sac", *SHORT, "--out", str(run)])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return run


@pytest.mark.long
def test_four_devices_learn_what_one_does(alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    ended = ran(["experiments.sac", *SHORT, "--out", str(run)], devices=4)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "SPMD" not in ended.stderr
    same(told(alone), told(run))


@pytest.mark.long
def test_two_processes_learn_what_one_does_and_go_on_as_one(alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    one = launch("sac", *SHORT, "--out", str(run))
    said, wrong = one.communicate()
    assert one.returncode == 0, said + wrong
    assert "SPMD" not in wrong  # which warns where all is sent to one device
    assert said.count("on       4 x cpu, in 2 processes\n") == 1
    assert said.count("eval_return") == 1  # the first says it for all
    assert "Gloo" not in said
    same(told(alone), told(run))
    first = min(int(path.name) for path in (run / "checkpoints").iterdir())
    ended = ran(["experiments.sac", "--resume", str(run / f"checkpoints/{first}")])
    assert ended.returncode == 0, ended.stdout + ended.stderr
    same(told(alone), told(run))


@pytest.mark.long
def test_a_process_that_is_lost_ends_the_run_which_goes_on_without_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    one = launch("sac", *SHORT, "--steps", "4000", "--out", str(run))
    wait_for_a_checkpoint(run, one)
    children = subprocess.run(["pgrep", "-P", str(one.pid)], capture_output=True, text=True)
    os.kill(int(children.stdout.split()[1]), signal.SIGKILL)
    killed = time.monotonic()
    _, wrong = one.communicate()
    assert time.monotonic() - killed < 60
    assert one.returncode != 0
    assert "process 1 was ended by SIGKILL: --resume goes on without it" in wrong
    assert not runs.finished(runs.read_manifest(run))
    ended = ran(["experiments.sac", "--resume", str(run)], devices=2)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "goes on from its checkpoint" in ended.stdout
    steps = [row["step"] for row in runs.read_metrics(run)]
    assert steps == sorted({*steps})
    assert runs.finished(runs.read_manifest(run))


@pytest.mark.parametrize(("killed", "srun"), [(0, False), (1, False), (1, True)])
def test_one_that_waits_notices_that_another_is_gone(
    killed: int, srun: bool, tmp_path: Path
) -> None:
    code = """
import sys, time
from pathlib import Path
from rl import processes
processes.join()
with processes.together(Path("runs/it"), lambda status: Path(sys.argv[1]).write_text(status)):
    print("in", file=sys.stderr, flush=True)
    time.sleep(100)
"""
    address = told_of("127.0.0.1", free_port())
    group = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / str(i))],
            env=os.environ | (of_slurm(i) if srun else address | {"JAX_PROCESS_ID": str(i)}),
            cwd=ROOT, stderr=PIPE, text=True,
        )
        for i in (0, 1)
    ]  # fmt: skip
    assert all(one.stderr.readline() == "in\n" for one in group)
    group[killed].kill()
    _, wrong = group[1 - killed].communicate(timeout=20)
    group[killed].communicate()
    assert group[1 - killed].returncode != 0
    if killed:  # without the first JAX may be quicker to abort
        assert "--resume runs/it goes on, on what is left" in wrong
        assert "was lost" in (tmp_path / "0").read_text()


def of_slurm(number: int) -> dict[str, str]:
    """What srun tells one of two tasks of a step, on this machine."""
    step = {"NODELIST": "localhost", "NUM_TASKS": "2", "NUM_NODES": "1"}
    task = {"JOB_ID": str(os.getpid()), "NTASKS": "2", "PROCID": str(number), "LOCALID": "0"}
    task |= {f"STEP_{name}": value for name, value in step.items()}
    return {f"SLURM_{name}": value for name, value in task.items()}


def told_of(host: str, port: int) -> dict[str, str]:
    return {"JAX_COORDINATOR_ADDRESS": f"{host}:{port}", "JAX_NUM_PROCESSES": "2"}


@pytest.mark.long
def test_asked_to_stop_all_stop_together(tmp_path: Path) -> None:
    run = tmp_path / "run"
    one = launch("sac", *SHORT, "--steps", "9000", "--evals", "16", "--out", str(run))
    wait_for_a_checkpoint(run, one)
    one.send_signal(signal.SIGTERM)
    said, wrong = one.communicate(timeout=120)
    assert one.returncode == 1
    assert "stopped by SIGTERM" in runs.read_manifest(run)["status"]
    assert f"--resume {run}" in said
    assert "Traceback" not in wrong


@pytest.mark.long
def test_asked_to_stop_while_it_compiles_it_ends(tmp_path: Path) -> None:
    one = launch("sac", *SHORT, "--out", str(tmp_path / "run"))
    while "compiles before its first step" not in (line := one.stdout.readline()):
        assert line, one.communicate()
    one.send_signal(signal.SIGTERM)
    _, wrong = one.communicate(timeout=30)
    assert one.returncode != 0
    assert "Traceback" not in wrong
    assert not list(tmp_path.glob("run/checkpoints/*"))


def test_a_port_in_use_is_told_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        told = told_of("127.0.0.1", taken.getsockname()[1]) | {"JAX_PROCESS_ID": "0"}
        ended = ran(["experiments.sac", *SHORT], **told)
    assert ended.returncode == 1
    assert "Address already in use: name another HOST:PORT" in ended.stderr


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"JAX_COORDINATOR_ADDRESS": "no.invalid:1"}, "name another HOST:PORT"),
        ({"JAX_NUM_PROCESSES": "2"}, "JAX_NUM_PROCESSES is set and JAX_COORDINATOR_ADDRESS is not"),
        ({"JAX_NUM_PROCESSES": "two"}, "JAX_NUM_PROCESSES is 'two'; it takes a number"),
        ({"JAX_NUM_PROCESSES": "0"}, "JAX_NUM_PROCESSES is 0; it needs at least 1"),
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID is 2; of 2 processes the last is 1"),
        ({"JAX_COORDINATOR_ADDRESS": "here"}, "'here'; it takes HOST:PORT"),
        ({"JAX_COORDINATOR_ADDRESS": "here:99999"}, "a port of 1 to 65,535"),
    ],
)
def test_who_is_not_told_who_it_is_is_refused(environment: dict[str, str], why: str) -> None:
    whole = {"JAX_COORDINATOR_ADDRESS": "127.0.0.1:1", "JAX_NUM_PROCESSES": "2"}
    whole = whole | {"JAX_PROCESS_ID": "1"} if len(environment) == 1 else {}
    given = environment if "set and" in why else whole | environment
    ended = ran(["experiments.sac", *SHORT], **given)
    assert ended.returncode == 1
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_tasks_of_slurm_that_nothing_started_are_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", "4")
    assert processes.join() == 1
    assert capsys.readouterr().err.endswith("this is one process: srun starts all\n")


@pytest.mark.parametrize("me", ["0", "1"])
def test_one_that_does_not_come_is_told(me: str) -> None:
    assert processes.WAIT < 60
    code = "from rl import processes; processes.WAIT = 3; processes.join()"
    env = os.environ | told_of("127.0.0.1", free_port()) | {"JAX_PROCESS_ID": me}
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert f"This is process {me} of 2, and after 3 s not all have come to" in ended.stderr
    assert "stack trace" not in ended.stderr


def test_an_experiment_comes_after_two_dashes() -> None:
    ended = ran(["experiments.launch", "sac", "--shards", "2"])
    assert ended.returncode == 1
    assert ended.stderr == "error: Before the experiment comes --, as in -- sac --shards 2.\n"


def test_a_cluster_that_is_not_there_is_told_of() -> None:
    one = launch("sac", "--shards", "2", group=f"--ray 127.0.0.1:{free_port()}")
    _, wrong = one.communicate(timeout=60)
    assert one.returncode == 1
    assert "no cluster of Ray lets this machine in (Connection refused)" in wrong


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "After -- come an experiment and its flags"),
        (["nothing"], "there is no experiment 'nothing'"),
        (["hil"], "give hil --shards"),
        (["play", "runs/it"], "give play --shards"),
        (["sac", "--shards", "1"], "give --shards"),
        (["sac", "--shards", "3", "--num-envs", "3", "--batch-size", "3"], "4 devices do not"),
    ],
)
def test_what_cannot_be_shared_is_refused(words: list[str], why: str) -> None:
    one = launch(*words)
    _, wrong = one.communicate(timeout=60)
    assert one.returncode == 1
    assert why in wrong
    assert "Traceback" not in wrong
