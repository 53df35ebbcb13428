"""Learning from a dataset alone: what comes of it, what is refused, how a run goes on."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import envs
from experiments import cli, make_data, offline, play, start
from rl import manifest, record, runs
from rl.data import dataset, held_out, npz, sampling
from rl.data.dataset import Dataset

NAME = "InvertedPendulum-v5"
SMALL = ["--env", NAME, "--agent.hidden", "32", "--batch-size", "64", "--eval-episodes", "4",
         "--evals", "2", "--no-video", "--threads", "1"]  # fmt: skip


def balancing(path: Path, episodes: int = 30, noise: float = 0.3) -> Path:
    """Episodes of a pole that a clumsy hand holds upright."""
    env, rng = envs.make(NAME, max_episode_steps=100), np.random.default_rng(0)
    step, reset = jax.jit(jax.vmap(env.step)), jax.jit(jax.vmap(env.reset))
    state = reset(jax.random.split(jax.random.key(0), episodes))
    seen: list[tuple[Any, ...]] = []
    for _ in range(100):
        obs = np.asarray(state.obs)
        best = obs @ np.array([0.3, 3.0, 0.4, 0.6])  # of position, angle and their speeds
        action = np.clip(best + rng.normal(0, noise, episodes), -1, 1)[:, None].astype("f4")
        state = step(state, jnp.asarray(action))
        flags = state.terminated, state.truncated
        seen.append((obs, action, *map(np.asarray, (state.reward, *flags, state.obs))))
    columns = [np.stack(column, 1) for column in zip(*seen, strict=True)]  # [E, T, ...]
    over = columns[3] | columns[4]
    lengths = over.argmax(1) + 1
    rows = [[x[i, :n] for i, n in enumerate(lengths)] for x in columns]
    names = "obs", "action", "reward", "terminated", "truncated", "next_obs"
    steps = {name: np.concatenate(row) for name, row in zip(names, rows, strict=True)}
    npz.write(path, dataset.compact(steps, {"length": lengths}, {}, "it"))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return balancing(tmp_path_factory.mktemp("data") / "balancing.npz")


def trained(data: Path, out: Path, *words: str) -> Path:
    args = cli.parse(offline.Args, [*SMALL, "--data", str(data), "--out", str(out), *words])
    offline.main(args)
    return out


@pytest.mark.long
@pytest.mark.parametrize(
    "agent", ["bc", "iql", pytest.param("rebrac --agent.actor-bc 2", marks=pytest.mark.slow)]
)
def test_a_policy_balances_that_saw_a_clumsy_one(data: Path, tmp_path: Path, agent: str) -> None:
    words = f"--agent {agent} --steps 2000 --agent.lr 1e-3".split()
    run = trained(data, tmp_path / "run", *words)
    found = runs.read_manifest(run)
    assert found["status"] == "done"
    assert found["data_sha256"] == npz.read(data).sha256
    assert np.mean(found["eval_returns"]) > 500  # of 1,000; the data's episodes end at 100
    row = runs.read_metrics(run)[-1]
    assert row["updates"] == 2000
    assert 0 < row["held_distance"] < 1
    assert found["verdict"][0]["word"] != "unknown"
    assert ("held_q_policy" in row) == (agent != "bc")
    env, policy, params = play.load(run)
    assert np.isfinite(play.judge(env, policy, params, 2)).all()


@pytest.mark.slow  # test_offline_to_online has one that starts from such a run
def test_it_goes_on_where_it_was_stopped_to_the_last_bit(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*SMALL, "--data", str(data), "--agent", "iql", "--steps", "3000", "--save-s", "0",
             "--seeds", "2", "--evals", "3"]  # fmt: skip
    monkeypatch.setattr("sys.argv", ["offline.py", *words, "--out", str(tmp_path / "cut")])
    whole = tmp_path / "whole"
    offline.main(cli.parse(offline.Args, [*words, "--out", str(whole)]))
    spent, count = record.Record.spent, iter(range(99))

    def stop(self: Any, on: str) -> float:
        if on == "train" and next(count) == 0:
            signal.raise_signal(signal.SIGINT)
        return spent(self, on)

    with monkeypatch.context() as patched:
        patched.setattr(record.Record, "spent", stop)
        with pytest.raises(SystemExit):
            offline.main(cli.parse(offline.Args, [*words, "--out", str(tmp_path / "cut")]))
    cut = tmp_path / "cut"
    assert runs.read_manifest(cut)["status"].startswith("stopped")
    offline.main(cli.parse(offline.Args, ["--resume", str(cut)]))
    for seed in (0, 1):
        name = f"policy-{seed}.safetensors"
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    steps = [[row["step"] for row in runs.read_metrics(run)] for run in (cut, whole)]
    assert steps[0] == steps[1] == [*range(300, 3001, 300)]
    args = cli.parse(offline.Args, ["--resume", str(cut / "checkpoints" / "300")])
    npz.write(tmp_path / "other.npz", npz.read(data).chosen(np.arange(5)))
    with pytest.raises(ValueError, match="was begun with other data"):
        offline.main(replace(args, data=tmp_path / "other.npz"))


def changed(data: Dataset, **steps: Any) -> Dataset:
    return data._replace(steps=data.steps | steps, facts={})


@pytest.mark.parametrize(
    ("words", "change", "why"),
    [
        ([], {"action": lambda x: np.repeat(x, 2, 1)}, r"has actions of \(2,\); the task takes"),
        ([], {"obs": lambda x: x[:, :3]}, r"has obs of \(3,\) float32; the task has \(4,\)"),
        (["--reward-scale", "nan"], {}, "--reward-scale is nan; it takes a finite number"),
        (["--reward-scale", "0"], {}, "--reward-scale is 0.0; it takes a number above 0"),
        (["--held-out", "1"], {}, "--held-out is 1.0"),
        (["--agent", "ppo"], {}, "PPO cannot learn from data; awac, bc, .* can"),
        (["--n-step", "0"], {}, "--n-step is 0"),
        (["--agent", "bc", "--n-step", "3"], {}, "--n-step is of targets of steps, and BC has"),
        (
            ["--agent", "flow_bc", "--agent.chunks.horizon", "200"],
            {},
            "the longest episode of .*100",
        ),
    ],
)
def test_what_cannot_be_learned_from_is_refused(
    data: Path, tmp_path: Path, words: list[str], change: dict[str, Any], why: str
) -> None:
    found = npz.read(data)
    other = changed(found, **{name: f(found.steps[name]) for name, f in change.items()})
    if "obs" in change:
        other = other._replace(
            episodes=other.episodes | {"last_obs": other.episodes["last_obs"][:, :3]}
        )
    npz.write(tmp_path / "other.npz", other)
    small = [w for w in SMALL if w not in ("--agent.hidden", "32")]
    with pytest.raises(ValueError, match=why):
        offline.main(cli.parse(
            offline.Args, [*small, "--data", str(tmp_path / "other.npz"), *words]
        ))  # fmt: skip


def test_data_of_before_a_setting_came_are_of_the_task_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dataset, "fitted", lambda path, found, *_: found)  # there is nothing in it
    task = envs.make_task("panda-push-t", rewards="sparse")
    env = envs.simulate(task, "native")
    told = {name: x for name, x in manifest.plain(task).items() if name != "precise"}
    found = Dataset({}, {}, {"task": "panda-push-t", "env": told})
    assert offline.of_task(Path("old.npz"), found, "panda-push-t", env) is found
    found = Dataset({}, {}, {"task": "panda-push-t", "env": told | {"precise": 3.0}})
    with pytest.raises(ValueError, match=r"env\.precise = 3\.0"):
        offline.of_task(Path("new.npz"), found, "panda-push-t", env)


def test_data_of_another_task_and_without_rewards_are_refused(data: Path, tmp_path: Path) -> None:
    found = npz.read(data)
    npz.write(tmp_path / "hopper.npz", found._replace(facts={"task": "Hopper-v5", "env": {}}))
    npz.write(tmp_path / "none.npz", found._replace(facts={"reward": "none"}))
    for name, why, agent in (
        ("hopper", "was made of another task", "iql"), ("none", "tells no rewards", "iql"),
        ("none", "tells no rewards", "fql"),
    ):  # fmt: skip
        words = ["--env", NAME, "--agent", agent, "--data", str(tmp_path / f"{name}.npz")]
        args = cli.parse(offline.Args, words)
        with pytest.raises(ValueError, match=why):
            offline.main(args)


def test_held_out_episodes_are_never_learned_from(data: Path) -> None:
    found = npz.read(data)
    learned, held = held_out.split(found, 0.2, seed=0)
    assert len(held.episodes["length"]) == 6
    together = np.sort(np.concatenate([learned.steps["obs"], held.steps["obs"]]), 0)
    np.testing.assert_array_equal(together, np.sort(found.steps["obs"], 0))
    args = offline.Args(envs.make_task(NAME), NAME, data=data, held_out=0.2)
    course = offline.course(args, envs.make(NAME), found, start.Start((), {}))
    source, seen = course.given
    rows = {x.tobytes() for x in held.steps["obs"]}
    assert not rows & {x.tobytes() for x in np.asarray(source.obs)}
    assert {x.tobytes() for x in np.asarray(seen["held"].obs)} <= rows
    with pytest.raises(ValueError, match="cannot be held out of itself"):
        held_out.split(found.chosen(np.array([3])), 0.2, seed=0)


@pytest.mark.long
def test_data_are_made_of_a_policy_and_of_chance(
    tmp_path: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(make_data, "JUDGED", 16)
    run = trained(data, tmp_path / "bc", "--agent", "bc", "--steps", "200")
    base = ["--env", NAME, "--episodes", "70"]
    for by, name in (("random", "a"), ("random", "b"), (str(run), "c")):
        words = [*base, "--by", by, "--out", str(tmp_path / f"{name}.npz")]
        make_data.main(cli.parse(make_data.Args, words))
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    chance, policy = (npz.read(tmp_path / f"{name}.npz") for name in "ac")
    assert len(chance.episodes["length"]) == 70
    np.testing.assert_allclose(chance.sums(), chance.episodes["return"], rtol=1e-5)
    assert (
        policy.facts["scores"]["policy"]["return"] > 5 * policy.facts["scores"]["random"]["return"]
    )
    assert len(sampling.source(policy, sampling.Uniform()).reward) == len(policy.steps["reward"])
    words = ["--env", "Hopper-v5", "--by", str(run), "--out", str(tmp_path / "d.npz")]
    args = cli.parse(make_data.Args, words)
    with pytest.raises(ValueError, match="is of another task"):
        make_data.main(args)
