"""The PPO experiment as its user meets it: files, last line, bad input, interruption."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import cli, play, ppo, sac
from rl import checkpoint, health, record, runs

SMALL = ["--env", "InvertedPendulum-v5", "--num-envs", "16", "--unroll", "32",
         "--eval-episodes", "4", "--no-video", "--agent.minibatches", "8"]  # fmt: skip
SHORT = [*SMALL, "--steps", "1024", "--evals", "0"]
REPLAY = [*SMALL[:3], "4", *shlex.split("--no-video --steps 3000 --evals 0 --buffer-size 5000 "
          "--learning-starts 500 --agent.hidden 32 --agent.critic-hidden 32")]  # fmt: skip
FIVE = range(3, 8)


def train(out: Path, *words: str) -> None:
    ppo.main(cli.parse(ppo.Args, [*SMALL, "--out", str(out), *words]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "pendulum"
    train(out, "--steps", "40000", "--seeds", "3", "--evals", "2")
    return out


def test_it_learns_to_balance_and_leaves_a_record(trained: Path) -> None:
    manifest = json.loads((trained / "manifest.json").read_text())
    assert manifest["status"] == "done"
    assert manifest["config"]["env"]["reset_noise_scale"] == 0.01
    returns = np.mean(manifest["eval_returns"], axis=1)
    assert np.median(returns) > 800  # of 1,000; untrained: about 6
    rows = runs.read_metrics(trained)
    assert [row["step"] for row in rows] == sorted({row["step"] for row in rows})
    evals = runs.read_rows(trained / "evals.jsonl")
    assert [row["step"] for row in evals] == [rows[(len(rows) - 1) // 2]["step"], rows[-1]["step"]]
    assert evals[-1]["returns"] == manifest["eval_returns"]
    assert (trained / "curve.png").read_bytes()[:4] == b"\x89PNG"


def test_the_saved_policy_plays_as_it_was_judged(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env, policy, params = play.load(trained)
    poses, _, total = play.episode(env, policy, params, ppo.jax.random.key(3))
    assert len(poses) - total in (0, 1)  # a reward for each step, but for one that falls
    play.main(play.Args(trained, episodes=4, video=False))
    judged = np.mean(json.loads((trained / "manifest.json").read_text())["eval_returns"])
    said = float(capsys.readouterr().out.split("eval_return: ")[1])
    assert said == pytest.approx(judged, abs=0.06)


@pytest.mark.long
@pytest.mark.optimised
@pytest.mark.parametrize(
    ("alone", "experiment", "words"),
    [((7,), ppo, SHORT)]
    + [pytest.param(FIVE, *x, marks=pytest.mark.slow) for x in ((ppo, SHORT), (sac, REPLAY))],
)
def test_five_seeds_together_are_the_runs_alone_to_the_last_bit(
    alone: Sequence[int], experiment: Any, words: list[str], tmp_path: Path
) -> None:
    def run(name: str, *more: str) -> Path:
        experiment.main(cli.parse(experiment.Args, [*words, *more, "--out", f"{tmp_path / name}"]))
        return tmp_path / name

    together = run("together", "--seeds", "5", "--seed", f"{FIVE[0]}")
    for seed in alone:
        one, name = run(f"alone-{seed}", "--seed", str(seed)), f"policy-{seed}.safetensors"
        assert (together / name).read_bytes() == (one / name).read_bytes()


def test_a_run_is_never_written_over(tmp_path: Path) -> None:
    first, second = (record.Record(tmp_path / "run", 10) for _ in range(2))
    assert first.out != second.out
    assert json.loads((first.out / "manifest.json").read_text())["status"] == "running"


def test_nan_stops_the_run_with_its_cause(tmp_path: Path) -> None:
    words = "--steps", "20000", "--agent.lr", "1e30", "--no-anneal", "--evals", "0"
    why = r"loss became NaN .* by step [\d,]+.*only the first param"
    with pytest.raises(SystemExit, match=why):
        train(tmp_path / "run", *words)
    assert "NaN" in json.loads((tmp_path / "run" / "manifest.json").read_text())["status"]
    _, _, params = play.load(tmp_path / "run")
    assert all(np.isfinite(leaf).all() for leaf in ppo.jax.tree.leaves(params))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--env", "HalfCheeta-v5"], "Did you mean HalfCheetah-v5"),
        (["--num-envs", "100000000"], "GB are free: lower --num-envs"),
        (["--num-envs", "100000000", "--unroll", "64"], "GB are free: lower --num-envs"),
        (["--num-envs", "100000000", "--physics", "mjx"], "GB are free"),  # with its pool
        (["--threads", "-1"], "--threads is -1"),
        (["--num-envs", "0"], "--num-envs is 0"),
        (["--steps", "0"], "--steps is 0"),
        (["--evals", "-1"], "--evals is -1"),
        (["--agent.minibatches", "4096"], "minibatches"),
        (["--agent.minibatches", "512"], "minibatches of 2 or more"),
        (["--env.frame-skip", "0"], "0 physics steps"),
        (["--env.reset-noise-scale", "nan"], "reset_noise_scale is nan"),
        (["--env.xml-file", "./nowhere.xml"], "no model './nowhere.xml'"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], told: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        train(tmp_path / "run", *words)
    assert told in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "flag",
    [
        ["--physics", "bullet"],
        ["--steps", "many"],
        ["--stepz", "3"],
        ["--agent.lr", "-1"],
        ["--agent.gamma", "2"],
        ["--agent.hidden", "0"],
        ["--agent.epochs", "0"],
        ["--agent.minibatches", "0"],
    ],
)
def test_bad_flags_are_refused_by_the_parser(
    flag: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.parse(ppo.Args, [*SMALL, *flag])
    said = "".join(capsys.readouterr())
    assert flag[0].removeprefix("--").removeprefix("agent.") in said


@pytest.mark.skipif(sys.platform != "linux", reason="counts the threads in /proc")
@pytest.mark.parametrize("threads", [1, 3])
def test_threads_bound_what_xla_uses(threads: int) -> None:
    code = f"""
from pathlib import Path
from rl import resources
resources.use_threads({threads})
import jax
jax.block_until_ready(jax.jit(lambda x: x @ x)(jax.numpy.ones((256, 256))))
names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
print(sum("XLAEigen" in name for name in names))
"""
    said = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"JAX_PLATFORMS": "cpu"},
        cwd=Path(__file__).parent.parent, capture_output=True, text=True, close_fds=False,
        check=True,
    )  # fmt: skip
    assert int(said.stdout) == threads


def test_a_strange_or_damaged_run_is_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is no run: it has no manifest"):
        play.load(tmp_path)
    with pytest.raises(ValueError, match="has no seed 7"):
        play.load(trained, 7)
    (tmp_path / "manifest.json").write_text((trained / "manifest.json").read_text()[:100])
    with pytest.raises(ValueError, match="damaged"):
        play.load(tmp_path)
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match=r"another version: KeyError\('config'\)"):
        play.main(play.Args(tmp_path))
    (tmp_path / "manifest.json").write_text((trained / "manifest.json").read_text())
    with pytest.raises(ValueError, match=r"no policy-0\.safetensors; the run's status is 'done'"):
        play.load(tmp_path)
    policy = trained / "policy-0.safetensors"
    cut = tmp_path / "policy-0.safetensors"
    cut.write_bytes(policy.read_bytes()[:200])
    with pytest.raises(ValueError, match="cannot be read as parameters"):
        checkpoint.load_params(cut, {})
    with pytest.raises(ValueError, match="lacks other"):
        checkpoint.load_params(policy, {"other": np.zeros(1)})


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_run_stopped_from_outside_keeps_its_policy(sent: signal.Signals, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = [*SMALL, "--steps", "100000000", "--evals", "0", "--out", str(out)]
    with subprocess.Popen(
        [sys.executable, "-m", "experiments.ppo", *words],
        env=os.environ | {"JAX_PLATFORMS": "cpu"}, cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, close_fds=False,
    ) as process:  # fmt: skip
        try:
            while not (out / "metrics.jsonl").exists():
                assert process.poll() is None, process.stderr and process.stderr.read()
                time.sleep(0.2)
            time.sleep(np.random.default_rng(sent).uniform(0, 2))
            process.send_signal(sent)
            _, said = process.communicate(timeout=120)
        finally:
            process.kill()
    if sent == signal.SIGINT:
        assert process.returncode == 1
        assert f"stopped by Ctrl-C; its parameters are in {out}" in said
        assert (out / "curve.png").exists()
    env, policy, params = play.load(out)
    assert np.isfinite(play.judge(env, policy, params, 2)).all()
    assert runs.read_metrics(out)


def test_what_shows_that_a_learner_broke_is_named() -> None:
    nan, inf, one = np.array([1, np.nan]), np.float32(np.inf), np.ones(2)
    assert health.trouble({"value_loss": one, "episode_return": nan}, np.ones(3)) == ""
    assert "b_loss became NaN" in health.trouble({"a_loss": one, "b_loss": nan}, one)
    assert "a_loss became NaN" in health.trouble({"a_loss": inf}, one)
    assert "a parameter became NaN" in health.trouble({"a_loss": one}, {"w": inf})
    assert health.trouble({"q_over_return": np.array([3.0, 900.0])}, one) == ""
    told = health.trouble({"q_over_return": np.array([3.0, 5e4])}, one)
    assert told == "values became 50,000 times the largest return there was"


def test_what_ends_a_run_early_is_in_its_manifest(tmp_path: Path) -> None:
    for error, said in ((RuntimeError("no more"), "no more"), (KeyboardInterrupt(), "Ctrl-C")):
        with pytest.raises(type(error)), record.Record(tmp_path / "run", 10) as log:
            raise error
        assert said in json.loads((log.out / "manifest.json").read_text())["status"]


def test_failed_worlds_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = record.Record(tmp_path / "run", 10, seeds=[0, 1])
    log.log(5, {"failed": np.array([2.0, 1.0]), "episode_return": np.zeros(2)})
    assert "3 worlds FAILED" in capsys.readouterr().out
    log.log(10, {"failed": np.array([0.0, 1.0]), "episode_return": np.zeros(2)})
    assert "4 worlds FAILED" in capsys.readouterr().out


def test_others_may_read_a_policy(tmp_path: Path) -> None:
    checkpoint.save_params(tmp_path / "x.safetensors", {"w": np.ones(3)})
    (tmp_path / "plain").write_text("")
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1
    assert checkpoint.load_params(tmp_path / "x.safetensors", {"w": np.zeros(3)})["w"].sum() == 3
