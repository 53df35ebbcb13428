"""Demonstrations as files: made again they are the same, and what is wrong with one is said."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
from benchmarks import modes
from envs.manipulation.expert import Expert
from envs.revealed import Revealed
from experiments import make_data, off_policy, prior
from rl.data import npz
from rl.data.dataset import Dataset

NAME = "panda-reach"


def args(out: Path, **other: Any) -> make_data.Args:
    given = {"env": envs.make_task(NAME), "env_name": NAME, "episodes": 12, "out": out}
    return make_data.Args(**(given | other))


@pytest.fixture(scope="module", autouse=True)
def judged_on_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_data, "JUDGED", 32)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("data") / "reach.npz"
    make_data.main(args(out, failures=0.25, expert=Expert(noise=0.05), fumble=0.06))
    return out


def test_it_holds_whole_episodes_as_they_were(made: Path) -> None:
    data = npz.read(made)
    env = envs.make(NAME)
    length = data.episodes["length"]
    assert (length == env.horizon).all()
    assert (data.episodes["success"] == 0).sum() == 3  # a quarter of 12
    assert 0 < (data.episodes["success"][:9] == 0).sum() < 4  # mixed in
    ends = np.cumsum(length) - 1
    over = data.steps["terminated"] | data.steps["truncated"]
    np.testing.assert_array_equal(np.flatnonzero(over), ends)
    assert "next_obs/policy" not in data.steps
    last, goals = data.episodes["last_obs/policy"], data.steps["obs/world/command"][ends]
    there = np.linalg.norm(data.episodes["last_obs/world/raw/tool_pos"] - goals, axis=1) < 0.02
    assert (there >= data.episodes["success"]).all()  # success is of what was seen last
    assert len(last) == 12
    totals = [x.sum() for x in np.split(data.steps["reward"], ends[:-1] + 1)]
    np.testing.assert_allclose(totals, data.episodes["return"], rtol=1e-5)
    scores = data.facts["scores"]
    assert scores["expert"]["success"] > 0.95
    assert scores["random"]["success"] < 0.05 < scores["expert"]["return"]
    assert np.abs(data.steps["action"]).max() <= 1


@pytest.mark.slow  # by default data of chance are made twice: tests/test_offline.py
def test_the_same_command_makes_the_same_and_another_seed_does_not(
    made: Path, tmp_path: Path
) -> None:
    same = {"failures": 0.25, "expert": Expert(noise=0.05), "fumble": 0.06}
    make_data.main(args(tmp_path / "again.npz", **same))
    assert (tmp_path / "again.npz").read_bytes() == made.read_bytes()
    data, env = npz.read(made), envs.make(NAME)
    there = np.split(data.steps["reward"], np.cumsum(data.episodes["length"])[:-1])
    first = make_data.shown(env, Expert(noise=0.05), jax.random.key(1), 1, good=True)[0].steps
    assert not any(np.array_equal(first.reward, one) for one in there)


def test_what_there_is_is_not_written_over(made: Path) -> None:
    before = made.read_bytes()
    with pytest.raises(ValueError, match="is there already"):
        make_data.main(args(made))
    with pytest.raises(ValueError, match="is there already"):
        npz.write(made, npz.read(made))
    assert made.read_bytes() == before


def written(path: Path, data: Dataset, **steps: Any) -> Path:
    npz.write(path, replace_steps(data, **steps))
    return path


def replace_steps(data: Dataset, **steps: Any) -> Dataset:
    return data._replace(steps=data.steps | {k.replace("__", "/"): v for k, v in steps.items()})


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda d: {"reward": np.where(np.arange(len(d)) == 77, np.nan, d)},
            "step 17 of episode 1",
        ),
        (lambda d: {"reward": d[:-1]}, "719 steps of reward; its episodes have 720"),
    ],
)
def test_numbers_that_cannot_be_are_named(
    made: Path, tmp_path: Path, change: Any, why: str
) -> None:
    data = npz.read(made)
    with pytest.raises(ValueError, match=why):
        npz.read(written(tmp_path / "bad.npz", data, **change(data.steps["reward"])))


def test_damage_is_noticed(made: Path, tmp_path: Path) -> None:
    whole, bad = made.read_bytes(), tmp_path / "bad.npz"
    rng = np.random.default_rng(0)
    for _ in range(20):
        cut = bytearray(whole)
        at = int(rng.integers(len(cut)))
        if rng.random() < 0.5:
            cut = cut[:at]
        else:
            cut[at] ^= 1 << int(rng.integers(8))
        bad.write_bytes(cut)
        found, error = None, ""
        try:
            found = npz.read(bad)
        except ValueError as raised:
            error = str(raised)
        if found:  # a bit that says nothing of what is there
            assert found.sha256 == npz.read(made).sha256
        else:
            assert str(bad) in error
    with pytest.raises(ValueError, match="there is no such file"):
        npz.read(tmp_path / "none.npz")
    np.savez(bad, obs=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="damaged, or no dataset"):
        npz.read(bad)


def test_a_set_of_another_task_is_refused(made: Path) -> None:
    for name, task, why in (
        ("panda-pick-cube", envs.make_task("panda-pick-cube"), "its task.task = 'panda-reach'"),
        (NAME, envs.make_task(NAME, rewards="sparse"), "its task.env.rewards = 'dense'"),
    ):
        with pytest.raises(ValueError, match=why):
            prior.demonstrations(
                envs.simulate(task, "native"), off_policy.Args(task, name, demos=made)
            )


def test_a_set_is_a_replay_of_one_world(made: Path) -> None:
    env = envs.make(NAME)
    wanted = off_policy.Args(env.task, NAME, demos=made, hindsight=0.5)
    ((replay,), about) = prior.demonstrations(env, wanted)
    data = npz.read(made)
    assert about == {"demos_sha256": data.sha256}
    assert int(replay.written) == len(data.steps["reward"]) == replay.data.reward.shape[0]
    like = jax.eval_shape(Revealed(env).reset, jax.random.key(0)).obs
    assert jax.tree.structure(replay.data.obs) == jax.tree.structure(like)
    np.testing.assert_array_equal(replay.data.action[:, 0], data.steps["action"])


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ({"failures": 1.5}, "--failures is 1.5"),
        ({"fumble": 0.0}, "--fumble is 0.0"),
        ({"episodes": 0}, "--episodes"),
        ({"out": Path("set.hdf5")}, "ends in .npz"),
        ({"expert": Expert(way=7)}, "way is 7"),
        ({"out": Path("/proc/x.npz")}, "/proc/x.npz cannot be written"),
        ({"env": envs.make_task("Hopper-v5"), "env_name": "Hopper-v5"}, "There is no expert for"),
        (
            {"expert": Expert(speed=0.01), "episodes": 60},
            "Only 0 of 320 episodes succeeded, and 60",
        ),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path: Path, flags: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        make_data.main(replace(args(tmp_path / "x.npz"), **flags))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "episodes"),
    [("panda-pick-cube", 60), pytest.param("panda-push-t", 60, marks=pytest.mark.slow)],
)
def test_the_ways_of_an_expert_are_told_apart_in_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, episodes: int
) -> None:
    monkeypatch.setattr(make_data, "JUDGED", 8)
    task, out = envs.make_task(name), tmp_path / "made.npz"
    make_data.main(args(out, env=task, env_name=name, episodes=episodes))
    data = npz.read(out)
    found = modes.clustered(data)
    assert found.agreement >= 0.9  # 0.98 of 400: of so few it may be three less, or four
    assert min(np.bincount(found.found, minlength=len(task.ways))) >= 8
    np.testing.assert_array_equal(modes.placed(found, modes.told(data).features), found.found)
    half = data.chosen(found.ways == 0)  # of one way, as who keeps no other
    assert (modes.placed(found, modes.told(half).features) == 0).mean() > 0.8
    npz.write(tmp_path / "half.npz", half)
    modes.main(modes.Args(out, (tmp_path / "half.npz",), tmp_path / "modes.png"))
    assert (tmp_path / "modes.png").stat().st_size > 20_000
    one = data._replace(episodes=data.episodes | {"way": np.random.default_rng(0).permutation(
        data.episodes["way"])})  # fmt: skip
    assert modes.clustered(one).agreement < 0.7  # what is drawn by lot is not found
