"""Datasets of what robots did: what each kind of learning sees of it, as it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import envs
from experiments import hil, make_lived, offline
from experiments.lived import Kind
from experiments.make_lived import Args
from rl.bridge.learn.ledger import Ledger
from rl.data import npz
from rl.record import Record
from tests.lives import end, explorer_at, flown, reach, records

GOAL = [0.0, 0.0, 0.05]  # m from where it is, which a human reaches
REACH = envs.make_task("panda-reach", rewards="sparse")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two robots: one is brought there by a human, of one a human does every third step."""
    folder = tmp_path_factory.mktemp("run")
    policy = explorer_at(folder / "explorer.zip")
    ledger = Ledger(folder / "ledger")
    for name, flight in {
        "arm": flown(policy, 16, lambda i: True, goal=GOAL),
        "other": flown(policy, 12, lambda i: i % 3 == 0),
    }.items():
        steps = flight.steps
        ledger.append(name, name.encode().ljust(16), 0, records([*steps, end(steps)]))
    ledger.close()
    return folder


def test_the_task_is_the_runs_where_none_is_named(tmp_path: Path) -> None:
    args = hil.Args(env=envs.make_task("panda-peg-insertion", sees="fit", clearance=0.004))
    with Record(run := tmp_path / "run", 1, config=args, env="panda-peg-insertion"):
        pass
    words = [f"--of={run}", "--view", "dagger"]
    assert make_lived.parse(words).env == args.env
    assert (make_lived.parse(words).of, make_lived.parse(words).view) == (run, "dagger")
    other = make_lived.parse([*words, "--env.sees=all"])
    assert other.env == replace(args.env, sees="all")
    named = make_lived.parse([*words, "--env", "panda-reach"])
    assert named.env == envs.make_task("panda-reach")
    with pytest.raises(ValueError, match="is no run: there is no such directory"):
        make_lived.parse(["--of", str(tmp_path / "nowhere")])


def made(run: Path, view: Kind, out: Path) -> npz.Dataset:
    make_lived.main(Args(run, REACH, "panda-reach", view, out))
    return npz.read(out)


@pytest.mark.long
def test_all_is_there_for_who_learns_of_all(run: Path, tmp_path: Path) -> None:
    data = made(run, "hil-serl", tmp_path / "a.npz")
    first, second = data.episodes["length"]
    assert second == 11
    assert data.steps["terminated"].nonzero()[0].tolist() == [first - 1]
    assert data.steps["reward"].nonzero()[0].tolist() == [first - 1]
    assert data.episodes["return"].tolist() == [1, 0]
    assert (data.facts["view"], data.facts["interventions"]) == ("hil-serl", 3)
    offline.of_task(tmp_path / "a.npz", data, "panda-reach", reach())  # it fits its task


def test_what_a_human_did_is_there_for_who_imitates(run: Path, tmp_path: Path) -> None:
    every = made(run, "hil-serl", tmp_path / "a.npz")
    human = made(run, "dagger", tmp_path / "b.npz")
    first = every.episodes["length"][0]
    acts = [*range(first), *(first + i for i in range(0, 11, 3))]
    np.testing.assert_array_equal(human.steps["obs"], every.steps["obs"][acts])
    np.testing.assert_array_equal(human.steps["action"], every.steps["action"][acts])
    assert human.episodes["length"].tolist() == [first, 1, 1, 1, 1]


def test_a_takeover_is_bad_for_rlif_and_an_end_for_takeover(run: Path, tmp_path: Path) -> None:
    bad = made(run, "rlif", tmp_path / "a.npz").steps["reward"]
    ends = made(run, "takeover", tmp_path / "b.npz").steps["terminated"]
    assert set(bad.tolist()) == {0, -1}
    assert bad.nonzero()[0].tolist() == [i for i in ends.nonzero()[0] if bad[i]]
    assert ends.sum() == (bad != 0).sum() + 1  # and what was done


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"of": Path("nowhere")}, "is no run of experiments.hil"),
        ({"env_name": "panda-stack"}, "is of panda-reach: give --env panda-reach"),
        ({"out": Path("a.txt")}, "takes a file that ends in .npz"),
    ],
)
def test_what_makes_no_sense_is_refused(
    run: Path, tmp_path: Path, change: dict[str, Path], why: str
) -> None:
    args = Args(run, REACH, "panda-reach", "rlif", tmp_path / "a.npz")
    with pytest.raises(ValueError, match=why):
        make_lived.main(args.__class__(**(vars(args) | change)))
