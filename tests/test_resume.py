"""Runs killed from outside at any moment go on as if nothing had happened, to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rl import record, runs
from rl.checkpoint import Checkpoints
from rl.saver import Blocks, Saver
from rl.types import Transition

ROOT = Path(__file__).parent.parent
COMMON = ["--env", "InvertedPendulum-v5", "--no-video", "--save-s", "0", "--eval-episodes", "2"]
WORDS = {
    "ppo": ["--steps", "120000", "--num-envs", "16", "--unroll", "32", "--seeds", "2",
            "--agent.minibatches", "8"],
    "sac": ["--steps", "40000", "--num-envs", "4", "--buffer-size", "6000", "--seeds", "2",
            "--agent.hidden", "16", "--agent.critic-hidden", "16", "--learning-starts", "100",
            "--n-step", "2"],
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
            {k: v for k, v in row.items() if k != "wall_s"} for row in runs.read_rows(run / name)
        ]
        for name in record.ROWS
    }


def shown(run: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run's first seed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(run / "tb" / "seed_0"))
    board.Reload()
    tags = board.Tags()["tensors"]
    return {
        tag: [(e.step, e.tensor_proto.float_val[0]) for e in board.Tensors(tag)] for tag in tags
    }


def kill(process: subprocess.Popen, run: Path, rng: np.random.Generator) -> None:
    """Kill at a random moment: of starting, or after this attempt has written a checkpoint."""
    rows = len(runs.read_metrics(run))
    if rng.random() < 0.3:
        time.sleep(rng.uniform(1, 8))
    else:  # a second row comes after the first one's checkpoint
        while process.poll() is None and len(runs.read_metrics(run)) < rows + 2:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.4))
    process.send_signal(signal.SIGKILL)


def kill_and_resume(name: str, tmp_path: Path, kills: int, *words: str) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    words = (*COMMON, *WORDS[name], *words)
    finished(name, *words, "--out", str(whole))
    begin, rng = [*words, "--out", str(broken)], np.random.default_rng(kills)
    for _ in range(kills):
        again = (broken / "manifest.json").exists()
        with started(name, *(["--resume", str(broken)] if again else begin)) as process:
            kill(process, broken, rng)
            _, said = process.communicate()
        assert process.returncode == -signal.SIGKILL, said
    finished(name, "--resume", str(broken))
    assert told(broken) == told(whole)
    for seed in (0, 1):
        policy = f"policy-{seed}.safetensors"
        assert (broken / policy).read_bytes() == (whole / policy).read_bytes()
    assert shown(broken) == shown(whole)
    steps = [row["step"] for row in runs.read_metrics(broken)]
    assert steps == sorted(set(steps))
    manifests = [json.loads((run / "manifest.json").read_text()) for run in (whole, broken)]
    assert manifests[0]["eval_returns"] == manifests[1]["eval_returns"]
    assert max(attempt.get("step", 0) for attempt in manifests[1]["resumed"]) > 0


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_a_killed_run_ends_as_the_undisturbed_one(name: str, tmp_path: Path) -> None:
    kill_and_resume(name, tmp_path, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_ten_kills_leave_no_trace(name: str, tmp_path: Path) -> None:
    longer = {"ppo": "300000", "sac": "200000"}[name]
    kill_and_resume(name, tmp_path, 10, "--steps", longer)


def state(seed: int) -> dict[str, Any]:
    key = jax.random.key(seed)
    return {"w": jax.random.normal(key, (300, 3)), "key": key, "n": jnp.int32(seed)}


ABOUT = {"algorithm": "sac", "env": "Hopper-v5"}


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoints:
    found = Checkpoints(tmp_path / "checkpoints", ABOUT)
    for step, score in ((1, 9.0), (2, 1.0), (3, 2.0), (4, 3.0), (5, 2.0)):
        found.save(step, state(step), score)
    return found


def same(a: Any, b: Any) -> bool:
    return jax.tree.all(jax.tree.map(lambda x, y: np.all(x == y), a, b))


def test_the_last_three_and_the_best_are_kept(saved: Checkpoints) -> None:
    assert saved.steps() == [1, 3, 4, 5]
    assert same(saved.restore(state(0)), (5, state(5)))
    assert same(saved.restore(state(0), 1), (1, state(1)))
    with pytest.raises(ValueError, match=r"no checkpoint 2 in .*it has \[1, 3, 4, 5\]"):
        saved.restore(state(0), 2)


def damaged(folder: Path, how: str) -> None:
    """Cut off or change the largest file: where the arrays are."""
    largest = max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 0x10
    largest.write_bytes(content[: len(content) // 2] if how == "cut" else content)


@pytest.mark.parametrize("how", ["cut", "flipped"])
def test_a_damaged_checkpoint_is_refused_and_the_good_one_offered(
    how: str, saved: Checkpoints
) -> None:
    damaged(saved.folder / "5", how)
    fresh = Checkpoints(saved.folder, ABOUT)
    with pytest.raises(ValueError, match=r"checkpoints/5 .*newest good one is .*checkpoints/4\."):
        fresh.restore(state(0))
    assert same(fresh.restore(state(0), 4), (4, state(4)))


def test_a_checkpoint_of_something_else_is_refused_by_name(saved: Checkpoints) -> None:
    with pytest.raises(ValueError, match="has algorithm 'sac', not 'ppo'"):
        Checkpoints(saved.folder, ABOUT | {"algorithm": "ppo"}).restore(state(0))
    with pytest.raises(ValueError, match=r"has w as float32\[300, 3\]; this run needs .*\[4\]"):
        saved.restore(state(0) | {"w": jnp.zeros(4)})
    with pytest.raises(ValueError, match="has more as None"):
        saved.restore(state(0) | {"more": jnp.zeros(4)})


def test_a_disk_that_is_full_costs_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"algorithm": "ppo", "env": "x", "config": {}, "seeds": [0]}
    with record.Record(tmp_path / "run", 10, **facts) as log:
        saver = Saver(log, 0)
        saver.save(1, state(1))

        def full(step: int, **_: Any) -> None:
            (saver.checkpoints.folder / f"{step}.orbax-checkpoint-tmp").mkdir()
            raise ValueError("No space left on device, at great length")

        with monkeypatch.context() as patch:
            patch.setattr(saver.checkpoints._manager, "save", full)
            saver.save(2, state(2))
        with monkeypatch.context() as patch:
            patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4000))
            saver.save(2, state(2))
        told = capsys.readouterr().err
        assert "could not write the checkpoint of step 2: No space left on device, at" in told
        assert "could not write the checkpoint of step 2: No space left on device\n" in told
        assert len(log.manifest["warnings"]) == 2
        assert not list(saver.checkpoints.folder.glob("*tmp*"))
        assert same(saver.restore(state(0)), state(1))
        saver.save(3, state(3))
        assert same(saver.restore(state(0)), state(3))


def blocks(first: int, count: int) -> Transition:
    x = np.arange(first, first + count, dtype=np.float32)[None, :, None]
    return Transition({"a": x[..., None]}, x[..., None], x, x > 3, x > 5, {"a": x[..., None]}, ())


def test_rows_are_read_back_over_the_seams_of_blocks(tmp_path: Path) -> None:
    store = Blocks(tmp_path / "replay")
    for first, count in ((0, 4), (4, 3), (7, 5)):
        store.append(first, blocks(first, count))
    for first, end in ((0, 12), (3, 8), (5, 6)):
        assert same(store.load(first, end, blocks(0, 1)), blocks(first, end - first))
    with pytest.raises(ValueError, match="lacks rows 12 to 14"):
        store.load(3, 14, blocks(0, 1))
    store.keep(4, 7)
    assert same(store.load(4, 7, blocks(0, 1)), blocks(4, 3))
    with pytest.raises(ValueError, match="lacks rows 0 to 7"):
        store.load(0, 7, blocks(0, 1))
    path = next((tmp_path / "replay").glob("rows-*"))
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged"):
        store.load(4, 7, blocks(0, 1))


def test_a_run_in_use_is_refused(tmp_path: Path) -> None:
    with record.Record(tmp_path / "run", 10) as log:
        code = "import sys; from pathlib import Path; from rl.record import Record;"
        code += "Record.again(Path(sys.argv[1]))"
        other = subprocess.run(
            [sys.executable, "-c", code, str(log.out)], cwd=ROOT, close_fds=False,
            env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert f"is in use by process {os.getpid()}." in other.stderr
    with record.Record.again(tmp_path / "run"):
        pass  # free again
