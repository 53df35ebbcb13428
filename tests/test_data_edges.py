"""What data leave unsaid, or say in another unit: found out before it is learned from."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
from experiments import cli, label, offline, offline_to_online
from rl import manifest
from rl.data import __main__ as data_cli
from rl.data import d4rl, dataset, formats, inverse, minari, npz, sampling
from rl.data.dataset import Dataset
from rl.data.join import joined
from tests.test_data_cli import sound


def told(data: Dataset, **steps: np.ndarray) -> Dataset:
    return data._replace(steps=data.steps | steps)


def wide(size: int, episodes: int) -> Dataset:
    """Episodes of two steps whose returns say nothing of where they begin."""
    rng, count = np.random.default_rng(0), 2 * episodes
    cut = np.arange(count) % 2 == 1
    obs, reward = rng.normal(size=(count, size)), rng.normal(size=count)
    steps = {"obs": obs.astype("f4"), "action": np.zeros((count, 1), "f4"),
             "reward": reward.astype("f4"), "terminated": cut & ~cut, "truncated": cut,
             "mask": cut | ~cut}  # fmt: skip
    last = {"length": np.full(episodes, 2), "last_obs": np.zeros((episodes, size), "f4")}
    return Dataset(steps, last, {})


@pytest.mark.parametrize("episodes", [5, 18, 20, 89])
def test_a_fit_to_too_few_episodes_is_refused_as_it_tells_nothing(episodes: int) -> None:
    with pytest.raises(ValueError, match=r"--sampler\.by return"):
        sampling.Weighted().weights(wide(17, episodes))
    by_return = sampling.Weighted(by="return").weights(wide(17, episodes))
    assert by_return.argmax() == wide(17, episodes).sums().argmax()
    assert by_return.max() > 5 * by_return.min()


def test_enough_episodes_are_told_apart() -> None:
    data = wide(17, 400)
    better = np.corrcoef(sampling.Weighted().weights(data), data.sums())[0, 1]
    assert better > 0.5


@pytest.mark.parametrize("sampler", [sampling.Top(), sampling.Weighted(by="return")])
def test_no_episode_is_better_where_no_rewards_are_told(sampler: Any) -> None:
    with pytest.raises(ValueError, match="tell no rewards"):
        sampler.weights(sound()._replace(facts={"reward": "none"}))


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("mask", None, "has no mask"),
        ("mask", np.uint8, "has mask of uint8"),
        ("terminated", np.int64, "has terminated of int64"),
        ("last_obs", None, "none of last_obs"),
        ("last_obs", np.float64, r"float64\[\d\] of last_obs"),
    ],
)
def test_what_learning_could_not_use_is_not_written(
    name: str, wrong: Any, why: str, tmp_path: Path
) -> None:
    data = sound()
    for arrays in (data.steps, data.episodes):
        if name in arrays:
            x = arrays.pop(name)
            if wrong:
                arrays[name] = x.astype(wrong)
    with pytest.raises(ValueError, match=why):
        npz.write(tmp_path / "x.npz", data)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda x: x[:, 0], r"has action of float32\[580\]; \[S, A\]"),
        (lambda x: (9 * x).astype("i4"), r"has action of int32\["),
        (lambda x: np.where(np.arange(len(x))[:, None] == 11, -7, x),
         "has an action of -7, in step 1 of episode 1; they lie in"),
    ],
)  # fmt: skip
def test_actions_out_of_their_range_are_neither_written_nor_read(
    change: Any, why: str, tmp_path: Path
) -> None:
    data = sound()
    wrong = told(data, action=change(data.steps["action"]))
    with pytest.raises(ValueError, match=why):
        npz.write(tmp_path / "x.npz", wrong)
    facts = {npz.FACTS: json.dumps({npz.HASH: wrong.sha256})}
    np.savez(tmp_path / "x.npz", **wrong.steps, **dataset.prefixed(wrong.episodes), **facts)
    with pytest.raises(ValueError, match=why):
        data_cli.info(data_cli.Info(path=tmp_path / "x.npz"))


@pytest.mark.parametrize(
    ("save", "facts", "why"),
    [
        (np.savez_compressed, {}, r"no dataset of ours \(it is compressed\)"),
        (np.savez, {}, "its facts have no sha256"),
        (np.savez, {npz.FACTS: "5"}, r"no dataset of ours \(its facts are no table\)"),
        (np.savez, {"x": np.array([None])}, r"no dataset of ours \(it has pickled objects\)"),
    ],
)
def test_why_a_file_is_none_of_ours_is_told(
    save: Any, facts: dict[str, Any], why: str, tmp_path: Path
) -> None:
    data = sound()
    arrays = data.steps | dataset.prefixed(data.episodes) | {npz.FACTS: "{}"} | facts
    save(tmp_path / "x.npz", **arrays)
    with pytest.raises(ValueError, match=why):
        npz.read(tmp_path / "x.npz")


def test_a_reading_of_no_numbers_is_told_and_drawn_and_given_to_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the contacts of a robot that feels none."""
    data = sound()
    none = np.zeros((len(data.steps["reward"]), 0), "f4")
    steps = {"obs/a": none, "obs/b": data.steps.pop("obs")} | data.steps
    lasts = {"last_obs/a": none[: len(data.starts)], "last_obs/b": data.episodes.pop("last_obs")}
    data = Dataset(steps, data.episodes | lasts, {})
    npz.write(tmp_path / "x.npz", data)
    data_cli.info(data_cli.Info(path=tmp_path / "x.npz"))
    assert "no numbers" in capsys.readouterr().out
    data_cli.plot(data_cli.Plot(path=tmp_path / "x.npz", out=tmp_path / "x.png"))
    minari.write(tmp_path / "x-v0", data)
    assert formats.read(tmp_path / "x-v0").sha256 == data.sha256


def test_doubles_are_written_for_minari_as_they_will_be_read(tmp_path: Path) -> None:
    data = sound()
    wider = told(data, obs=data.steps["obs"].astype("f8"))
    wider = wider._replace(
        episodes=data.episodes | {"last_obs": data.episodes["last_obs"].astype("f8")}
    )
    written = minari.write(tmp_path / "x-v0", wider)
    assert formats.read(tmp_path / "x-v0").sha256 == written == data.sha256


def test_the_same_is_not_joined_wherever_it_stands() -> None:
    parts = {name: sound().chosen(np.arange(n)) for name, n in (("a", 30), ("b", 20), ("c", 20))}
    with pytest.raises(ValueError, match="b and c cannot be joined: they hold the same"):
        joined(parts)


def test_no_choice_is_told() -> None:
    with pytest.raises(ValueError, match="No episode is chosen"):
        sound().chosen(np.zeros(40, bool))


def test_one_episode_is_refused_before_a_run_is_made(tmp_path: Path) -> None:
    data = wide(11, 1)
    steps = data.steps | {"action": np.zeros((2, 3), "f4")}
    npz.write(tmp_path / "one.npz", data._replace(steps=steps))
    words = ["--env", "Hopper-v5", "--data", str(tmp_path / "one.npz")]
    with pytest.raises(ValueError, match="--held-out 0"):
        offline.main(cli.parse(offline.Args, [*words, "--out", str(tmp_path / "run")]))
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_replay_tells_the_task_s_rewards_whatever_was_learned_from(tmp_path: Path) -> None:
    npz.write(tmp_path / "it.npz", wide(4, 20))
    common = ["--env", "InvertedPendulum-v5", "--data", str(tmp_path / "it.npz"), "--agent", "sac",
              "--agent.hidden", "8", "--agent.critic-hidden", "8", "--steps", "200",
              "--learning-starts", "190", "--evals", "0", "--eval-episodes", "1",
              "--no-video"]  # fmt: skip
    found = []
    for name, words in (
        ("plain", []),
        ("other", ["--reward-scale", "0.1", "--reward-shift", "-5"]),
    ):
        args = [*common, *words, "--out", str(tmp_path / name)]
        offline_to_online.main(cli.parse(offline_to_online.Args, args))
        found.append(formats.read(tmp_path / name).steps["reward"])
    # Chance acts first, and alike in both.
    np.testing.assert_allclose(found[1][:190], found[0][:190], atol=1e-5)
    assert set(np.unique(found[0])) == {0.0, 1.0}


@pytest.mark.parametrize("low", [-1.0, -3.0])
def test_limits_of_a_task_are_compared_with_those_of_data(low: float, tmp_path: Path) -> None:
    """D4RL's files do not tell them: -1 and 1 are taken, which an inverted pendulum's are not."""
    env = envs.make("InvertedPendulum-v5")
    data = wide(4, 3)
    found = data._replace(facts={"action_low": [low], "action_high": [-low]})
    if low == -3:
        offline.of_task(tmp_path, found, "InvertedPendulum-v5", env)
    else:
        with pytest.raises(ValueError, match="tell convert, with --low and --high"):
            offline.of_task(tmp_path, found, "InvertedPendulum-v5", env)
        ours = found._replace(
            facts=found.facts | {"task": "InvertedPendulum-v5", "env": manifest.plain(env.task)}
        )
        offline.of_task(tmp_path, ours, "InvertedPendulum-v5", env)


def test_what_nobody_saw_is_not_learned_as_a_change(tmp_path: Path) -> None:
    """D4RL without next observations: the last of a terminated episode stands for what follows."""
    h5py = pytest.importorskip("h5py")
    rng, count = np.random.default_rng(0), 60
    with h5py.File(tmp_path / "x.hdf5", "w") as file:
        file["observations"] = rng.normal(size=(count, 3)).astype("f4")
        file["actions"] = rng.uniform(-1, 1, (count, 2)).astype("f4")
        file["rewards"] = np.ones(count, "f4")
        file["terminals"] = np.arange(count) % 10 == 9
        file["timeouts"] = np.zeros(count, bool)
    data = d4rl.read(tmp_path / "x.hdf5")
    assert data.facts["last_obs"] == dataset.UNSEEN
    assert inverse.recorded(data).tolist() == [i for i in range(count) if i % 10 != 9]
    changed = np.asarray(label.known(data).seen.next_obs - label.known(data).seen.obs)
    assert (np.abs(changed).sum(1) > 0).all()
    both = joined({"a": data, "b": data.chosen(np.arange(3))})
    assert both.facts["last_obs"] == dataset.UNSEEN
    assert len(jax.tree.leaves(label.known(both).action)[0]) == 81


def test_what_is_no_file_of_ours_is_told_from_what_is_damaged(tmp_path: Path) -> None:
    raw = tmp_path / "hopper.hdf5"
    raw.write_bytes(b"\x89HDF\r\n\x1a\n and more")
    with pytest.raises(ValueError, match=r"hopper.hdf5 is no .npz: python -m rl.data convert"):
        npz.read(raw)
    (whole := tmp_path / "whole.npz").write_bytes(b"")
    with pytest.raises(ValueError, match="is damaged, or no dataset of ours"):
        npz.read(whole)


def test_a_run_without_replay_says_so(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(ValueError, match="is a run that has kept no replay"):
        formats.read(tmp_path)
