"""Which checkpoint of a run another one starts from."""

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import envs
from experiments import cli, offline, start
from rl import runs
from tests.test_offline import NAME, SMALL, balancing


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    words = ["--data", str(balancing(folder / "data.npz")), "--out", str(folder / "run")]
    more = ["--agent", "bc", "--steps", "500", "--evals", "0", "--save-s", "0"]
    offline.main(cli.parse(offline.Args, [*SMALL, *words, *more]))
    return folder / "run"


def steps(run: Path) -> list[int]:
    return sorted(int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit())


def begun(path: Path) -> Any:
    args = cli.parse(offline.Args, ["--start-from", str(path), "--threads", "1"])
    assert args.env_name == NAME
    return start.start(args, envs.simulate(args.env, "native")).learners[0]


def test_it_is_the_newest_or_the_one_that_is_named(run: Path) -> None:
    newest = begun(run).actor
    assert int(newest.opt[0].count[0]) == steps(run)[-1] == 500
    earlier = begun(run / "checkpoints" / str(steps(run)[0])).actor
    assert int(earlier.opt[0].count[0]) == steps(run)[0] < 500
    same = jax.tree.map(np.array_equal, newest.params, earlier.params)
    assert not all(jax.tree.leaves(same))


def test_where_the_newest_is_damaged_another_is_named(run: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    newest = broken / "checkpoints" / str(steps(run)[-1])
    largest = max(newest.rglob("*"), key=lambda path: path.is_file() and path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-7])
    other = broken / "checkpoints" / str(steps(run)[-2])
    with pytest.raises(ValueError, match=f"is damaged.*--start-from {other}"):
        begun(broken)
    assert int(begun(other).actor.opt[0].count[0]) == steps(run)[-2]
    assert runs.run_of(other) == broken
