"""Environments that Gymnasium knows by an id: judged in, learned of from data, and no more."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

from envs.adapters.foreign import Foreign
from experiments import cli, course, drive, fqe, make_data, offline, play, sac
from rl import policy, rollout, runs
from rl.data import dataset, npz
from rl.data.fqe import FQE

NAME = "slope:Slope-v0"


def best(obs: np.ndarray) -> np.ndarray:
    """In [-1, 1]."""
    return np.clip((-5 * obs[..., :1] - obs[..., 1:]) / 2, -1, 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Episodes of someone who nearly knows how."""
    env, rng = gymnasium.make(NAME), np.random.default_rng(0)
    rows: list[Any] = []
    for seed in range(60):
        np.random.seed(seed)
        obs, over = env.reset(seed=seed)[0], False
        while not over:
            action = np.clip(best(obs) + rng.normal(0, 0.1, 1), -1, 1).astype(np.float32)
            after, reward, ended, cut, _ = env.step(2 * action)
            over = ended or cut
            rows.append((obs, action, reward, ended, cut, after))
            obs = after
    names = "obs", "action", "reward", "terminated", "truncated", "next_obs"
    steps = {n: np.array(x) for n, x in zip(names, zip(*rows, strict=True), strict=True)}
    ends = np.flatnonzero(steps["terminated"] | steps["truncated"])
    steps["reward"] = steps["reward"].astype(np.float32)
    path = tmp_path_factory.mktemp("data") / "slope.npz"
    npz.write(path, dataset.compact(steps, {"length": np.diff(ends, prepend=-1)}, {}, "it"))
    return path


def trained(data: Path, out: Path, *words: str) -> Path:
    small = ["--agent", "bc", "--agent.hidden", "32", "--batch-size", "64", "--threads", "1"]
    told = ["--eval-episodes", "4", "--evals", "2", "--data", str(data), "--out", str(out)]
    offline.main(cli.parse(offline.Args, ["--env", NAME, *small, *told, *words]))
    return out


def test_judged_from_the_same_starts_whatever_came_between() -> None:
    world = Foreign(NAME).world()
    act = policy.memoryless(lambda params, obs, key: (-obs[..., :1], ()))

    def judged(count: int) -> rollout.Episodes:
        return jax.jit(lambda: play.judged(world, act, (), count))()

    first, other, again = judged(5), judged(3), judged(5)
    assert len(set(first.returns.tolist())) == 5
    assert first.final["success"].shape == (5,)
    assert other.returns.shape == (3,)
    np.testing.assert_array_equal(first.returns, again.returns)


def test_other_worlds_make_states_stale() -> None:
    world = Foreign(NAME).world()
    reset = jax.vmap(world.reset)
    state = reset(jax.random.split(jax.random.key(0), 4))
    reset(jax.random.split(jax.random.key(1), 6))
    reset(jax.random.split(jax.random.key(2), 4))
    with pytest.raises(Exception, match="stepped twice or out of order"):
        jax.block_until_ready(jax.vmap(world.step)(state, np.zeros((4, 1), np.float32)))


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    return trained(data, out, "--steps", "1500", "--seeds", "2")


@pytest.mark.long
def test_learned_of_from_data_judged_and_filmed(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = runs.read_manifest(run)
    assert (found["env"], found["physics"], found["horizon"]) == (NAME, "gymnasium", 30)
    assert np.mean(found["eval_returns"]) > -8  # who does nothing has -20
    assert np.mean(found["eval_successes"]) > 0.7
    assert (run / "video.mp4").stat().st_size > 0
    assert not [*run.glob("artefact*")]
    play.main(play.Args(run, episodes=4, video=False))
    told = capsys.readouterr().out
    returns = np.mean(found["eval_returns"])
    assert f"eval_return: {returns:.1f}" in told
    assert "eval_success" in told


@pytest.mark.long
def test_a_run_goes_on(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["--env", NAME, "--agent", "bc", "--agent.hidden", "32", "--steps", "600", "--no-video",
             "--save-s", "0", "--evals", "2", "--eval-episodes", "4", "--data", str(data),
             "--out", str(tmp_path / "run")]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["offline.py", *given])
    offline.main(cli.parse(offline.Args, given))
    run = tmp_path / "run"
    whole, steps = runs.read_manifest(run), [int(x.name) for x in run.glob("checkpoints/*")]
    (run / "policy-0.safetensors").unlink()
    offline.main(cli.parse(offline.Args, ["--resume", str(run / "checkpoints" / str(min(steps)))]))
    again = runs.read_manifest(run)
    assert min(steps) < 600
    assert whole["parameters_sha256"] == again["parameters_sha256"]
    assert whole["eval_returns"] == again["eval_returns"]


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("slope:Slop-v0", "slope:Slop-v0 cannot be made: .*Slope"),
        ("no_such_package:Slope-v0", "no_such_package.*Install the package"),
        ("gymnasium:CartPole-v1", r"takes actions of Discrete\(2\): a Box"),
        ("slope:Endless-v0", "has no end: register it with max_episode_steps"),
        ("slope:Unbounded-v0", "a Box with bounds is needed"),
        ("slope:Broken-v0", r"Broken-v0 cannot be made: FileNotFoundError.*arm\.xml"),
        ("a:b:c", "a:b:c names no environment: MODULE:ID does"),
        (":Pendulum-v1", "names no environment"),
        (".json:Foo-v0", "names no environment"),
    ],
)
def test_refused(data: Path, tmp_path: Path, name: str, match: str) -> None:
    args = ["--env", name, "--data", str(data), "--out", str(tmp_path / "run")]
    with pytest.raises(ValueError, match=match):
        offline.main(cli.parse(offline.Args, args))
    assert not (tmp_path / "run").exists()


def test_nothing_learns_there(data: Path, tmp_path: Path) -> None:
    words = ["--env", NAME, "--out", str(tmp_path / "x.npz")]
    with pytest.raises(ValueError, match="Slope-v0 is an environment of Gymnasium's"):
        sac.main(cli.parse(sac.Args, words))
    with pytest.raises(ValueError, match="Slope-v0 is an environment of Gymnasium's"):
        make_data.main(cli.parse(make_data.Args, [*words, "--by", "random"]))


def test_data_of_other_sizes_are_refused(data: Path, tmp_path: Path) -> None:
    args = ["--env", "gymnasium:Pendulum-v1", "--data", str(data), "--out", str(tmp_path / "run")]
    with pytest.raises(ValueError, match="of another task"):
        offline.main(cli.parse(offline.Args, args))


def test_who_asks_for_a_simulation_has_none(run: Path) -> None:
    with pytest.raises(ValueError, match="no simulation here"):
        play.load(run)
    with pytest.raises(ValueError, match="--viewer shows worlds of ours"):
        play.main(play.Args(run, episodes=2, viewer=True))
    with pytest.raises(ValueError, match="of which no robot is known here"):
        drive.main(drive.Args(run))


def test_what_cannot_be_drawn_has_no_video_and_all_else(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = trained(data, tmp_path / "run", "--env", "slope:Undrawn-v0", "--steps", "200")
    told = capsys.readouterr().out
    assert "no video: slope:Undrawn-v0 cannot be drawn: its pen is lost" in told
    assert "verdict" in told
    assert runs.finished(runs.read_manifest(run))


def test_actions_that_stand_for_less_are_refused(data: Path, tmp_path: Path) -> None:
    found = npz.read(data)
    told = {"action_low": [-1.0], "action_high": [1.0]}
    npz.write(tmp_path / "narrow.npz", found._replace(facts=told))
    with pytest.raises(ValueError, match=r"takes \[-2.0\] to \[2.0\]: tell convert"):
        trained(tmp_path / "narrow.npz", tmp_path / "run", "--steps", "200")
    wide = {"action_low": [-2.0], "action_high": [2.0]}
    npz.write(tmp_path / "wide.npz", found._replace(facts=wide))
    env = Foreign(NAME).world()
    kept = offline.of_task(tmp_path / "wide.npz", npz.read(tmp_path / "wide.npz"), NAME, env)
    assert len(kept.steps["action"]) == len(found.steps["action"])


def test_an_id_is_named_once(data: Path) -> None:
    with pytest.raises(ValueError, match=r"--env names slope:Slope-v0, and --env\.id"):
        cli.parse(offline.Args, ["--env", NAME, "--env.id", "gymnasium:Pendulum-v1"])


def test_what_it_is_worth_is_told_of_data(
    run: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = FQE(hidden=(16,), gamma=0.9, tau=0.05, lr=3e-3)
    fqe.main(fqe.Args((run,), data=data, fqe=small, steps=600, batch_size=64, judge=8))
    told = capsys.readouterr().out
    estimate, measured = (
        float(re.search(rf"{name} +(-?[\d.]+)", told)[1])  # type: ignore[index]
        for name in ("estimate", "measured")
    )
    assert -10 < measured < 0
    assert abs(estimate - measured) < 0.5 * abs(measured) + 1


def test_seeds_are_judged_in_turn_where_others_are_side_by_side(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, act = (
        Foreign(NAME).world(),
        policy.memoryless(lambda gain, obs, key: (gain * obs[:1], ())),
    )
    judged = lambda gain: play.judged(world, act, gain, 3).returns  # noqa: E731
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    together = jax.jit(course.over_seeds(judged, together=False))
    found = together(np.array([-1.0, -0.1], np.float32))
    assert found.shape == (2, 3)
    alone = jax.jit(judged)(np.float32(-0.1))
    np.testing.assert_allclose(found[1], alone, rtol=1e-5)
    with pytest.raises(Exception, match="no vmap over seeds"):
        jax.block_until_ready(
            jax.jit(course.over_seeds(judged))(np.array([-1.0, -0.1], np.float32))
        )
