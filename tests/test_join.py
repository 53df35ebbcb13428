"""Datasets of one task as one, and drawn from by the shares of what was joined."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from experiments import cli, offline
from rl import returns
from rl.data import __main__ as data_cli
from rl.data import npz, sampling
from rl.data.dataset import Dataset
from rl.data.join import PART, joined
from tests.test_data_cli import sound

KEY = jax.random.key(0)


def named(**facts: Any) -> Dataset:
    return sound()._replace(facts={"task": "T", "env": {"a": 1}} | facts)


def part(share: int) -> Dataset:
    """Every so-manieth episode, its actions marked."""
    some = sound().chosen(np.arange(0, 40, share))
    return some._replace(
        steps=some.steps | {"action": np.full_like(some.steps["action"], 1 / share)},
        facts={"task": "T", "env": {"a": 1}, "sha256": f"{share}"},
    )


def test_what_is_joined_is_all_there_was_in_its_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.npz" for i in (1, 4)]
    for path, share in zip(paths, (1, 4), strict=True):
        npz.write(path, part(share))
    out = tmp_path / "both.npz"
    data_cli.join(data_cli.Join(out=out, paths=(*paths,), episodes=(0, 5)))
    found, (one, other) = npz.read(out), map(npz.read, paths)
    for name, x in one.steps.items():
        some = other.chosen(np.arange(5))
        np.testing.assert_array_equal(found.steps[name], np.concatenate([x, some.steps[name]]))
    np.testing.assert_array_equal(found.episodes[PART], [0] * 40 + [1] * 5)
    assert "parts      of 40, 5 episodes, one after another" in data_cli.told(found)
    np.testing.assert_array_equal(found.episodes["last_obs"][40:], other.episodes["last_obs"][:5])
    assert (found.facts["task"], found.facts["env"]) == ("T", {"a": 1})
    told = [(fact["sha256"], fact["episodes"]) for fact in found.facts["parts"]]
    assert told == [(one.sha256, 40), (other.sha256, 5)]


def test_a_mixture_has_its_shares_however_large_its_parts_are() -> None:
    data = joined({"a": part(1), "b": part(10)})
    assert np.mean(data.steps["action"][:, 0] == 1) > 0.9
    for share in (0.0, 0.05, 0.5):
        source = sampling.source(data, sampling.Mixture((1 - share, share)))
        drawn = sampling.sample(source, KEY, 40_000, 1).action[:, 0, 0]
        np.testing.assert_allclose(np.mean(drawn == np.float32(0.1)), share, atol=0.01)
        # Within a part each step as often as any other.
        rows = np.bincount(np.asarray(sampling.places(source, KEY, 40_000)), minlength=len(drawn))
        first = rows[: int(np.sum(data.episodes["length"][:40]))]
        assert np.abs(first - first.mean()).max() < 6 * np.sqrt(first.mean())


def test_how_much_of_a_chunk_was_taken_is_told() -> None:
    data = sound()
    source = sampling.source(data, sampling.Uniform())
    at = np.arange(len(data.steps["reward"]) - 4)
    chunk = sampling.windows(source, at, 5)
    same = data.episode[at[:, None] + np.arange(5)] == data.episode[at][:, None]
    np.testing.assert_array_equal(returns.within(chunk), same)
    assert not same.all()


@pytest.mark.parametrize(
    ("sets", "episodes", "why"),
    [
        ({"a": named(), "b": named(task="U")}, (), "a and b cannot be joined: task = .*, not 'U'"),
        ({"a": named(), "b": named(env={"a": 2})}, (), r"cannot be joined: env\.?.*2"),
        ({"a": named(), "b": named()}, (1,), "--episodes tells 1 of 2 datasets how many"),
        ({"a": named(), "b": named()}, (0, 41), "--episodes has 41 of b, which has 40; 0 is all"),
        ({"a": named(), "b": named()}, (), "a and b cannot be joined: they hold the same"),
    ],
)
def test_what_cannot_be_joined_is_refused(
    sets: dict[str, Dataset], episodes: tuple[int, ...], why: str
) -> None:
    with pytest.raises(ValueError, match=why):
        joined(sets, episodes)


def test_other_shapes_and_names_are_refused(tmp_path: Path) -> None:
    thin = named()
    thin = thin._replace(steps=thin.steps | {"action": thin.steps["action"][:, :2]})
    with pytest.raises(ValueError, match=r"a has action float32\[3\], and b float32\[2\]"):
        joined({"a": named(), "b": thin})
    more = named()._replace(steps=named().steps | {"command": named().steps["reward"]})
    with pytest.raises(ValueError, match="a has command none, and b float32"):
        joined({"a": named(), "b": more})
    paths = tmp_path / "a.npz", tmp_path / "b.npz"
    for path in paths:
        npz.write(path, named())
    for out, given, why in (
        (paths[0], paths, "is there already"),
        (tmp_path / "c.hdf5", paths, r"join makes a \.npz, and .*c\.hdf5 comes first"),
        (tmp_path / "c.npz", paths[:1], "two or more"),
        (tmp_path / "c.npz", (paths[0], paths[0]), "named twice"),
    ):
        with pytest.raises(ValueError, match=why):
            data_cli.join(data_cli.Join(out=out, paths=given))
    assert not (tmp_path / "c.npz").exists()


def test_shares_that_do_not_fit_are_refused() -> None:
    data = joined({"a": part(1), "b": part(10)})
    with pytest.raises(ValueError, match="shares are 3 numbers; the data are of 2 parts"):
        sampling.Mixture((0.1, 0.2, 0.3)).weights(data)
    with pytest.raises(ValueError, match="the data are of one making"):
        sampling.Mixture().weights(sound())
    for shares in ((0.0, 0.0), (np.inf, 1.0), (np.nan, 1.0), (-1.0, 2.0)):
        with pytest.raises(ValueError, match="shares is"):
            sampling.Mixture(shares)
    with pytest.raises(ValueError, match="All episodes of part 1 of the data are held out"):
        sampling.Mixture().weights(data.chosen(np.arange(40)))
    assert sampling.Mixture((1.0, 0.0)).weights(data.chosen(np.arange(40))).all()
    words = ["sampler:mixture", "--sampler.shares", "0.95", "0.05"]
    assert cli.parse(offline.Args, words).sampler == sampling.Mixture((0.95, 0.05))
