"""OGBench's sets, made here: the same again, as its environments have them, and refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ogbench")

from envs.adapters.foreign import Foreign
from experiments import make_ogbench
from experiments.make_ogbench import Args
from rl.data import npz

TINY: dict[str, Any] = {"episodes": 2, "rows": 61}
SETS = {"cube-single-play": "cube-single", "pointmaze-medium-navigate": "pointmaze-medium"}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_ogbench, "JUDGED", 2)


@pytest.mark.long
@pytest.mark.parametrize("name", SETS)
def test_the_same_command_makes_the_same_data(name: Any, tmp_path: Path) -> None:
    made = []
    for out in (tmp_path / "a.npz", tmp_path / "b.npz"):
        make_ogbench.main(Args(set=name, **TINY, seed=0, out=out))
        made.append(npz.read(out))
    assert made[0].sha256 == made[1].sha256
    assert made[0].episodes["length"].tolist() == [60, 60]
    assert made[0].facts["task"] == f"ogbench:{SETS[name]}-singletask-v0"
    assert made[0].facts["scores"]["expert"]["success"] == 1
    assert made[0].facts["scores"]["random"]["success"] == 0
    assert made[0].steps["truncated"].sum() == 2
    assert not made[0].steps["terminated"].any()
    np.testing.assert_allclose(made[0].facts["goal"], oracle_of(name).goal[0], atol=1e-6)


def oracle_of(name: str) -> Any:
    """The oracle of a set's default task, whose episode has just begun."""
    kind: Any = make_ogbench.Mover if name.startswith("cube") else make_ogbench.Walker
    oracle = kind(Foreign(f"ogbench:{SETS[name]}-singletask-v0").made(), 0.0)
    oracle.env.reset(seed=0)
    return oracle


@pytest.mark.parametrize("name", SETS)
def test_episodes_of_neighbouring_seeds_are_others(name: str) -> None:
    """Sets that differ in their seed alone are joined, and held out of each other."""
    oracle = oracle_of(name)
    one, other = (make_ogbench.recorded(oracle, seed, 3)["observations"] for seed in (0, 1))
    assert not {x.tobytes() for x in one} & {x.tobytes() for x in other}


@pytest.mark.parametrize("name", SETS)
def test_rewards_and_observations_are_the_task_s_own(name: Any, tmp_path: Path) -> None:
    """An episode of the task itself, by its oracle, as OGBench tells it."""
    oracle = oracle_of(name)
    (goal, tolerance), at = oracle.goal, oracle.at
    goal, life = tuple(goal.tolist()), make_ogbench.lived(oracle, 5)
    longer = {n: np.concatenate([x, x[-1:]]) for n, x in life.items()}  # the last row is no step
    longer["terminals"][-2] = False
    found = make_ogbench.ogbench.made("it", longer, {}, goal, at, tolerance)
    np.testing.assert_array_equal(found.steps["reward"], life["rewards"])
    np.testing.assert_array_equal(found.steps["mask"], life["success"] == 0)
    np.testing.assert_array_equal(found.steps["obs"], life["observations"])
    assert life["success"][-1] == 1


def test_a_cube_goes_elsewhere_when_it_is_there(tmp_path: Path) -> None:
    env = Foreign("ogbench:cube-single-v0").made(
        max_episode_steps=301, terminate_at_goal=False, mode="data_collection"
    )
    oracle, goals = make_ogbench.Mover(env, 0.1), []
    go_on = oracle.go_on
    oracle.go_on = lambda info: (go_on(info), goals.append(oracle.goal[0].tolist()))[0]  # type: ignore[method-assign]
    life = make_ogbench.lived(oracle, 0)
    assert len(life["rewards"]) == 301
    changes = np.flatnonzero((np.diff(goals, axis=0) != 0).any(1))
    assert 2 <= len(changes) <= 6
    for at in changes:  # it was brought there before
        assert np.linalg.norm(life["qpos"][at + 1, 14:17] - goals[at]) < 0.06


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"task": 6}, "--task is 6; OGBench has 1 to 5"),
        ({"noise": -0.1}, "--noise is -0.1"),
        ({"rows": 1}, "--rows is 1"),
        ({"episodes": 0}, "--episodes is 0"),
    ],
)
def test_refused(given: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=why):
        make_ogbench.main(Args(**TINY | given, out=tmp_path / "x.npz"))
    assert not (tmp_path / "x.npz").exists()


def test_what_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"mine")
    with pytest.raises((ValueError, OSError), match=r"x\.npz"):
        make_ogbench.main(Args(**TINY, out=tmp_path / "x.npz"))
    assert (tmp_path / "x.npz").read_bytes() == b"mine"
