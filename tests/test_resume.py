"""Runs killed from outside at any moment go on as if nothing had happened, to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rl import runs

ROOT = Path(__file__).parent.parent
TIMES = "wall_s", "steps_per_s"
COMMON = ["--no-video", "--save-s", "0", "--eval-episodes", "2"]
PENDULUM = ["--env", "InvertedPendulum-v5"]
GO2 = ["--env", "go2-joystick-flat", "--steps", "40000", "--num-envs", "16", "--seeds", "2",
       "--agent.hidden", "8"]  # fmt: skip
WORDS = {
    "ppo": ["--steps", "60000", "--num-envs", "16", "--unroll", "32", "--seeds", "2",
            "--agent.minibatches", "8"],
    "sac": ["--steps", "4000", "--num-envs", "4", "--buffer-size", "2000", "--seeds", "2",
            "--agent.hidden", "16", "--agent.critic-hidden", "16", "--learning-starts", "100",
            "--n-step", "2", "--evals", "5"],
    "crossq": ["--steps", "24000", "--num-envs", "4", "--buffer-size", "6000", "--seeds", "2",
               "--agent.hidden", "16", "--agent.critic-hidden", "16", "--agent.warm", "1000"],
    "simbav2": ["--steps", "24000", "--num-envs", "4", "--buffer-size", "6000", "--seeds", "2",
                "--agent.hidden", "8", "--agent.critic-hidden", "8"],
}  # fmt: skip


def started(name: str, *words: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", f"experiments.{name}", *words],
        env=os.environ | {"JAX_PLATFORMS": "cpu"}, cwd=ROOT, close_fds=False,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finished(name: str, *words: str) -> str:
    with started(name, *words) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


def told(run: Path) -> dict[str, list[dict[str, Any]]]:
    """What a run has recorded, but for the clock."""
    return {
        name: [
            {k: v for k, v in row.items() if k not in TIMES} for row in runs.read_rows(run / name)
        ]
        for name in runs.ROWS
    }


def shown(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run's first seed, but for the clock."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tb" / "seed_0"))
    board.Reload()
    tags = set(board.Tags()["scalars"]) - {"charts/SPS"}
    return {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in tags}


def kill(process: subprocess.Popen, run: Path, rng: np.random.Generator, early: float) -> None:
    """Kill at a random moment: of starting, or after this attempt has written a checkpoint."""
    rows = len(runs.read_metrics(run))
    if rng.random() < early:
        time.sleep(rng.uniform(1, 8))
    else:  # a second row comes after the first one's checkpoint
        while process.poll() is None and len(runs.read_metrics(run)) < rows + 2:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.4))
    process.send_signal(signal.SIGKILL)


def kill_and_resume(name: str, tmp_path: Path, kills: int, *words: str) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = (*COMMON, *(PENDULUM + WORDS[name] if name in WORDS else GO2), *words)
    finished(name, *words, "--out", str(whole))
    begin, rng = [*words, "--out", str(broken)], np.random.default_rng(kills)
    for _ in range(kills):
        again = (broken / "manifest.json").exists()
        with started(name, *(["--resume", str(broken)] if again else begin)) as process:
            kill(process, broken, rng, early=0.3 if kills > 1 else 0)
            _, said = process.communicate()
        assert process.returncode == -signal.SIGKILL, said
    finished(name, "--resume", str(broken))
    assert told(broken) == told(whole)
    for seed in (0, 1):
        policy = f"policy-{seed}.safetensors"
        assert (broken / policy).read_bytes() == (whole / policy).read_bytes()
    assert shown(broken) == shown(whole) != {}
    steps = [row["step"] for row in runs.read_metrics(broken)]
    assert steps == sorted(set(steps))
    manifests = [json.loads((run / "manifest.json").read_text()) for run in (whole, broken)]
    assert manifests[0]["eval_returns"] == manifests[1]["eval_returns"]
    assert max(attempt.get("step", 0) for attempt in manifests[1]["resumed"]) > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["sac", *(pytest.param(x, marks=pytest.mark.slow) for x in ("ppo", "crossq", "simbav2"))],
)
def test_a_killed_run_ends_as_the_undisturbed_one(name: str, tmp_path: Path) -> None:
    kill_and_resume(name, tmp_path, 1)


@pytest.mark.slow
def test_a_walker_and_its_student_go_on_after_a_kill(tmp_path: Path) -> None:
    kill_and_resume("walk", tmp_path, 1)
    teacher = tmp_path / "teacher"
    finished("walk", *COMMON, *GO2, "--env.omniscient", "--out", str(teacher))
    for run in ("whole", "broken"):
        (tmp_path / run).rename(tmp_path / f"{run}-walk")
    kill_and_resume("teacher_student", tmp_path, 1, "--teacher", str(teacher))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_ten_kills_leave_no_trace(name: str, tmp_path: Path) -> None:
    longer = {"ppo": "300000", "sac": "200000"}[name]
    kill_and_resume(name, tmp_path, 10, "--steps", longer)
